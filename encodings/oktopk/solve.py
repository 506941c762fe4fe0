"""The solver of sparse allreduces: cuts and owners by every method, carried out and compared by what the steps take."""

from __future__ import annotations

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
from gapless.encodings.oktopk.allreduce.strategies import Judged, judged
from gapless.encodings.oktopk.cuts.boundaries import averaged_cuts, even_cuts
from gapless.encodings.oktopk.cuts.loads import received_of, region_counts
from gapless.encodings.oktopk.cuts.methods import SEARCHES
from gapless.encodings.oktopk.drift import drift_of, over_ideal
from gapless.encodings.oktopk.parameters import DEFAULTS, Parameters
from gapless.encodings.oktopk.problem import Problem
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
    deadline, parameters = Deadline(options), parameters or DEFAULTS
    recorded = problem.recorded
    selected = [problem.selected(recorded, step) for step in range(recorded.steps)]
    first = _first(problem, selected, parameters)
    _report(problem, first, None, options, deadline)
    if deadline.remaining_s <= 0:
        return _plan(problem, first, None, selected, options, deadline)
    bounds_s = [step_bound_s(recorded, step, selected[step], problem.network) for step in range(recorded.steps)]
    bound_s = max(bounds_s) if problem.objective == "worst" else sum(bounds_s)
    best: Judged | None = None
    for name in _methods(problem):
        if best is not None and deadline.over:
            break
        found = judged(problem, name, SEARCHES[name](problem, parameters, deadline), selected, parameters, deadline)
        if best is None or found.objective_s < best.objective_s * (1 - _ROUNDING):
            best = found
            _report(problem, best, bound_s, options, deadline)
    assert best is not None
    return _plan(problem, best, bound_s, selected, options, deadline)


def _first(problem: Problem, selected: list[Ints], parameters: Parameters) -> Judged:
    """A plan in a time that grows with its messages: Ok-Topk's regions, or even ones, in the first order that suits."""
    name = "even" if problem.method == "even" else "averaged"
    unlimited = Deadline(SolveOptions())
    boundaries = SEARCHES[name](problem, parameters, unlimited)
    return judged(problem, name, boundaries, selected, parameters, unlimited, is_quick=True)


def _methods(problem: Problem) -> tuple[str, ...]:
    """For recorded steps everything; where later ones are set apart to be judged on, what is made for later ones."""
    if problem.method != "auto":
        return (problem.method,)
    return ("robust",) if problem.held_out else ("averaged", "even", "exact", "joint")


def _report(problem: Problem, best: Judged, bound_s: float | None, options: SolveOptions, deadline: Deadline) -> None:
    if options.on_plan is not None:
        solution = _solution(best, bound_s, options, deadline)
        options.on_plan(best.objective_s, lambda: Plan(solution, best.schedule, _cuts(problem, best)))
    if options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, best.objective_s, bound_s, best.method))


def _solution(best: Judged, bound_s: float | None, options: SolveOptions, deadline: Deadline) -> Solution:
    return claim_of(
        best.objective_s, bound_s, options, solver=best.method, version=__version__, wall_s=deadline.elapsed_s,
        source="traffic",
    )  # fmt: skip


def _plan(
    problem: Problem,
    best: Judged,
    bound_s: float | None,
    selected: list[Ints],
    options: SolveOptions,
    deadline: Deadline,
) -> Plan:
    if deadline.over:
        return Plan(_solution(best, bound_s, options, deadline), best.schedule, _cuts(problem, best))
    details = {
        **_cuts(problem, best),
        **_loads(problem, best),
        **_pictured(problem, best),
        "words": _words(problem, best, selected),
        "baselines_s": _baselines_s(problem, best, deadline),
        "drift": drift_of(problem.sets, problem.network),
    }
    return Plan(_solution(best, bound_s, options, deadline), best.schedule, details)


def _cuts(problem: Problem, best: Judged) -> dict[str, Any]:
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
        "step_s": list(best.step_s),
    }


def _ratios(sets: IndexSets, cuts: Ints, owners: Ints) -> list[float]:
    """The busiest owner's received entries over k (P - 1) / P, for each step; 1 where nothing is selected."""
    return [float(ratio) for ratio in over_ideal(sets, cuts, owners)]


def _loads(problem: Problem, best: Judged) -> dict[str, Any]:
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


def _pictured(problem: Problem, best: Judged) -> dict[str, Any]:
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


def _words(problem: Problem, best: Judged, selected: list[Ints]) -> dict[str, float]:
    """Words that the busiest rank receives in the first replayed step, beside other allreduces and the bounds."""
    recorded, step = problem.recorded, best.steps[0]
    count, ranks = float(recorded.counts[step].mean()), recorded.ranks
    return {
        "plan": float(received_words(best.schedule).max()) / len(best.steps),
        **words_of_others(recorded, step),
        "upper bound": upper_bound_words(count, ranks),
        "lower bound": lower_bound_words(float(len(selected[step])), ranks),
        "least with these overlaps": least_words(recorded, step, selected[step]),
    }


def _baselines_s(problem: Problem, best: Judged, deadline: Deadline) -> dict[str, float]:
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
