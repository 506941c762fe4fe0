"""The portfolio: every method that is tried for a question, in order, what each costs, and when it is left out.

1. *Sketches* (`--sketch auto` only): all that follows for many sketches, side by side (`sketch/search.py`).
2. *Chunks*, where nobody says how many: the greedy for some numbers of them, 150 orders each (`flow/chunking.py`), some
   tenths of a second and at most 8 s in all. Left out for a collective of one's own, and where there are many sends.
3. *Aggregated sends* and *baselines* (`aggregate/stage.py`): whole buffers in one send, by randomised construction,
   2 s, and what libraries do, 4 s at most. Left out above 128 ranks, and where a sketch orders single chunks. Where one
   of them is proven within the gap, nothing else is tried.
4. *Greedy* (`flow/greedy.py`): matching or rounded flow, then list scheduling; 1 s before the MILP, else what is left.
5. *MILP* (`milp/synthesis.py`): the thesis's three stages, with what is left; for up to 6,000 binaries, and where the
   greedy is neither proven within the gap nor, by its bound, unable to beat the best so far.

A sketch is written for the MILP. So under one the MILP is never left out, and comes before the greedy, which follows
where the MILP isn't proven within the gap. Everything keeps to what the sketch allows. Each method ends with the best
that it has, and `details["provenance"]` says whose plan won, in which variant and in how many chunks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from gapless.encodings.taccl.aggregate.stage import may_aggregate, plan_aggregated
from gapless.encodings.taccl.bounds.bounds import Bounds, bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.chunking import best_chunking
from gapless.encodings.taccl.flow.greedy import may_be_greedy, plan_greedy
from gapless.encodings.taccl.milp.routers import milp_binaries
from gapless.encodings.taccl.milp.synthesis import synthesise
from gapless.encodings.taccl.parameters import Parameters
from gapless.encodings.taccl.problem import Problem
from gapless.encodings.taccl.sketch.search import search_sketches
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import Status
from gapless.system import Plan

__all__ = ["in_chunks", "solve", "solve_chunked"]


def solve(problem: Problem | Chunked, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """The best plan for a question, whose sketch and number of chunks may have to be found first."""
    parameters = parameters or Parameters()
    if isinstance(problem, Chunked):
        return solve_chunked(problem, options, parameters)
    if problem.searches_sketches:
        return search_sketches(problem, options, partial(solve_chunked, parameters=parameters))
    deadline = Deadline(options)
    chunked = in_chunks(problem, options, parameters)
    plan = solve_chunked(chunked, deadline.stage(), parameters)
    return replace(plan, solution=replace(plan.solution, wall_s=deadline.elapsed_s))


def in_chunks(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Chunked:
    """The problem in the chunks that are asked for, or in as many as the greedy does best with."""
    if not problem.is_open:
        return problem.coarsest
    parameters, deadline = parameters or Parameters(), Deadline(options)
    limit_s = min(parameters.chunking.share * deadline.remaining_s, parameters.chunking.all_s)
    return best_chunking(problem, deadline.stage(limit_s), parameters)


def solve_chunked(problem: Chunked, options: SolveOptions, parameters: Parameters) -> Plan:
    """The best plan of the problem's method, or with `auto` of all of them, for chunks that are decided.

    Raises `InputError` where the greedy is asked for, and a solver with it.
    """
    portfolio = _Portfolio(problem, options, parameters, Deadline(options))
    if problem.method == "greedy" and options.solver is not None:
        raise InputError(f"solver: must be left out with method greedy, which takes none; got {options.solver!r}")
    if problem.method == "greedy":
        methods: list[Callable[[_Portfolio], None]] = [_try_greedy]
    elif problem.method == "milp" or options.solver is not None:
        methods = [_try_milp]
    elif problem.sketch is not None or problem.path_slack is not None or not may_be_greedy(problem):
        methods = [_try_aggregated, _try_milp, _try_greedy]
    else:
        methods = [_try_aggregated, _try_greedy, _try_milp]
    for method in methods:
        if not portfolio.is_over or (method is _try_milp and problem.sketch is not None):
            method(portfolio)
    return portfolio.answer()


@dataclass
class _Portfolio:
    """The best plan so far, and the best bound for plans that send chunks one by one inside nodes.

    `by_chunks`: the best of those.
    """

    problem: Chunked
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    best: Plan | None = None
    by_chunks: Plan | None = None

    @cached_property
    def bounds(self) -> Bounds:
        """The bounds of the problem."""
        return bounds_of(self.problem, self.parameters.bounds)

    @property
    def is_alone(self) -> bool:
        """Whether a single method is asked for."""
        return self.problem.method != "auto" or self.options.solver is not None

    @property
    def is_over(self) -> bool:
        """Whether there is a plan, and the time is up or it is proven within the gap of the best of its kind."""
        return self.best is not None and (self.deadline.over or self.is_within_gap(self.best))

    def is_within_gap(self, plan: Plan) -> bool:
        """Whether a plan is proven within the gap of the best of its kind."""
        return plan.solution.gap is not None and plan.solution.gap <= self.options.gap

    @property
    def end_s(self) -> float | None:
        """When the best plan is over."""
        return None if self.best is None else self.best.solution.objective

    def stage(self, share: float = 1.0, at_most_s: float = float("inf")) -> SolveOptions:
        """A part of the time that is left, with reports that go on from the best plan so far."""
        stage = self.deadline.stage(min(share * self.deadline.remaining_s, at_most_s))
        report, since_s, best = stage.on_progress, self.deadline.elapsed_s, self.best
        if report is None or best is None or best.solution.objective is None:
            return stage
        end_s, bound_s = best.solution.objective, best.solution.bound

        def go_on(news: Progress) -> None:
            is_better = news.incumbent is not None and news.incumbent < end_s
            known = news if is_better else replace(news, incumbent=end_s, bound=bound_s)
            report(replace(known, wall_s=since_s + news.wall_s))

        go_on(Progress(0.0, None, None, str(best.details["method"])))
        return replace(stage, on_progress=go_on)

    def offer(self, plan: Plan) -> None:
        """Keep a plan if it is faster than the best; of two of one kind the larger bound holds for both."""
        if plan.details["method"] in ("greedy", "milp"):
            plan = self.by_chunks = plan if self.by_chunks is None else _better(self.by_chunks, plan)
        first, end_s = self.end_s, plan.solution.objective
        if first is None or (end_s is not None and end_s <= first * (1 + 1e-9)):
            self.best = plan
            if self.options.on_plan is not None and end_s is not None:
                self.options.on_plan(end_s, self.answer)

    def answer(self) -> Plan:
        """The best plan, with its provenance."""
        assert self.best is not None  # every list of methods has one that always plans
        plan, details = self.best, dict(self.best.details)
        chunked = plan.problem if isinstance(plan.problem, Chunked) else self.problem
        provenance = {
            "method": details["method"],
            "variant": details.pop("variant", None),
            "chunks": chunked.chunks,
            "sketch": None if self.problem.sketch is None else self.problem.sketch.name,
        }
        solution = replace(plan.solution, wall_s=self.deadline.elapsed_s)
        return replace(plan, solution=solution, details={**details, "provenance": provenance}, problem=chunked)


def _try_aggregated(portfolio: _Portfolio) -> None:
    """Aggregated sends and baselines, in at most a part of the time where others are to follow."""
    aggregation = portfolio.parameters.aggregation
    if may_aggregate(portfolio.problem, aggregation):
        stage = portfolio.stage(aggregation.share)
        plan = plan_aggregated(portfolio.problem, stage, aggregation, portfolio.bounds)
        if plan is not None:
            portfolio.offer(plan)


def _try_greedy(portfolio: _Portfolio) -> None:
    """The greedy; briefly, where the MILP is to follow."""
    problem, bounds = portfolio.problem, portfolio.bounds
    if portfolio.is_alone:
        portfolio.offer(plan_greedy(problem, portfolio.stage(), portfolio.parameters.greedy, bounds=bounds))
    elif may_be_greedy(portfolio.problem) and not (
        portfolio.by_chunks is not None and portfolio.is_within_gap(portfolio.by_chunks)
    ):
        parameters, is_first = portfolio.parameters, portfolio.by_chunks is None
        greedy = parameters.greedy
        brief = is_first and milp_binaries(portfolio.problem) <= parameters.milp.most_binaries
        stage = portfolio.stage(greedy.share, greedy.before_milp_s) if brief else portfolio.stage()
        portfolio.offer(plan_greedy(problem, stage, greedy, bounds=bounds))


def _try_milp(portfolio: _Portfolio) -> None:
    """The MILP; after the greedy, only where it is small and may still be better."""
    known, milp = portfolio.by_chunks, portfolio.parameters.milp
    if known is not None:
        bound_s, end_s = known.solution.bound, portfolio.end_s
        is_beaten = bound_s is not None and end_s is not None and portfolio.best is not known and bound_s >= end_s
        if is_beaten or portfolio.is_within_gap(known):
            return
        if milp_binaries(portfolio.problem) > milp.most_binaries:
            return
    share = 1.0 if known is not None or portfolio.is_alone else milp.share
    portfolio.offer(synthesise(portfolio.problem, portfolio.stage(share), milp, portfolio.bounds))


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
    status = Status.OPTIMAL if relative_gap(end_s, bound_s) == 0 else Status.FEASIBLE
    solution = replace(best.solution, bound=bound_s, status=status)
    return replace(best, solution=solution, details={**best.details, "ratio": end_s / bound_s})
