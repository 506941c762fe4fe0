"""The methods of TACCL in the order in which they are tried: when each is of use, what it costs, what it makes.

0. *First plan* (`first`, `flow/first.py`): the libraries' algorithms, and shortest paths or on many ranks one matching:
   at once, by counted work, so that whenever the time is up there is an answer that no library beats.
1. *Chunks*, where nobody says how many: the greedy for some numbers of them, 150 orders each (`flow/chunking.py`), some
   tenths of a second each; few first, then finer ones as long as the bound says that something is left to gain, but
   none that its own bound rules out. The best of these plans is the greedy's quick one. Left out for a collective of
   one's own, and where there are many sends.
2. *Aggregated sends* and *baselines* (`aggregate/stage.py`): whole buffers in one send, by randomised construction,
   2 s, and what libraries do, 4 s at most, first. Left out above 128 ranks, and where a sketch orders single chunks.
3. *Packed trees* (`trees`, `flow/spanning_trees.py`): an ALLREDUCE up and down trees that load links alike, some 2 s.
   Left out under a sketch, and where loads and the longest tree promise nothing better than the best. Then matchings
   that add chunks up where bandwidth would have them (`flow/sum_roots.py`), where that isn't on all ranks alike.
4. *Matching with restarts* (`matching`, `flow/restarts.py`): in the numbers of chunks around the one found, tenths of a
   second each, then more work in the best of them. Left out where each chunk is for one rank, whose flow the greedy
   rounds.
5. *Greedy* (`greedy`, `flow/greedy.py`): matching or rounded flow, then list scheduling; 1 s on small problems, else
   5 s. Left out where its quick plan is far behind the best. Where no gap is allowed, on few ranks, all methods
   are tried in each small number of chunks at last.
6. *MILP* (`milp`, `milp/synthesis.py`): the thesis's three stages, some 15 s at most, in the largest number of chunks
   that is small enough for it. Without a sketch it runs only where it is asked for by name, with a path slack where it
   is small, or where the greedy can't plan the collective: otherwise it was the only best method of no question.

A sketch is written for the MILP. So under one it is first, unless bounds say that no plan chunk by chunk can be proven
within the gap; then aggregated sends are. Matching and greedy follow. Everything keeps to what the sketch allows.

What they share is a `Search`: the question, its bounds, the best of their candidates, and the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property

from gapless.encodings.taccl.aggregate.stage import VARIANTS, Known, may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of, class_name
from gapless.encodings.taccl.bounds.classes import QuestionBounds
from gapless.encodings.taccl.candidate import SAME, Candidate
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.flow.chunking import Quick, best_matching
from gapless.encodings.taccl.flow.first import least_limit_s
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.flow.loaded_trees import may_load_trees, plan_on_loaded_trees
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.flow.spanning_trees import doubled_chunks, plan_on_trees
from gapless.encodings.taccl.flow.sum_roots import plan_from_roots
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.errors import InputError
from gapless.methods import run_methods
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status, StopReason
from gapless.system import Plan

__all__ = ["NAMES", "PART", "Search", "may_pack_trees", "methods_for", "no_plan"]

PART = 0.5
"""Where others follow, a method takes at most this part of the time that is left."""
_FEW_RANKS = 5
"""Up to here a gap of 0 means that each small number of chunks is tried."""


@dataclass
class Search:
    """The best candidate so far, and the bound of what was asked, 0 as long as there is none.

    `first`: the plan to fall back on; `quick`: likewise, of the greedy. `classes`: the bounds that hold for what was
    asked, and for the question without what narrows it. `asked`: where nobody has said into how many chunks data are
    cut. `by_chunks`: the best of the plans chunk by chunk, with a bound for those. `class_bounds_s`: by class.
    `widest_s`: for any plan of the question, with the bound's name.
    """

    problem: Chunked
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    first: Candidate | None
    quick: Quick
    classes: QuestionBounds
    asked: Problem | None
    bound_s: float = 0.0
    widest_s: tuple[float, str] = (0.0, "")
    best: Candidate | None = None
    by_chunks: Candidate | None = None
    class_bounds_s: dict[str, float] = field(default_factory=dict)

    @property
    def question(self) -> Bounds:
        """The bounds that hold for what was asked."""
        return self.classes.asked

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the problem in its chunks."""
        if self.question.problem is self.problem:
            return self.question
        return self.quick.bounds or bounds_of(self.problem, self.parameters.bounds, self.deadline.stage())

    @property
    def is_alone(self) -> bool:
        """Whether the question asks for a single method."""
        return self.problem.method != "auto" or self.options.solver is not None

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and the time is up or it is proven within the gap."""
        if self.best is None:
            return self.first is not None and self.deadline.over
        return self.deadline.over or self.prove()

    @property
    def end_s(self) -> float:
        """When the best plan is over, inf without one."""
        return math.inf if self.best is None else self.best.end_s

    def prove(self) -> bool:
        """Whether the best plan is proven within the gap of what was asked: by the quick bounds, or by all of them."""
        if not self._is_proven:
            self.note_bound(self.question.asked_s)
        return self._is_proven

    @property
    def _is_proven(self) -> bool:
        gap = None if self.best is None else relative_gap(self.end_s, self.bound_s)
        return gap is not None and gap <= self.options.gap

    def note_bound(self, bound_s: float) -> None:
        """A bound of the question."""
        self.bound_s = max(self.bound_s, bound_s)
        self.class_bounds_s[self.question.asked_class] = self.bound_s

    def stage(self, share: float = PART) -> SolveOptions:
        """A part of the time that is left, with reports that go on from the best plan so far."""
        stage = replace(self.deadline.stage(share * self.deadline.remaining_s), on_plan=self._on_plan())
        report, since_s, bound_s = stage.on_progress, self.deadline.elapsed_s, self.widest_s[0] or None
        if report is None:
            return stage
        known = [plan.end_s for plan in (self.best, self.first) if plan is not None]

        def go_on(news: Progress) -> None:
            found_s = min((one for one in (news.incumbent, *known) if one is not None), default=None)
            report(replace(news, incumbent=found_s, bound=bound_s, wall_s=since_s + news.wall_s))

        if self.best is not None:
            go_on(Progress(0.0, None, None, self.best.method))
        return replace(stage, on_progress=go_on)

    def _on_plan(self) -> Callable[[float, Callable[[], Candidate]], None] | None:
        """Takes what a method finds before its end, and offers it as the answer to the question."""
        on_plan = self.options.on_plan
        return None if on_plan is None else lambda end_s, make: on_plan(end_s, lambda: self.answer(make()))

    def offer(self, candidate: Candidate) -> None:
        """Keep a plan if it is faster than the best; of two of one kind the larger bound holds for both."""
        name = class_name(candidate.problem, candidate.is_grouped)
        self.class_bounds_s[name] = max(candidate.proven_s, self.bound_s, self.class_bounds_s.get(name, 0.0))
        if not candidate.is_grouped:
            known = self.by_chunks
            if known is not None and known.method == candidate.method and known.problem is candidate.problem:
                candidate = _better(known, candidate)
            if known is None or candidate.end_s <= known.end_s:
                self.by_chunks = candidate
        if candidate.is_faster(self.best):
            self.best = candidate
            self.announce(candidate)

    def announce(self, candidate: Candidate | None) -> None:
        """Report a plan that may be the answer if nothing better is found."""
        if self.options.on_plan is not None and candidate is not None:
            self.options.on_plan(candidate.end_s, self.answer)

    def ended(self) -> Plan:
        """The answer once no method is left: with the bounds of wider classes than what was asked."""
        self.prove()
        self.widest_s = self.classes.widest
        self.classes.has_ended = not self.deadline.over
        return self.answer()

    def answer(self, news: Candidate | None = None) -> Plan:
        """The best plan, with the bound of the question, and its provenance. `news`: of a method that goes on."""
        known = [plan for plan in (self.best, self.quick.plan, news) if plan is not None]
        is_asked = not self.is_alone and self.parameters.methods.allows("first")
        if self.first is not None and (is_asked or not known or self.deadline.has_struck):
            known.append(self.first)
        if not known:
            return no_plan(self.problem, self.options, self.deadline)
        best = min(known, key=lambda plan: plan.end_s)  # of equal ones the best of the methods
        widest_s, source = self.widest_s
        solution = claim(
            best.end_s, widest_s, best.solver, best.version, self.options, self.deadline, source,
            self.classes.narrower(best, self.class_bounds_s, self.is_alone), confined=self.asked is None,
        )  # fmt: skip
        if self.options.stop.is_set() and solution.status is Status.FEASIBLE:
            solution = replace(solution, stop_reason=StopReason.INTERRUPTED)
        details = best.details(best.end_s / widest_s if widest_s else None) | {
            "bounds_s": dict(self.class_bounds_s),
            "bound_sources_s": dict(best.bounds_s),
            "provenance": asdict(best.decision),
        }
        return Plan(solution, best.schedule, details, problem=best.problem, decision=best.decision)


def no_plan(problem: Chunked, options: SolveOptions, deadline: Deadline) -> Plan:
    """That there is no time for a plan, and about how much there would have to be."""
    details = {"least_time_limit_s": math.ceil(least_limit_s(problem))}
    return Plan(claim(None, 0.0, "", "", options, deadline), None, details, problem=problem)


def _better(one: Candidate, other: Candidate) -> Candidate:
    """The faster of two plans (of equals the other), with the larger of their bounds, which both hold for both."""
    best = one if one.end_s < other.end_s * (1 - SAME) else other
    return replace(best, bound_s=max(one.proven_s, other.proven_s), bounds_s={**one.bounds_s, **other.bounds_s})


@dataclass(frozen=True)
class _Method:
    """One of the methods; `attempts`: what it tries in turn, None where nothing comes of it. `parts`: its variants, by
    which a parameter file may name it instead.
    """

    name: str
    supports: Callable[[Chunked], bool]
    attempts: Callable[[Search], Iterator[Candidate | None]]
    parts: tuple[str, ...] = ()

    def run(self, search: Search) -> Iterator[Candidate]:
        """What comes of its attempts."""
        return (found for found in self.attempts(search) if found is not None)


def methods_for(search: Search) -> list[_Method]:
    """The methods for a question in their order, as far as the parameters allow them.

    Raises `InputError` where they allow none of the methods that the question asks for.
    """
    problem, choice = search.problem, search.parameters.methods
    if problem.method == "greedy":
        methods = [_QUICK, _GREEDY]
    elif search.is_alone:
        methods = [_MILP]
    elif problem.sketch is not None or problem.path_slack is not None or not may_be_greedy(problem):
        # Whether a plan chunk by chunk may be proven within the gap of what was asked:
        milp_may_do = search.question.quick_asked_s >= (1 - search.options.gap) * search.bounds.chunk_by_chunk_s
        methods = [_MILP, _AGGREGATED] if milp_may_do else [_AGGREGATED, _MILP]
        methods += [_MATCHING, _GREEDY]
    else:
        methods = [_AGGREGATED, _QUICK, _TREES, _LOADED, _MATCHING, _GREEDY, _EVERY_NUMBER]
        methods += [_MILP] if "milp" in choice.only else []
    allowed = [method for method in methods if any(map(choice.allows, method.parts or (method.name,)))]
    if not allowed and search.is_alone:
        raise InputError(f"methods: must leave {methods[0].name}, which the question asks for, got none")
    return allowed


def _aggregated(search: Search) -> Iterator[Candidate | None]:
    """Aggregated sends and baselines."""
    aggregation, choice = search.parameters.aggregation, search.parameters.methods
    if may_aggregate(search.problem, aggregation):
        first = search.first if choice.allows("first") else None
        library_s = 0.0 if first is None or search.problem.groups is not None else first.end_s
        ends_s = [plan.end_s for plan in (search.best, search.quick.plan, first) if plan is not None]
        known = Known(min(ends_s, default=math.inf), library_s)
        yield plan_aggregated(search.problem, search.stage(), aggregation, search.bounds, choice, known)


def _quick(search: Search) -> Iterator[Candidate | None]:
    """The greedy's quick plan from the search for the number of chunks."""
    yield search.quick.plan


def _trees(search: Search) -> Iterator[Candidate | None]:
    """Packed spanning trees, then matchings with roots by bandwidth, where they may be faster than the best."""
    problem, asked, parameters = search.problem, search.asked, search.parameters.trees
    numbers = list(doubled_chunks(problem, parameters))
    problems = [problem] if asked is None else [asked.in_chunks(number) for number in numbers]
    yield plan_on_trees(problems, search.stage(), search.question, search.end_s, parameters)
    if not search.is_over:
        matching = search.parameters.matching
        yield plan_from_roots(problems, search.stage(), search.question, search.end_s, parameters, matching)


def _loaded_trees(search: Search) -> Iterator[Candidate | None]:
    """Trees that load links and ports alike, where they may be faster than the best."""
    problem, asked, parameters = search.problem, search.asked, search.parameters.trees
    numbers = doubled_chunks(problem, parameters)
    problems = (problem,) if asked is None else (asked.in_chunks(number) for number in numbers)
    yield plan_on_loaded_trees(problems, search.stage(), search.question, search.end_s, parameters)


def may_pack_trees(problem: Chunked) -> bool:
    """Whether it is an ALLREDUCE of all ranks, more than two, in which every chunk may take every link."""
    return problem.collective.rank_count > 2 and problem.sketch is None and problem.is_free and problem.sums_for_all


def _matching(search: Search) -> Iterator[Candidate | None]:
    """Matching with restarts: briefly for some numbers of chunks, then for long in the best of them."""
    problem, parameters, bounds = search.problem, search.parameters, search.bounds
    if search.asked is not None:
        quick = best_matching(search.asked, search.quick, search.question, search.stage(), parameters)
        if quick is None:
            return
        problem, bounds = quick.problem, quick.bounds or bounds
        if quick.plan is not None:
            yield quick.plan
            if search.is_over or quick.end_s > parameters.matching.hopeless_factor * search.end_s:
                return
    yield matched_plan(problem, search.stage(), parameters.matching, bounds)


def _is_for_many(problem: Chunked) -> bool:
    """Whether matchings are of use: some chunk is for more than one rank, or is a sum."""
    is_for_one = not problem.collective.reduces and max(map(len, problem.collective.destinations)) <= 1
    return problem.path_slack is None and not is_for_one and may_be_matched(problem)


def _greedy(search: Search) -> Iterator[Candidate | None]:
    """The greedy, unless the best plan chunk by chunk is good enough, or hopeless."""
    problem, known, greedy = search.problem, search.by_chunks, search.parameters.greedy
    if not search.is_alone:
        if known is not None and known.gap is not None and known.gap <= search.options.gap:
            return
        if known is not None and known.end_s > greedy.hopeless_factor * search.end_s:
            return
        is_first = known is None or known is search.quick.plan
        if is_first and problem.routing_binaries <= search.parameters.milp.most_binaries:
            greedy = replace(greedy, rows=greedy.rows_of_small)
    yield plan_greedy(problem, search.stage(1.0), greedy, bounds=search.bounds)


def _every_number(search: Search) -> Iterator[Candidate | None]:
    """All methods in each small number of chunks: what is best in little work may not be the number whose optimum is
    least.
    """
    asked, parameters = search.asked, search.parameters
    if asked is None or search.is_alone or search.options.gap > 0:
        return
    for number in range(1, parameters.chunking.every_number_to + 1):
        problem = asked.in_chunks(number)
        bounds = bounds_of(problem, parameters.bounds, search.stage(), question=search.question)
        if search.is_over:
            return
        if problem.chunks != search.problem.chunks:
            part = replace(search, problem=problem, options=replace(search.options, on_plan=None), first=None,
                           quick=Quick(problem, bounds=bounds), asked=None, best=None, by_chunks=None,
                           class_bounds_s={})  # fmt: skip
            run_methods(methods_for(part), problem, part)
            yield part.best


def _is_tiny(problem: Chunked) -> bool:
    """Whether it is for so few ranks that each number of chunks takes tenths of a second."""
    return problem.collective.rank_count <= _FEW_RANKS and may_be_greedy(problem)


def _milp(search: Search) -> Iterator[Candidate | None]:
    """The MILP: alone, under a sketch, or where nothing else can plan it; with a path slack, where it is small."""
    problem = search.quick.for_milp or search.problem
    is_asked = search.is_alone or "milp" in search.parameters.methods.only
    is_needed = is_asked or problem.sketch is not None or not may_be_greedy(problem)
    if is_needed or problem.routing_binaries <= search.parameters.milp.most_binaries:
        bounds = search.bounds if problem is search.problem else None
        stage = search.stage(1.0) if search.is_alone else search.stage()
        plan = synthesise(problem, stage, search.parameters.milp, bounds)
        yield None if plan is None else replace(plan, problem=problem)


def _any(problem: Chunked) -> bool:
    return True


_AGGREGATED = _Method("aggregated", _any, _aggregated, VARIANTS)
_QUICK = _Method("greedy", _any, _quick)
_TREES = _Method("trees", may_pack_trees, _trees)
_LOADED = _Method("trees", may_load_trees, _loaded_trees)
_MATCHING = _Method("matching", _is_for_many, _matching)
_GREEDY = _Method("greedy", lambda problem: problem.method == "greedy" or may_be_greedy(problem), _greedy)
_EVERY_NUMBER = _Method("every-number", _is_tiny, _every_number, (*VARIANTS, "trees", "matching", "greedy"))
_MILP = _Method("milp", _any, _milp)
NAMES = ("first", *VARIANTS, "trees", "matching", "greedy", "milp", "switched")
"""What parameter files call them."""
