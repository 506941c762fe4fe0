"""The portfolio: every method that is tried for a question, in order, what each costs, and when it is left out.

0. *First plan* (`flow/first.py`): the libraries' algorithms, and shortest paths or on many ranks one matching: at once,
   by counted work, so that whenever the time is up there is an answer that no library beats.
1. *Sketches* (`--sketch auto` only): all that follows for many sketches, side by side (`sketch/search.py`).
2. *Chunks*, where nobody says how many: the greedy for some numbers of them, 150 orders each (`flow/chunking.py`), some
   tenths of a second each; few first, then finer ones as long as the bound says that something is left to gain, but
   none that its own bound rules out. The best of these plans counts. Left out for a collective of one's own, and where
   there are many sends.
3. *Aggregated sends* and *baselines* (`aggregate/stage.py`): whole buffers in one send, by randomised construction,
   2 s, and what libraries do, 4 s at most, first. Left out above 128 ranks, and where a sketch orders single chunks.
4. *Packed trees* (`flow/spanning_trees.py`): an ALLREDUCE up and down trees that load links alike, some 2 s. Left
   out under a sketch, and where loads and the longest tree promise nothing better than the best.
5. *Matching with restarts* (`flow/restarts.py`): in the numbers of chunks around the one found, tenths of a second
   each, then more work in the best of them. Left out where each chunk is for one rank, whose flow the greedy rounds.
6. *Greedy* (`flow/greedy.py`): matching or rounded flow, then list scheduling; 1 s on small problems, else 5 s. Left
   out where its quick plan is far behind the best.
7. *MILP* (`milp/synthesis.py`): the thesis's three stages, some 15 s at most, in the largest number of chunks that is
   small enough for it. Without a sketch it runs only where it is asked for by name, with a path slack where it is
   small, or where the greedy can't plan the collective: otherwise it was the only best method of no question.

Once a plan is proven within the gap of the question's bound, nothing else is tried: by the bounds that are worked out
at once, or else by all of them. These times are what the work takes that `parameters.py` allows: no method looks at the
clock, but to end where the time limit does. Of a limit, a method takes at most a part where others follow.

A sketch is written for the MILP. So under one it is first, unless bounds say that no plan chunk by chunk can be proven
within the gap; then aggregated sends are. Matching and greedy follow. Everything keeps to what the sketch allows. Each
method ends with the best that it has, and `details["provenance"]` says whose plan won, in which variant and in how many
chunks.

The bound of the answer is for the question: for any chunking, grouping and routing, on all links. A sketch or a number
of chunks keeps the search to narrower classes of plans, whose bounds stand beside it (`bounds/classes.py`); the search
ends where they leave no more than the gap. A method knows bounds for its own class. They end its search and say whether
the next method can do better; `details["bounds_s"]` has them by class. What the question without its sketch would come
to is tried at the end, in little work (`narrowing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of, class_name
from gapless.encodings.taccl.bounds.classes import BY_CHUNKS, QuestionBounds
from gapless.encodings.taccl.chunked import Chunked, claim
from gapless.encodings.taccl.flow.chunking import Quick, best_chunking, best_matching
from gapless.encodings.taccl.flow.first import first_plan, least_limit_s
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.flow.restarts import matched_plan, may_be_matched
from gapless.encodings.taccl.flow.spanning_trees import doubled_chunks, may_pack_trees, plan_on_trees
from gapless.encodings.taccl.milp.routers import milp_binaries
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.narrowing import wider_question, with_wider
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.search import search_sketches
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status, StopReason
from gapless.system import Plan

__all__ = ["in_chunks", "solve", "solve_chunked"]

_GUARD = 0.5
"""Where others follow, a method takes at most this part of the time that is left."""


def solve(problem: Problem | Chunked, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan for a question, whose sketch and number of chunks may have to be found first."""
    parameters = parameters or Parameters()
    if isinstance(problem, Chunked):
        return solve_chunked(problem, options, parameters)
    if problem.searches_sketches:
        return search_sketches(problem, options, parameters, first_plan, solve_chunked)
    deadline = Deadline(options)
    _check_solver(problem.coarsest, options)
    first = first_plan(problem.coarsest, deadline)
    if first is None and deadline.has_struck:
        return _no_plan(problem.coarsest, options, deadline)
    bounds = _bounds(problem.coarsest, deadline, parameters)
    quick = _quick_plan(problem, bounds, deadline.stage(_GUARD * deadline.remaining_s), parameters)
    classes = QuestionBounds(bounds, wider_question(problem).coarsest)
    asked = problem if problem.is_open else None
    plan = _portfolio(quick, first, classes, deadline, options, parameters, asked)
    return with_wider(plan, problem, classes.on_all_links, options, parameters, deadline)


def in_chunks(
    problem: Problem, options: SolveOptions, parameters: Parameters | None = None, for_milp: bool = False
) -> Chunked:
    """The problem in the chunks that are asked for, or in as many as the greedy does best with, or the MILP takes."""
    parameters = parameters or Parameters()
    quick = _quick_plan(problem, _bounds(problem.coarsest, Deadline(options), parameters), options, parameters)
    return (quick.for_milp if for_milp else None) or quick.problem


def _quick_plan(problem: Problem, bounds: Bounds, options: SolveOptions, parameters: Parameters) -> Quick:
    """The problem in so many chunks, with what there is of a plan for them. `bounds`: of the question."""
    if not problem.is_open:
        return Quick(problem.coarsest)
    quick = best_chunking(problem, bounds, options, parameters)
    return quick if problem.path_slack is None else Quick(quick.problem, for_milp=quick.for_milp)


def _bounds(problem: Chunked, deadline: Deadline, parameters: Parameters) -> Bounds:
    """The bounds of a question, over all paths."""
    over_all_paths = problem if problem.path_slack is None else replace(problem, path_slack=None)
    return bounds_of(over_all_paths, parameters.bounds, deadline.stage())


def solve_chunked(problem: Chunked, options: SolveOptions, parameters: Parameters) -> Plan:
    """The best plan of the problem's method, or with `auto` of all of them, for chunks that are decided.

    Raises `InputError` where the greedy is asked for, and a solver with it.
    """
    deadline = Deadline(options)
    _check_solver(problem, options)
    first = first_plan(problem, deadline)
    if first is None and deadline.has_struck:
        return _no_plan(problem, options, deadline)
    bounds = _bounds(problem, deadline, parameters)
    return _portfolio(Quick(problem, bounds=bounds), first, QuestionBounds(bounds), deadline, options, parameters)


def _no_plan(problem: Chunked, options: SolveOptions, deadline: Deadline) -> Plan:
    """That there is no time for a plan, and about how much there would have to be."""
    details = {"least_time_limit_s": math.ceil(least_limit_s(problem))}
    return Plan(claim(None, 0.0, "", "", options, deadline), None, details, problem=problem)


def _check_solver(problem: Chunked, options: SolveOptions) -> None:
    if problem.method == "greedy" and options.solver is not None:
        raise InputError(f"solver: must be left out with method greedy, which takes none; got {options.solver!r}")


def _portfolio(
    quick: Quick,
    first: Plan | None,
    classes: QuestionBounds,
    deadline: Deadline,
    options: SolveOptions,
    parameters: Parameters,
    asked: Problem | None = None,
) -> Plan:
    """The methods in turn, after a first plan and, of the greedy, a quick one.

    `classes`: the bounds of the question. `asked`: where nobody has said into how many chunks data are cut.
    """
    if quick.problem.method == "milp" or options.solver is not None:
        quick = Quick(quick.for_milp or quick.problem, bounds=None if quick.for_milp else quick.bounds)
    problem = quick.problem
    portfolio = _Portfolio(problem, options, parameters, deadline, first, quick, classes, asked)
    portfolio.announce(first)
    portfolio.note_bound(classes.asked.quick_asked_s)
    portfolio.widest_s = classes.widest
    if problem.method == "greedy":
        methods: list[Callable[[_Portfolio], None]] = [_take_quick, _try_greedy]
    elif problem.method == "milp" or options.solver is not None:
        methods = [_try_milp]
    elif problem.sketch is not None or problem.path_slack is not None or not may_be_greedy(problem):
        methods = [_try_milp, _try_aggregated] if portfolio.milp_may_do else [_try_aggregated, _try_milp]
        methods += [_try_matching, _try_greedy]
    else:
        methods = [_try_aggregated, _take_quick, _try_trees, _try_matching, _try_greedy]
    for method in methods:
        if not portfolio.is_over:
            method(portfolio)
    portfolio.prove()
    portfolio.note_classes()
    return portfolio.answer()


@dataclass
class _Portfolio:
    """The best plan so far, and the bound of what was asked, 0 as long as there is none.

    `first`: the plan to fall back on; `quick`: likewise, of the greedy. `classes`: the bounds that hold for what was
    asked, and for the question without what narrows it. `by_chunks`: the best of the plans chunk by chunk, with a bound
    for those. `class_bounds_s`: by class. `widest_s`: for any plan of the question, with the bound's name.
    """

    problem: Chunked
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    first: Plan | None
    quick: Quick
    classes: QuestionBounds
    asked: Problem | None
    bound_s: float = 0.0
    widest_s: tuple[float, str] = (0.0, "")
    best: Plan | None = None
    by_chunks: Plan | None = None
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
    def milp_may_do(self) -> bool:
        """Whether a plan chunk by chunk may be proven within the gap of what was asked."""
        return self.question.quick_asked_s >= (1 - self.options.gap) * self.bounds.chunk_by_chunk_s

    @property
    def is_alone(self) -> bool:
        """Whether a single method is asked for."""
        return self.problem.method != "auto" or self.options.solver is not None

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and the time is up or it is proven within the gap."""
        if self.best is None:
            return self.first is not None and self.deadline.over
        return self.deadline.over or self.prove()

    def prove(self) -> bool:
        """Whether the best plan is proven within the gap of what was asked: by the quick bounds, or by all of them."""
        if not self._is_proven:
            self.note_bound(self.question.asked_s)
        return self._is_proven

    @property
    def _is_proven(self) -> bool:
        gap = relative_gap(self.end_s, self.bound_s)
        return gap is not None and gap <= self.options.gap

    def note_bound(self, bound_s: float) -> None:
        """A bound of the question."""
        self.bound_s = max(self.bound_s, bound_s)
        self.class_bounds_s[self.question.asked_class] = self.bound_s

    def note_classes(self) -> None:
        """The bounds of wider classes than what was asked, now that the search has ended."""
        self.widest_s = self.classes.widest
        self.classes.has_ended = not self.deadline.over

    def is_within_gap(self, plan: Plan) -> bool:
        """Whether a plan is proven within the gap of the best of its kind."""
        return plan.solution.gap is not None and plan.solution.gap <= self.options.gap

    @property
    def end_s(self) -> float | None:
        """When the best plan is over."""
        return None if self.best is None else self.best.solution.objective

    def stage(self, share: float = 1.0) -> SolveOptions:
        """A part of the time that is left, with reports that go on from the best plan so far."""
        stage = replace(self.deadline.stage(share * self.deadline.remaining_s), on_plan=self._on_plan())
        report, since_s, bound_s = stage.on_progress, self.deadline.elapsed_s, self.widest_s[0] or None
        if report is None:
            return stage
        known = [plan.solution.objective for plan in (self.best, self.first) if plan is not None]

        def go_on(news: Progress) -> None:
            found_s = min((one for one in (news.incumbent, *known) if one is not None), default=None)
            report(replace(news, incumbent=found_s, bound=bound_s, wall_s=since_s + news.wall_s))

        if self.best is not None:
            go_on(Progress(0.0, None, None, str(self.best.details["method"])))
        return replace(stage, on_progress=go_on)

    def _on_plan(self) -> Callable[[float, Callable[[], Plan]], None] | None:
        """Takes what a method finds before its end, and offers it as the answer to the question."""
        on_plan = self.options.on_plan
        return None if on_plan is None else lambda end_s, make: on_plan(end_s, lambda: self.answer(make()))

    def offer(self, plan: Plan) -> None:
        """Keep a plan if it is faster than the best; of two of one kind the larger bound holds for both."""
        if plan.schedule is None:
            return
        self._note_class(plan)
        if plan.details["method"] in BY_CHUNKS:
            known = self.by_chunks
            if known is not None and known.problem is plan.problem:
                plan = _better(known, plan)
            if known is None or _end_s(plan) <= _end_s(known):
                self.by_chunks = plan
        first, end_s = self.end_s, plan.solution.objective
        if first is None or (end_s is not None and end_s < first * (1 - 1e-9)):
            self.best = plan
            self.announce(plan)

    def _note_class(self, plan: Plan) -> None:
        """A method's bound is one for plans of its kind, in as many chunks."""
        solved = plan.problem if isinstance(plan.problem, Chunked) else self.problem
        is_grouped = plan.details["method"] not in BY_CHUNKS
        name, bound_s = class_name(solved, is_grouped), plan.solution.bound
        if bound_s is not None:
            self.class_bounds_s[name] = max(bound_s, self.bound_s, self.class_bounds_s.get(name, 0.0))

    def announce(self, plan: Plan | None) -> None:
        """Report a plan that may be the answer if nothing better is found."""
        end_s = None if plan is None else plan.solution.objective
        if self.options.on_plan is not None and end_s is not None:
            self.options.on_plan(end_s, self.answer)

    def answer(self, news: Plan | None = None) -> Plan:
        """The best plan, with the bound of the question, and its provenance. `news`: of a method that goes on."""
        found = [plan for plan in (self.best, self.quick.plan, news) if plan is not None]
        if self.first is not None and (not self.is_alone or not found or self.deadline.has_struck):
            found.append(self.first)
        if not found:
            return _no_plan(self.problem, self.options, self.deadline)
        plan = min(found, key=_end_s)  # of equal ones the best of the methods
        details = dict(plan.details)
        chunked = plan.problem if isinstance(plan.problem, Chunked) else self.problem
        provenance = {
            "method": details["method"],
            "variant": details.pop("variant", None),
            "chunks": chunked.chunks,
            "sketch": None if self.problem.sketch is None else self.problem.sketch.name,
        }
        claimed, end_s, (widest_s, source) = plan.solution, _end_s(plan), self.widest_s
        solution = claim(
            end_s, widest_s, claimed.solver, claimed.version, self.options, self.deadline, source,
            self.classes.narrower(plan, chunked, self.class_bounds_s, self.is_alone), confined=self.asked is None,
        )  # fmt: skip
        if self.options.stop.is_set() and solution.status is Status.FEASIBLE:
            solution = replace(solution, stop_reason=StopReason.INTERRUPTED)
        details |= {
            "ratio": end_s / widest_s if widest_s else None,
            "bounds_s": dict(self.class_bounds_s),
            "bound_sources_s": details["bounds_s"],
            "provenance": provenance,
        }
        return replace(plan, solution=solution, details=details, problem=chunked)


def _try_aggregated(portfolio: _Portfolio) -> None:
    """Aggregated sends and baselines."""
    aggregation = portfolio.parameters.aggregation
    if may_aggregate(portfolio.problem, aggregation):
        stage = portfolio.stage(_GUARD)
        plan = plan_aggregated(portfolio.problem, stage, aggregation, portfolio.bounds)
        if plan is not None:
            portfolio.offer(plan)


def _take_quick(portfolio: _Portfolio) -> None:
    """The greedy's quick plan from the search for the number of chunks."""
    if portfolio.quick.plan is not None:
        portfolio.offer(portfolio.quick.plan)


def _try_matching(portfolio: _Portfolio) -> None:
    """Matching with restarts: briefly for some numbers of chunks, then for long in the best of them."""
    problem, parameters = portfolio.problem, portfolio.parameters
    if problem.path_slack is not None or not may_be_matched(problem) or _goes_to_one(problem):
        return
    bounds = portfolio.bounds
    if portfolio.asked is not None:
        quick = best_matching(portfolio.asked, problem.chunks, portfolio.question, portfolio.stage(_GUARD), parameters)
        if quick is None or quick.plan is None:
            return
        portfolio.offer(quick.plan)
        problem, bounds = quick.problem, quick.bounds or bounds
        is_behind = quick.end_s > parameters.matching.hopeless_factor * (portfolio.end_s or math.inf)
        if portfolio.is_over or is_behind:
            return
    plan = matched_plan(problem, portfolio.stage(_GUARD), parameters.matching, bounds)
    if plan is not None:
        portfolio.offer(plan)


def _try_trees(portfolio: _Portfolio) -> None:
    """Packed spanning trees, where they may be faster than the best."""
    problem, asked, parameters = portfolio.problem, portfolio.asked, portfolio.parameters
    if not may_pack_trees(problem):
        return
    problems = [problem] if asked is None else map(asked.in_chunks, doubled_chunks(problem, parameters.trees))
    limit_s = portfolio.end_s or math.inf
    plan = plan_on_trees(problems, portfolio.stage(_GUARD), portfolio.question, limit_s, parameters.trees)
    if plan is not None:
        portfolio.offer(plan)


def _goes_to_one(problem: Chunked) -> bool:
    """Whether each chunk is for one rank, and none is a sum."""
    return not problem.collective.reduces and max(map(len, problem.collective.destinations)) <= 1


def _try_greedy(portfolio: _Portfolio) -> None:
    """The greedy; briefly, where the MILP is to follow."""
    problem, bounds, known = portfolio.problem, portfolio.bounds, portfolio.by_chunks
    greedy, milp = portfolio.parameters.greedy, portfolio.parameters.milp
    if portfolio.is_alone:
        portfolio.offer(plan_greedy(problem, portfolio.stage(), greedy, bounds=bounds))
        return
    if not may_be_greedy(problem) or (known is not None and portfolio.is_within_gap(known)):
        return
    if known is not None and _end_s(known) > greedy.hopeless_factor * (portfolio.end_s or math.inf):
        return
    is_first = known is None or known.details["method"] == "greedy"
    if is_first and milp_binaries(problem) <= milp.most_binaries:
        greedy = replace(greedy, rows=greedy.rows_of_small)
    portfolio.offer(plan_greedy(problem, portfolio.stage(), greedy, bounds=bounds))


def _try_milp(portfolio: _Portfolio) -> None:
    """The MILP: alone, under a sketch, or where nothing else can plan it; with a path slack, where it is small."""
    problem = portfolio.quick.for_milp or portfolio.problem
    is_needed = portfolio.is_alone or problem.sketch is not None or not may_be_greedy(problem)
    if not is_needed and milp_binaries(problem) > portfolio.parameters.milp.most_binaries:
        return
    bounds = portfolio.bounds if problem is portfolio.problem else None
    stage = portfolio.stage(1.0 if portfolio.is_alone else _GUARD)
    plan = synthesise(problem, stage, portfolio.parameters.milp, bounds)
    portfolio.offer(replace(plan, problem=problem))


def _end_s(plan: Plan) -> float:
    """When a plan is over, inf for none."""
    return math.inf if plan.solution.objective is None else plan.solution.objective


def _better(one: Plan, other: Plan) -> Plan:
    """The faster of two plans (of equals the other), with the larger of their bounds, which both hold for both."""
    ends = [plan.solution.objective for plan in (one, other)]
    bounds = [plan.solution.bound for plan in (one, other)]
    if ends[0] is None or bounds[0] is None:
        return other
    if ends[1] is None or bounds[1] is None:
        return one
    best, end_s = (one, ends[0]) if ends[0] < ends[1] * (1 - 1e-9) else (other, ends[1])
    bound_s = min(max(bounds[0], bounds[1]), end_s)
    known = {**one.details.get("bounds_s", {}), **other.details.get("bounds_s", {})}
    return replace(best, solution=replace(best.solution, bound=bound_s), details={**best.details, "bounds_s": known})
