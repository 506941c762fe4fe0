"""`--sketch auto`: many sketches are tried side by side under one time limit, and the best replayed plan is kept.

Each outline (none at all, or a way out of the nodes and policies for the switches) is tried on its symmetry with one
part, and with more parts as long as that makes it faster. What cannot beat the best plan any more, by its bound, is
skipped. What time is left goes to the best tries again, with and without symmetry and with more time. The bound of the
whole holds for every sketch with one of the partitions considered: it is that of the topology in full, where any chunks
may travel together.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from gapless.checker import check
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.candidates import Candidate, candidate, outlines, partitions, whole
from gapless.encodings.taccl.sketch.format import Sketch, sketch_data
from gapless.jobs import Job, Jobs
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Solution
from gapless.system import Plan

__all__ = ["SolveOne", "search_sketches"]

_FIRST_S, _LEAST_S = 3.0, 0.5
"""The time of a first try: at most, and at least where the time limit has to suffice for all."""
_FIRST_SHARE, _TRIES_AN_OUTLINE = 0.6, 2.5
"""The part of the time limit that the first tries may take together, if an outline is tried so many times."""
_BOUNDS_SHARE = 0.1
"""The part of the time limit after which no finer partitions are looked at: their bounds take longer and longer."""
_BEST, _AGAIN_S = 2, 10.0
"""How many of the best tries are repeated, and for how long each where there is no time limit."""


SolveOne = Callable[[Chunked, SolveOptions], Plan]
"""Solves under one sketch; it can be pickled."""


def search_sketches(problem: Problem, options: SolveOptions, solve_one: SolveOne) -> Plan:
    """Try sketches; the plan is the best replayed one."""
    search = _Search(problem, options, solve_one, Deadline(options))
    search.first_tries()
    search.further_tries()
    return search.answer()


@dataclass(frozen=True)
class _Work:
    """The work of solving under one sketch; `limits` are fields of `SolveOptions`."""

    problem: Chunked
    limits: Mapping[str, Any]
    solve_one: SolveOne

    def __call__(self, stop: threading.Event) -> Plan:
        plan = self.solve_one(self.problem, SolveOptions(**self.limits, stop=stop))
        assert plan.schedule is None or check(plan.schedule).valid
        return plan


@dataclass(frozen=True)
class _Next:
    """What is to be tried, and for how long; finer partitions are worth a try if it is faster than `beat_s`."""

    outline: Sketch | None
    step: int
    limit_s: float
    use_symmetry: bool = True
    beat_s: float = math.inf


@dataclass
class _Try:
    """A candidate, what it was made for, and the best that came of it."""

    candidate: Candidate
    asked: _Next
    plan: Plan | None = None
    spent_s: float = 0.0

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
    def row(self) -> dict[str, Any]:
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
    solve_one: SolveOne
    deadline: Deadline
    wholes: list[Candidate] = field(init=False)
    outlines: list[Sketch | None] = field(init=False)
    tries: list[_Try] = field(default_factory=list)

    def __post_init__(self) -> None:
        topology = self.problem.topology
        self.outlines = [None, *outlines(topology)]
        self.wholes = []
        for parts in partitions(topology, self.problem.size_bytes):
            if self.wholes and self.deadline.elapsed_s > _BOUNDS_SHARE * (self.options.time_limit_s or math.inf):
                break  # what has no bound is not tried
            self.wholes.append(whole(self.problem.under, topology, parts))

    @property
    def bound_s(self) -> float:
        """Under no sketch, with no partition that is considered, can it be faster."""
        return min(one.bound_s for one in self.wholes)

    @property
    def best(self) -> _Try | None:
        """The try with the best plan so far, None before there is one."""
        found = min(self.tries, key=lambda attempt: (attempt.makespan_s, attempt.bound_s), default=None)
        return None if found is None or math.isinf(found.makespan_s) else found

    @property
    def gap(self) -> float | None:
        """Proven distance of the best plan from the best of all sketches."""
        return relative_gap(None if self.best is None else self.best.makespan_s, self.bound_s)

    @property
    def is_over(self) -> bool:
        """Whether the time is up, somebody said stop, or the plan is good enough."""
        return self.deadline.over or (self.gap is not None and self.gap <= self.options.gap)

    def first_tries(self) -> None:
        """Every outline with one part, then with more parts as long as that makes it faster."""
        rounds = max(_TRIES_AN_OUTLINE * len(self.outlines) / self.options.thread_count, 1.0)
        limit_s = min(_FIRST_S, max(_FIRST_SHARE * self.deadline.remaining_s / rounds, _LEAST_S))

        def then(attempt: _Try) -> list[_Next]:
            asked, step = attempt.asked, attempt.asked.step + 1
            is_better = attempt.makespan_s < asked.beat_s and step < len(self.wholes)
            return [replace(asked, step=step, beat_s=attempt.makespan_s)] if is_better else []

        self._run([_Next(outline, 0, limit_s) for outline in self.outlines], then)

    def further_tries(self) -> None:
        """The time that is left for the most promising tries, with and without symmetry."""
        promising = [attempt for attempt in self.tries if not self._is_hopeless(attempt.bound_s)]
        promising.sort(key=lambda attempt: attempt.makespan_s)
        rounds = max(2 * _BEST / self.options.thread_count, 1.0)
        share_s = self.deadline.remaining_s / rounds
        limit_s = share_s if math.isfinite(share_s) else _AGAIN_S
        again = [
            replace(attempt.asked, limit_s=limit_s, use_symmetry=use_symmetry)
            for attempt in promising[:_BEST]
            for use_symmetry in ((True, False) if attempt.asked.outline else (True,))
        ]
        self._run(again, lambda attempt: [])

    def answer(self) -> Plan:
        """The best plan, and what was tried for it."""
        rows = sorted((attempt.row for attempt in self.tries), key=_by_makespan)
        timings = {attempt.candidate.name: round(attempt.spent_s, 6) for attempt in self.tries}
        details: dict[str, Any] = {"sketches_tried": len(rows), "sketches": rows}
        best = self.best
        if best is None or best.plan is None:
            return Plan(self._solution(None), None, details, timings)
        problem = best.plan.problem or best.candidate.problem
        details = {**best.plan.details, "ratio": best.makespan_s / self.bound_s, **details}
        if best.candidate.problem.sketch is not None:
            details["sketch_file"] = sketch_data(best.candidate.problem.sketch)
        solution = self._solution(best.plan.solution)
        return replace(best.plan, solution=solution, details=details, timings=timings, problem=problem)

    def _solution(self, best: Solution | None) -> Solution:
        names = ("", "") if best is None else (best.solver, best.version)
        objective_s = None if best is None else best.objective
        return claim(objective_s, self.bound_s, *names, self.options, self.deadline)

    def _is_hopeless(self, bound_s: float) -> bool:
        """Whether a bound rules out that the best plan is beaten."""
        return self.best is not None and bound_s >= self.best.makespan_s * (1 - 1e-9)

    def _run(self, waiting: list[_Next], then: Callable[[_Try], list[_Next]]) -> None:
        """Solve what is waiting, as many at a time as there are threads; `then` says what each makes worth trying."""
        running: dict[int, _Try] = {}
        jobs: Jobs[Plan] = Jobs()
        with closing(jobs):
            while (waiting or running) and not self.is_over:
                while waiting and len(running) < self.options.thread_count:
                    self._start(jobs, running, waiting.pop(0))
                waiting += [following for attempt in self._taken(jobs, running) for following in then(attempt)]
            jobs.stop()
            while running and self.best is None:  # too little time for anything: take what there is
                self._taken(jobs, running)

    def _start(self, jobs: Jobs[Plan], running: dict[int, _Try], following: _Next) -> None:
        """Start a try, unless it fits no collective or can't beat the best plan."""
        found = self._candidate(following)
        if found is None:
            return
        attempt = _Try(found, following)
        self.tries.append(attempt)
        if not self._is_hopeless(found.bound_s):
            limit_s = max(min(following.limit_s, self.deadline.remaining_s), _LEAST_S)
            limits = {"time_limit_s": limit_s, "threads": 1, "seed": self.options.seed, "solver": self.options.solver}
            work = _Work(found.problem, limits, self.solve_one)
            jobs.start(Job(len(self.tries) - 1, f"sketch {found.name}", work))
            running[len(self.tries) - 1] = attempt

    def _candidate(self, asked: _Next) -> Candidate | None:
        found = self.wholes[asked.step]
        if asked.outline is None:
            return found
        parts = found.problem.collective.chunks_per_rank
        return candidate(self.problem.under, asked.outline, parts, asked.use_symmetry)

    def _taken(self, jobs: Jobs[Plan], running: dict[int, _Try]) -> list[_Try]:
        """The tries that have an answer now."""
        taken = []
        for place, plan in jobs.finished():
            attempt = running.pop(place)
            attempt.plan, attempt.spent_s = plan, plan.solution.wall_s
            taken.append(attempt)
            if self.options.on_plan is not None and self.best is not None:
                self.options.on_plan(self.best.makespan_s, self.answer)
            if self.options.on_progress is not None:
                incumbent = None if self.best is None else self.best.makespan_s
                name = attempt.candidate.name
                self.options.on_progress(Progress(self.deadline.elapsed_s, incumbent, self.bound_s, name))
        return taken


def _by_makespan(row: Mapping[str, Any]) -> tuple[float, float]:
    makespan_s = row["makespan_s"]
    return (math.inf if makespan_s is None else makespan_s, row["bound_s"])
