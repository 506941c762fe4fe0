"""The solver of sparse allreduces: cuts and owners by every method, carried out and compared by what the steps take."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.encodings.oktopk.allreduce.balancing import balancing_moves
from gapless.encodings.oktopk.allreduce.bounds import step_bound_s
from gapless.encodings.oktopk.allreduce.strategies import Candidate, best_candidate, first_candidate
from gapless.encodings.oktopk.comparison import (
    balancing_of,
    drift_of,
    load_ratios,
    received_beside,
    step_picture,
    times_beside_s,
)
from gapless.encodings.oktopk.cuts.boundaries import Boundaries
from gapless.encodings.oktopk.cuts.methods import CutSearch, asked_methods, boundaries_by
from gapless.encodings.oktopk.decision import SparseDecision
from gapless.encodings.oktopk.parameters import DEFAULTS, Parameters
from gapless.encodings.oktopk.problem import Problem
from gapless.errors import InputError
from gapless.io.typed import data_of
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import Solution, claim_of
from gapless.system import Plan

__all__ = ["solve"]

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share; what differs by less is equal."""

Ints = NDArray[np.int64]


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Every method that the question asks for, the cheapest first; the best by the time of its steps."""
    search = _Search(problem, parameters or DEFAULTS, Deadline(options), options)
    choice = search.parameters.methods if problem.method == "auto" else MethodChoice()
    methods = [each for each in asked_methods(problem, choice.only) if choice.allows(each.name)]
    if not methods:
        got = "robust alone" if problem.held_out else "all but robust and milp"
        raise InputError(f"methods: auto tries {got} here, and none of them is left; name one in `only`")
    first = search.first()
    search.report(first)
    if not search.deadline.over:
        run_methods(methods, problem, search, choice)
    return _plan(search, search.best or first)


@dataclass
class _Search(CutSearch):
    """The best candidate so far; bounds by recorded step, and what all ranks get in it, as far as they are known."""

    options: SolveOptions
    best: Candidate | None = None
    bounds_s: dict[int, float] = field(default_factory=dict)
    known: dict[int, Ints] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return self.deadline.over

    @property
    def bound_s(self) -> float:
        """What the objective is at least: of the steps whose bounds are known."""
        bounds_s = [self.bounds_s[step] for step in sorted(self.bounds_s)]
        return max(bounds_s) if self.problem.objective == "worst" else sum(bounds_s)

    def selected(self, step: int) -> Ints:
        """The entries that all ranks get in a recorded step."""
        if step not in self.known:
            self.known[step] = self.problem.selected(self.problem.recorded, step)
        return self.known[step]

    def first(self) -> Candidate:
        """A plan in a time that grows with its messages: Ok-Topk's regions, or even ones, in the first order that
        suits; where the time is over, of the busiest steps alone.
        """
        name = "even" if self.problem.method == "even" else "averaged"
        boundaries = boundaries_by(name, self)
        return first_candidate(self.problem, name, boundaries, self.selected, self.deadline, self.bound)

    def bound(self, step: int) -> None:
        """Note what a step takes at least."""
        recorded, network = self.problem.recorded, self.problem.network
        self.bounds_s[step] = step_bound_s(recorded, step, self.selected(step), network)

    def offer(self, candidate: tuple[str, Boundaries]) -> None:
        """Carry out a method's cuts and owners, and keep them if they are better than the best."""
        made = best_candidate(self.problem, *candidate, self.selected, self.parameters, self.deadline)
        if made is None:
            return
        if self.best is None or made.objective_s < self.best.objective_s * (1 - _ROUNDING):
            self.best = made
            self.report(made)

    def report(self, best: Candidate) -> None:
        """Pass a better plan on, and its progress."""
        options = self.options
        if options.on_plan is not None:
            solution = _solution(self, best)
            options.on_plan(best.objective_s, lambda: _bare(self.problem, solution, best))
        if options.on_progress is not None:
            options.on_progress(Progress(self.deadline.elapsed_s, best.objective_s, self.bound_s, best.method))


def _solution(search: _Search, best: Candidate) -> Solution:
    return claim_of(
        best.objective_s, search.bound_s, search.options, solver=best.method, version=__version__,
        wall_s=search.deadline.elapsed_s, source="traffic",
    )  # fmt: skip


def _plan(search: _Search, best: Candidate) -> Plan:
    problem = search.problem
    if search.deadline.over:
        return _bare(problem, _solution(search, best), best)
    decision = _decision(problem, best)
    details = {
        **_details(problem, best, decision),
        **load_ratios(problem, best.boundaries),
        **step_picture(problem, best.boundaries, best.steps[0]),
        "words": received_beside(problem, best, search.selected(best.steps[0])),
        "baselines_s": times_beside_s(problem, best.steps, search.deadline),
        "balancing": balancing_of(problem, best),
        "drift": drift_of(problem.sets, problem.network),
    }
    return Plan(_solution(search, best), best.schedule, details, decision=decision)


def _bare(problem: Problem, solution: Solution, best: Candidate) -> Plan:
    """A candidate as a plan, without what is shown beside it."""
    decision = _decision(problem, best)
    return Plan(solution, best.schedule, _details(problem, best, decision), decision=decision)


def _decision(problem: Problem, best: Candidate) -> SparseDecision:
    order, gather, balances, bucket = best.strategy
    owners = best.boundaries.owners
    held = best.sizes[best.steps[0]].held(owners).tolist()
    return SparseDecision(
        cuts=tuple(best.boundaries.cuts.tolist()),
        owners=tuple(owners.tolist()),
        order=order,
        gather=gather,
        balances=balances,
        moves=tuple(balancing_moves(held, problem.topology.node_of_device)) if balances else (),
        replayed_steps=tuple(best.steps),
        bucket=bucket,
    )


def _details(problem: Problem, best: Candidate, decision: SparseDecision) -> dict[str, object]:
    step_s = [best.step_s.get(step) for step in range(problem.recorded.steps)]
    return {"method": best.method, **data_of(decision), "step_s": step_s}
