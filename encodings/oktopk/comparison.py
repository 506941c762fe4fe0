"""What stands beside a plan: loads and words by other rules and allreduces, and drift.

Drift: how the load of boundaries grows with their age, and how often it pays to make new ones. New boundaries cost an
allreduce of a histogram of the index sets, in bins enough for cuts to within a percent. They are used for so many steps
that this cost and the extra load of old boundaries are least in the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from gapless.checker import check
from gapless.encodings.oktopk.allreduce.bounds import (
    WORDS,
    least_words,
    lower_bound_words,
    table_1,
    upper_bound_words,
)
from gapless.encodings.oktopk.allreduce.lowering import lower, received_words
from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.encodings.oktopk.allreduce.others import dense_ring, gtopk, topka, topkdsa
from gapless.encodings.oktopk.allreduce.strategies import Candidate
from gapless.encodings.oktopk.cuts.boundaries import Boundaries, averaged_cuts, even_cuts, exact_boundaries
from gapless.encodings.oktopk.cuts.loads import Loads, received_of, region_counts
from gapless.encodings.oktopk.problem import Problem
from gapless.ir.schedule import Schedule
from gapless.options import Deadline
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = [
    "Balancing", "Drift", "balancing_of", "drift_of", "load_ratios", "over_ideal", "received_beside",
    "renewal_steps", "step_picture", "times_beside_s", "words_of_others",
]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_BINS_A_RANK = 100
"""Bins of the histogram for each region, so that a cut is off by a percent of a region at most."""
_BINS = 256
"""Of the histogram of entries over the gradient that a plan has for its picture."""


def _rules(problem: Problem, boundaries: Boundaries) -> dict[str, tuple[Ints, Ints]]:
    """Cuts and owners of the plan, and of the baselines."""
    recorded, order = problem.recorded, np.arange(problem.sets.ranks)
    return {
        "plan": (boundaries.cuts, boundaries.owners),
        "averaged": (averaged_cuts(recorded, recorded.steps - 1), order),
        "even": (even_cuts(recorded.elements, recorded.ranks), order),
    }


def load_ratios(problem: Problem, boundaries: Boundaries) -> dict[str, dict[str, object]]:
    """Received load over the ideal, of this plan and the baselines, in the recorded and the later steps."""
    recorded, later = problem.recorded, problem.later
    rows: dict[str, dict[str, object]] = {"recorded_ratio": {}, **({} if later is None else {"later_ratio": {}})}
    for name, rule in _rules(problem, boundaries).items():
        rows["recorded_ratio"][name] = float(over_ideal(recorded, *rule).max())
        if later is not None:
            ratios = over_ideal(later, *rule).tolist()
            rows["later_ratio"][name] = {"mean": sum(ratios) / len(ratios), "worst": max(ratios)}
    return rows


def step_picture(problem: Problem, boundaries: Boundaries, step: int) -> dict[str, object]:
    """Of one step: what each rank receives, where entries lie, and the share of the union."""
    sets = problem.recorded
    one, loads = sets.part(steps=slice(step, step + 1)), dict[str, list[int]]()
    for name, (cuts, owners) in _rules(problem, boundaries).items():
        received = received_of(region_counts(one, cuts), owners)[0]
        loads[name] = received[np.argsort(owners)].tolist()  # by rank
    edges = even_cuts(sets.elements, min(_BINS, sets.elements))
    entries = np.histogram(one.indices, edges)[0]
    return {
        "loads": {**loads, "ideal": float(one.counts.mean()) * (sets.ranks - 1) / sets.ranks},
        "histogram": {"edges": edges.tolist(), "entries": entries.tolist()},
        "fill_in": len(one.union(0)) / sets.elements,
    }


def received_beside(problem: Problem, best: Candidate, selected: Ints) -> dict[str, float]:
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


def words_of_others(sets: IndexSets, step: int) -> dict[str, float]:
    """Words that the busiest rank receives, by name; all of the union is gathered where nothing is selected again.

    `topka`: all sets to all ranks (of Gaussiank too, for the sets that its threshold gives). `topkdsa`: even regions,
    then an allgather, dense where that is less (SparCML). `gtopk`: k entries up and down a tree. `dense ring`: every
    element.
    """
    ranks, counts = sets.ranks, sets.counts[step]
    cuts = even_cuts(sets.elements, ranks)
    region = region_counts(sets.part(steps=slice(step, step + 1)), cuts)
    union = np.diff(np.searchsorted(sets.union(step), cuts))
    dense = np.diff(cuts)
    first = WORDS * received_of(region, np.arange(ranks))[0]
    gathered = min(WORDS * int(union.sum()), sets.elements)
    own = WORDS * union if WORDS * int(union.sum()) <= sets.elements else dense
    return {
        "topka": float(WORDS * (counts.sum() - counts.min())),
        "topkdsa": float((first + gathered - own).max()),
        "gtopk": table_1("gTopk", sets.elements, int(counts.max()), ranks).words_most,
        "dense ring": table_1("dense", sets.elements, int(counts.max()), ranks).words_most,
    }


class Balancing(TypedDict):
    """The first replayed step with its sums balanced before they are gathered, and not, by replays.

    `largest_over_mean`: of the sums that ranks hold; Ok-Topk balances where it is above 4.
    """

    largest_over_mean: float
    balanced_s: float
    direct_s: float


def balancing_of(problem: Problem, best: Candidate) -> Balancing:
    """Both, of the plan's order and gather."""
    order, gather, _, bucket = best.strategy
    sizes, owners = best.sizes[best.steps[0]], best.boundaries.owners
    held, times_s = sizes.held(owners), list[float]()
    for balances in (True, False):
        schedule = lower(sizes, owners, problem.network, order, gather, balances, bucket)
        assert schedule is not None  # the plan's own gather suits the topology
        times_s.append(check(schedule).makespan_s)
    return {
        "largest_over_mean": float(held.max()) / float(held.mean()) if held.any() else 1.0,
        "balanced_s": times_s[0], "direct_s": times_s[1],
    }  # fmt: skip


def times_beside_s(problem: Problem, steps: Sequence[int], deadline: Deadline) -> dict[str, float]:
    """What other allreduces take for the replayed steps, by their replays; those that there was time for."""
    recorded, network, gathers = problem.recorded, problem.network, ("direct", "ring", "doubling")
    made: dict[str, Callable[[int], list[Schedule | None]]] = {
        "dense ring": lambda step: [dense_ring(recorded.elements, network)],
        "topka": lambda step: [topka(recorded, step, network, gather) for gather in gathers],
        "topkdsa": lambda step: [topkdsa(recorded, step, network, gather) for gather in gathers],
    }
    if recorded.values is not None:
        made["gtopk"] = lambda step: [gtopk(recorded, step, network)]
    times: dict[str, float] = {}
    for name, schedules in made.items():
        total_s = 0.0
        for step in steps:
            if deadline.over:
                return times
            times_s = [check(one).makespan_s for one in schedules(step) if one is not None]
            if not times_s:
                break
            total_s += min(times_s)
        else:
            times[name] = total_s
    return times


class Drift(TypedDict):
    """Load over the ideal by the boundaries' age in steps, of exact and of averaged ones, and how often to renew them.

    `exact`, `averaged`: by age, from 0, the mean over all steps that are so much older than the boundaries.
    `renewal_s`: what new ones cost. `renewal_steps`: 0 where a single step was recorded.
    """

    exact: list[float]
    averaged: list[float]
    renewal_s: float
    renewal_steps: int


def drift_of(sets: IndexSets, network: Network) -> Drift:
    """The drift over all steps of index sets."""
    owners = np.arange(sets.ranks)
    ideal = sets.counts.mean(axis=1) * (sets.ranks - 1) / sets.ranks
    sums = {name: np.zeros(sets.steps) for name in ("exact", "averaged")}
    for step in range(sets.steps):
        rule = averaged_cuts(sets, step)
        least = exact_boundaries(Loads.of(sets, [[step]]), owners, start=rule).cuts
        for name, cuts in (("exact", least), ("averaged", rule)):
            ratios = over_ideal(sets, cuts, owners)
            sums[name][: sets.steps - step] += ratios[step:]
    exact, averaged = ((total / np.arange(sets.steps, 0, -1)).tolist() for total in sums.values())
    words = _BINS_A_RANK * sets.ranks
    steps, alpha_s = 2 * (sets.ranks - 1), float(network.topology.alpha_s.max())
    cost_s = steps * (alpha_s + 4 * words / sets.ranks * float(network.receiving_s_per_byte.max()))
    entry_s = ENTRY_BYTES * float(ideal.mean()) * float(network.receiving_s_per_byte.max())
    renewal = renewal_steps(exact, cost_s / entry_s) if sets.steps > 1 and entry_s > 0 else 0
    return {"exact": exact, "averaged": averaged, "renewal_s": cost_s, "renewal_steps": renewal}


def over_ideal(sets: IndexSets, cuts: Ints, owners: Ints) -> Floats:
    """What the busiest owner receives of each step over the ideal k (P - 1) / P; 1 where nothing is selected."""
    ideal = sets.counts.mean(axis=1) * (sets.ranks - 1) / sets.ranks
    received = received_of(region_counts(sets, cuts), owners).max(axis=1)
    ratios: Floats = np.divide(received, ideal, out=np.ones(sets.steps), where=ideal > 0)
    return ratios


def renewal_steps(ratio_by_age: list[float], cost: float) -> int:
    """For how many steps boundaries are best used: the least mean of their cost and of what the steps take.

    `cost`: of new boundaries, in the unit of the ratios. At most as many steps as there are ages.

    >>> renewal_steps([1.0, 1.1, 1.2, 1.9], 0.3)
    3
    """
    totals = cost + np.cumsum(ratio_by_age)
    return int(np.argmin(totals / np.arange(1, len(totals) + 1))) + 1
