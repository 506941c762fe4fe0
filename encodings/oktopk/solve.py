"""The solver of sparse allreduces: cuts and owners by every method, carried out and compared by what the steps take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.checker import check
from gapless.encodings.oktopk.allreduce.balancing import balancing_moves
from gapless.encodings.oktopk.allreduce.bounds import (
    least_words,
    lower_bound_words,
    step_bound_s,
    upper_bound_words,
    words_of_others,
)
from gapless.encodings.oktopk.allreduce.lowering import received_words
from gapless.encodings.oktopk.allreduce.others import dense_ring, topka, topkdsa
from gapless.encodings.oktopk.allreduce.strategies import Candidate, best_candidate, first_candidate
from gapless.encodings.oktopk.cuts.boundaries import Boundaries, averaged_cuts, even_cuts
from gapless.encodings.oktopk.cuts.loads import received_of, region_counts
from gapless.encodings.oktopk.cuts.methods import CutSearch, asked_methods, boundaries_by
from gapless.encodings.oktopk.drift import drift_of, over_ideal
from gapless.encodings.oktopk.parameters import DEFAULTS, Parameters
from gapless.encodings.oktopk.problem import Problem
from gapless.errors import InputError
from gapless.methods import MethodChoice, run_methods
from gapless.options import Deadline, Progress, SolveOptions
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.solution import Solution, claim_of
from gapless.system import Plan

__all__ = ["solve"]

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share; what differs by less is equal."""

_BINS = 256
"""Of the histogram of entries over the gradient that a plan has for its picture."""

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
        """Tell whoever waits of a better plan."""
        options = self.options
        if options.on_plan is not None:
            solution = _solution(self, best)
            options.on_plan(best.objective_s, lambda: Plan(solution, best.schedule, _cuts(self.problem, best)))
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
        return Plan(_solution(search, best), best.schedule, _cuts(problem, best))
    details = {
        **_cuts(problem, best),
        **_loads(problem, best),
        **_pictured(problem, best),
        "words": _words(problem, best, search.selected(best.steps[0])),
        "baselines_s": _baselines_s(problem, best, search.deadline),
        "drift": drift_of(problem.sets, problem.network),
    }
    return Plan(_solution(search, best), best.schedule, details)


def _cuts(problem: Problem, best: Candidate) -> dict[str, Any]:
    """What a run needs of the plan; `moves`: (from, to, entries) of the first step in the schedule."""
    order, gather, balances = best.strategy
    owners = best.boundaries.owners
    held = best.sizes[best.steps[0]].held(owners).tolist()
    return {
        "method": best.method,
        "cuts": best.boundaries.cuts.tolist(),
        "owners": owners.tolist(),
        "order": order,
        "gather": gather,
        "balances": balances,
        "moves": balancing_moves(held, problem.topology.node_of_device) if balances else [],
        "replayed_steps": list(best.steps),
        "step_s": [best.step_s.get(step) for step in range(problem.recorded.steps)],
    }


def _ratios(sets: IndexSets, cuts: Ints, owners: Ints) -> list[float]:
    """The busiest owner's received entries over k (P - 1) / P, for each step; 1 where nothing is selected."""
    return [float(ratio) for ratio in over_ideal(sets, cuts, owners)]


def _loads(problem: Problem, best: Candidate) -> dict[str, Any]:
    """Received load over the ideal, of this plan and the baselines, in the recorded and the later steps."""
    recorded, later, order = problem.recorded, problem.later, np.arange(problem.sets.ranks)
    rules = {
        "plan": (best.boundaries.cuts, best.boundaries.owners),
        "averaged": (averaged_cuts(recorded, recorded.steps - 1), order),
        "even": (even_cuts(recorded.elements, recorded.ranks), order),
    }
    found: dict[str, Any] = {"recorded_ratio": {}, **({} if later is None else {"later_ratio": {}})}
    for name, (cuts, owners) in rules.items():
        found["recorded_ratio"][name] = max(_ratios(recorded, cuts, owners))
        if later is not None:
            ratios = _ratios(later, cuts, owners)
            found["later_ratio"][name] = {"mean": sum(ratios) / len(ratios), "worst": max(ratios)}
    return found


def _pictured(problem: Problem, best: Candidate) -> dict[str, Any]:
    """Of the first replayed step: what each rank receives, where entries lie, and the share of the union."""
    step, sets = best.steps[0], problem.recorded
    one, order = sets.part(steps=slice(step, step + 1)), np.arange(sets.ranks)
    rules = {
        "plan": (best.boundaries.cuts, best.boundaries.owners),
        "averaged": (averaged_cuts(sets, sets.steps - 1), order),
        "even": (even_cuts(sets.elements, sets.ranks), order),
    }
    loads = {}
    for name, (cuts, owners) in rules.items():
        received = received_of(region_counts(one, cuts), owners)[0]
        loads[name] = received[np.argsort(owners)].tolist()  # by rank
    edges = even_cuts(sets.elements, min(_BINS, sets.elements))
    entries = np.histogram(one.indices, edges)[0]
    return {
        "loads": {**loads, "ideal": float(one.counts.mean()) * (sets.ranks - 1) / sets.ranks},
        "histogram": {"edges": edges.tolist(), "entries": entries.tolist()},
        "fill_in": len(one.union(0)) / sets.elements,
    }


def _words(problem: Problem, best: Candidate, selected: Ints) -> dict[str, float]:
    """Words that the busiest rank receives in the first replayed step, beside other allreduces and the bounds."""
    recorded, step = problem.recorded, best.steps[0]
    count, ranks = float(recorded.counts[step].mean()), recorded.ranks
    return {
        "plan": float(received_words(best.schedule).max()) / len(best.steps),
        **words_of_others(recorded, step),
        "upper bound": upper_bound_words(count, ranks),
        "lower bound": lower_bound_words(float(len(selected)), ranks),
        "least with these overlaps": least_words(recorded, step, selected),
    }


def _baselines_s(problem: Problem, best: Candidate, deadline: Deadline) -> dict[str, float]:
    """What other allreduces take for the replayed steps, by their replays."""
    recorded, network = problem.recorded, problem.network
    found: dict[str, float] = {}
    for name in ("dense ring", "topka", "topkdsa"):
        total_s = 0.0
        for step in best.steps:
            if deadline.over:
                return found
            if name == "dense ring":
                schedules = [dense_ring(recorded.elements, network)]
            else:
                make = topka if name == "topka" else topkdsa
                schedules = [make(recorded, step, network, gather) for gather in ("direct", "ring", "doubling")]
            times_s = [check(one).makespan_s for one in schedules if one is not None]
            if not times_s:
                break
            total_s += min(times_s)
        else:
            found[name] = total_s
    return found
