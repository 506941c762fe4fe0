"""`--sketch auto`: sketches for a topology that nobody has written one for, tried side by side under one time limit.

A candidate is a number of parts that a buffer is cut into, and either no sketch at all or a way out of the nodes, a
policy for the switches, and whether the symmetry that the logical topology has is used. Ways out: every link, the same
local rank on the other side (rails), or one sender and one receiver at each NIC, with or without a rule that a chunk
leaves by the NIC of its rank.

Each outline (none at all, or a way out and policies) is tried on its symmetry with one part, and with more parts as
long as that makes it faster, each time with a part of the work that the parameters allow. What cannot beat the best
plan any more, by its bound, is skipped. The best tries are repeated with all of the work, with and without symmetry.
The best replayed plan is kept. The bound of the whole is that of the topology in full, for any chunking.

Answers are taken in the order in which tries were thought of, whichever comes first: so with any number of processes
the same tries are made, and one that would not have been made with a single process counts for nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace

from gapless.checker import check
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.parameters import Parameters, Sketches
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.format import InterNode, Policy, Sketch, sketch_data
from gapless.encodings.taccl.symmetry.automorphisms import free_symmetry
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.processes.jobs import Job, Jobs
from gapless.solution import Solution
from gapless.system import Plan
from gapless.topologies.topology import Topology

__all__ = ["Candidate", "SolveOne", "candidate", "outlines", "partitions", "search_sketches", "whole"]

Ranks = dict[int, tuple[int, ...]]

_DEFAULTS = Sketches()
_LEAST_SHARE_OF_ALPHA = 0.5
"""Finer parts than these, whose own time on the fastest link is less than this share of its latency, don't pay."""
_BOUNDS_SHARE = 0.1
"""The part of a time limit after which no finer partitions are looked at: their bounds take longer and longer."""


@dataclass(frozen=True)
class Candidate:
    """A problem under one sketch or none, with the lower bound that holds for all of its schedules."""

    name: str
    problem: Chunked
    bound_s: float


def partitions(topology: Topology, input_bytes: int, parameters: Sketches = _DEFAULTS) -> list[int]:
    """Into how many parts a rank's buffer may be cut: more where a part still outweighs the latency of its links."""
    fastest = int(topology.beta_s_per_byte.argmin())
    alpha_s, whole_s = float(topology.alpha_s[fastest]), float(topology.beta_s_per_byte[fastest]) * input_bytes
    return [
        parts
        for parts in parameters.parts
        if parts == 1 or (parts <= input_bytes and whole_s / parts >= _LEAST_SHARE_OF_ALPHA * alpha_s)
    ]


def whole(problem: Problem, parts: int, parameters: Sketches = _DEFAULTS) -> Candidate:
    """No sketch at all. The bound holds for every sketch with so many parts, and chunks that travel together."""
    way_out = next(_exits(problem.topology, parameters))[1]
    free = _on_symmetry(problem, Sketch("free", inter_node=way_out, chunks_per_rank=parts), parameters)
    return Candidate(f"none-{parts}", problem.under(None, parts), bounds_of(free).any_grouping_s)


def outlines(topology: Topology, parameters: Sketches = _DEFAULTS) -> list[Sketch]:
    """Every way out with every policy, for one part and without symmetry; some may not fit the collective."""
    return [
        Sketch("-".join(["auto", exit_name, *sorted(set(policies))]), switches, policies, inter_node)
        for exit_name, inter_node in _exits(topology, parameters)
        for switches, policies in _policies(topology)
    ]


def candidate(
    asked: Problem, outline: Sketch, parts: int, use_symmetry: bool = True, parameters: Sketches = _DEFAULTS
) -> Candidate | None:
    """An outline with a number of parts, on its symmetry if it has any; None where it doesn't fit the collective."""
    sketch = replace(outline, name=f"{outline.name}-{parts}", chunks_per_rank=parts)
    try:
        problem = _on_symmetry(asked, sketch, parameters)
    except InputError:
        return None
    bound_s = bounds_of(problem).chunk_by_chunk_s  # on orbits, and the same without symmetry
    if not use_symmetry:
        problem = asked.under(sketch, parts)
    assert problem.sketch is not None
    return Candidate(problem.sketch.name, problem, bound_s)


def _on_symmetry(asked: Problem, sketch: Sketch, parameters: Sketches) -> Chunked:
    """The problem under a sketch with the symmetry that its logical topology has, if any."""
    problem = asked.under(sketch, sketch.chunks_per_rank)
    generators = free_symmetry(problem.logical.topology, problem.collective, problem.logical.allowed, parameters)
    if not generators:
        return problem
    symmetric = replace(sketch, name=f"{sketch.name}-symmetric", permutations=generators)
    return asked.under(symmetric, sketch.chunks_per_rank)


def _policies(topology: Topology) -> list[tuple[tuple[tuple[int, ...], ...], tuple[Policy, ...]]]:
    """The switches of a node under each policy."""
    of_node = [switch.ranks for switch in topology.switches if switch.node == 0]
    switches = tuple(tuple(rank % topology.ranks_per_node for rank in ranks) for ranks in of_node)
    policies: tuple[Policy, ...] = ("uc-max", "uc-min") if switches else ("uc-max",)
    return [(switches, (policy,) * len(switches)) for policy in policies]


def _exits(topology: Topology, parameters: Sketches) -> Iterator[tuple[str, InterNode | None]]:
    """How chunks leave a node; NICs are taken whole, in turn."""
    if topology.node_count == 1:
        yield "one-node", None
        return
    local_count = topology.ranks_per_node
    joined = _joined(topology, local_count)
    yield "every-link", InterNode(joined, dict.fromkeys(joined, 1.0))
    rails: Ranks = {sender: (sender,) for sender, receivers in joined.items() if sender in receivers}
    if len(rails) == len(joined) and rails != joined:
        yield "rails", InterNode(rails, dict.fromkeys(rails, 1.0))
    nics = [nic.ranks for nic in topology.nics if nic.node == 0]
    nics = [tuple(rank % local_count for rank in ranks) for ranks in nics]
    if not nics or min(map(len, nics)) < 2:
        return
    for send in range(parameters.senders):
        chosen: Ranks = {ranks[send]: (ranks[0],) for ranks in nics}
        if any(receivers[0] not in joined.get(sender, ()) for sender, receivers in chosen.items()):
            continue
        split = dict.fromkeys(chosen, 1.0)
        yield f"nic{send}0", InterNode(chosen, split)
        if len(nics) > 1:
            relays: Ranks = {rank: (ranks[send],) for ranks in nics for rank in ranks}
            yield f"nic{send}0-own", InterNode(chosen, split, relays)


def _joined(topology: Topology, local_count: int) -> dict[int, tuple[int, ...]]:
    """Local sender -> local receivers on other nodes, as the links of the first node have it."""
    found: dict[int, set[int]] = {}
    for source, target in zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True):
        if source < local_count <= target:
            found.setdefault(source, set()).add(target % local_count)
    return {sender: tuple(sorted(found[sender])) for sender in sorted(found)}


SolveOne = Callable[[Chunked, SolveOptions, Parameters], Plan]
"""Solves under one sketch; it can be pickled."""
FirstPlan = Callable[[Chunked, Deadline], Plan | None]


def search_sketches(
    problem: Problem, options: SolveOptions, parameters: Parameters, first_plan: FirstPlan, solve_one: SolveOne
) -> Plan:
    """Try sketches; the plan is the best replayed one, or where there is no time for any, the first one."""
    deadline = Deadline(options)
    first = first_plan(problem.coarsest, deadline)
    search = _Search(problem, options, parameters, solve_one, deadline, first)
    search.first_tries()
    search.further_tries()
    return search.answer()


@dataclass(frozen=True)
class _Work:
    """The work of solving under one sketch."""

    problem: Chunked
    time_limit_s: float | None
    seed: int
    solver: str | None
    parameters: Parameters
    solve_one: SolveOne

    def __call__(self, stop: threading.Event) -> tuple[Plan, bool]:
        """The plan, and whether the clock has cut it short."""
        options = SolveOptions(self.time_limit_s, threads=1, seed=self.seed, solver=self.solver, stop=stop)
        deadline = Deadline(options)
        plan = self.solve_one(self.problem, deadline.stage(), self.parameters)
        assert plan.schedule is None or check(plan.schedule).valid
        return plan, deadline.has_struck


@dataclass(frozen=True)
class _Next:
    """What is to be tried; finer partitions are worth a try if it is faster than `beat_s`."""

    outline: Sketch | None
    step: int
    use_symmetry: bool = True
    beat_s: float = math.inf


@dataclass
class _Try:
    """A candidate, what it was made for, and the best that came of it."""

    candidate: Candidate
    asked: _Next
    plan: Plan | None = None

    @property
    def makespan_s(self) -> float:
        """Of its best plan, inf without one."""
        end_s = None if self.plan is None else self.plan.solution.objective
        return math.inf if end_s is None else end_s

    @property
    def bound_s(self) -> float:
        """No plan under this sketch, as far as is proven, takes less."""
        proven_s = None if self.plan is None else self.plan.solution.bound
        return max(self.candidate.bound_s, proven_s or 0.0)

    @property
    def rank(self) -> tuple[float, float]:
        """The least is the best."""
        return self.makespan_s, self.bound_s

    @property
    def row(self) -> dict[str, object]:
        """What is reported of it."""
        return {
            "sketch": self.candidate.name,
            "status": "skipped" if self.plan is None else self.plan.solution.status.value,
            "makespan_s": self.makespan_s if math.isfinite(self.makespan_s) else None,
            "bound_s": self.bound_s,
        }


@dataclass
class _Search:
    """What is known so far."""

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    solve_one: SolveOne
    deadline: Deadline
    first: Plan | None
    bound_s: float = field(init=False)
    wholes: list[Candidate] = field(init=False)
    outlines: list[Sketch | None] = field(init=False)
    tries: list[_Try] = field(default_factory=list)

    def __post_init__(self) -> None:
        topology, sketches = self.problem.topology, self.parameters.sketches
        self.outlines = [None, *outlines(topology, sketches)]
        self.bound_s = bounds_of(self.problem.coarsest, self.parameters.bounds, self.deadline.stage()).any_chunking_s
        self.wholes = []
        stage = Deadline(self.deadline.stage(_BOUNDS_SHARE * self.deadline.remaining_s))
        for parts in partitions(topology, self.problem.size_bytes, sketches):
            if self.wholes and stage.over:
                break  # what has no bound is not tried
            self.wholes.append(whole(self.problem, parts, sketches))

    @property
    def of_partitions_s(self) -> float:
        """Under no sketch, with no partition that is considered, can it be faster."""
        return min(one.bound_s for one in self.wholes)

    @property
    def best(self) -> _Try | None:
        """The try with the best plan so far, None before there is one."""
        found = min(self.tries, key=lambda attempt: attempt.rank, default=None)
        return None if found is None or math.isinf(found.makespan_s) else found

    @property
    def gap(self) -> float | None:
        """Proven distance of the best plan from the best that there can be."""
        return relative_gap(None if self.best is None else self.best.makespan_s, self.bound_s)

    @property
    def is_over(self) -> bool:
        """Whether the time is up, somebody said stop, or the plan is good enough."""
        return self.deadline.over or (self.gap is not None and self.gap <= self.options.gap)

    def first_tries(self) -> None:
        """Every outline with one part, then with more parts as long as that makes it faster."""

        def then(attempt: _Try) -> list[_Next]:
            asked, step = attempt.asked, attempt.asked.step + 1
            is_better = attempt.makespan_s < asked.beat_s and step < len(self.wholes)
            return [replace(asked, step=step, beat_s=attempt.makespan_s)] if is_better else []

        brief = self.parameters.with_share(self.parameters.sketches.first_share)
        self._run([_Next(outline, 0) for outline in self.outlines], then, brief)

    def further_tries(self) -> None:
        """The most promising tries again, with and without symmetry."""
        promising = [attempt for attempt in self.tries if not self._is_hopeless(attempt.bound_s)]
        promising.sort(key=lambda attempt: attempt.makespan_s)
        again = [
            replace(attempt.asked, use_symmetry=use_symmetry)
            for attempt in promising[: self.parameters.sketches.best]
            for use_symmetry in ((True, False) if attempt.asked.outline else (True,))
        ]
        self._run(again, lambda attempt: [], self.parameters)

    def answer(self) -> Plan:
        """The best plan, and what was tried for it."""
        rows = [attempt.row for attempt in sorted(self.tries, key=lambda attempt: attempt.rank)]
        details: dict[str, object] = {"sketches_tried": len(rows), "sketches": rows}
        best, first_s = self.best, math.inf
        if self.first is not None and self.first.solution.objective is not None:
            first_s = self.first.solution.objective
        if self.first is not None and (best is None or first_s < best.makespan_s * (1 - 1e-9)):
            details = {**self.first.details, **details, **self._bounds(first_s)}
            return replace(self.first, solution=self._solution(self.first.solution), details=details)
        if best is None or best.plan is None:
            return Plan(self._solution(None), None, details)
        problem = best.plan.problem or best.candidate.problem
        details = {**best.plan.details, **details, **self._bounds(best.makespan_s)}
        if best.candidate.problem.sketch is not None:
            details["sketch_file"] = sketch_data(best.candidate.problem.sketch)
        solution = self._solution(best.plan.solution)
        return replace(best.plan, solution=solution, details=details, problem=problem)

    def _bounds(self, end_s: float) -> dict[str, object]:
        """What the details say of the bounds of all sketches."""
        parts = ", ".join(str(one.problem.chunks) for one in self.wholes)
        bounds_s = {"any chunking": self.bound_s, f"{parts} chunks, any grouping": self.of_partitions_s}
        return {"ratio": end_s / self.bound_s if self.bound_s else None, "bounds_s": bounds_s}

    def _solution(self, best: Solution | None) -> Solution:
        names = ("", "") if best is None else (best.solver, best.version)
        objective_s = None if best is None else best.objective
        return claim(objective_s, self.bound_s, *names, self.options, self.deadline)

    def _is_hopeless(self, bound_s: float) -> bool:
        """Whether a bound rules out that the best plan is beaten."""
        return self.best is not None and bound_s >= self.best.makespan_s * (1 - 1e-9)

    def _run(self, waiting: list[_Next], then: Callable[[_Try], list[_Next]], parameters: Parameters) -> None:
        """Solve what is waiting, in this order; `then` says what each makes worth trying.

        As many as there are threads are solved at a time, ahead of their turn, and taken when it is theirs.
        """
        ahead: list[_Try] = []
        begun = len(self.tries)
        answers: dict[int, tuple[Plan, bool]] = {}
        jobs: Jobs[tuple[Plan, bool]] = Jobs()
        with closing(jobs):
            while (waiting or ahead) and not self.is_over:
                while waiting and jobs.running < self.options.thread_count:
                    if (attempt := self._begun(waiting.pop(0))) is not None:
                        ahead.append(attempt)
                        if not self._is_hopeless(attempt.bound_s):
                            jobs.start(self._job(begun + len(ahead) - 1, attempt, parameters))
                answers.update(jobs.finished())
                while ahead and not self.is_over and (begun in answers or self._is_hopeless(ahead[0].bound_s)):
                    attempt = ahead.pop(0)
                    waiting += self._taken(attempt, answers.pop(begun, None), then)
                    begun += 1
            jobs.stop()
            while jobs.running and self.best is None and self.first is None:  # too little time: take what there is
                for place, answer in jobs.finished():
                    self._taken(ahead[place - begun], answer, then)

    def _begun(self, asked: _Next) -> _Try | None:
        """A try, None where it fits no collective."""
        found: Candidate | None = self.wholes[asked.step]
        if found is not None and asked.outline is not None:
            parts = found.problem.collective.chunks_per_rank
            found = candidate(self.problem, asked.outline, parts, asked.use_symmetry, self.parameters.sketches)
        return None if found is None else _Try(found, asked)

    def _job(self, place: int, attempt: _Try, parameters: Parameters) -> Job[tuple[Plan, bool]]:
        options = self.deadline.stage()
        how = options.time_limit_s, options.seed, options.solver
        work = _Work(attempt.candidate.problem, *how, parameters, self.solve_one)
        return Job(place, f"sketch {attempt.candidate.name}", work)

    def _taken(
        self, attempt: _Try, answer: tuple[Plan, bool] | None, then: Callable[[_Try], list[_Next]]
    ) -> list[_Next]:
        """Note a try and its answer, if it can still beat the best plan; what it makes worth trying."""
        is_hopeless = self._is_hopeless(attempt.bound_s)
        self.tries.append(attempt)
        if answer is None or is_hopeless:
            return []
        plan, has_struck = answer
        attempt.plan = plan
        if has_struck:
            self.deadline.strike()
        if self.options.on_plan is not None and self.best is not None:
            self.options.on_plan(self.best.makespan_s, self.answer)
        if self.options.on_progress is not None:
            incumbent = None if self.best is None else self.best.makespan_s
            self.options.on_progress(Progress(self.deadline.elapsed_s, incumbent, self.bound_s, attempt.candidate.name))
        return then(attempt)
