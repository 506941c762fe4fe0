"""The methods: each makes cuts and owners for the recorded steps; what they are worth is for the replay to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.lowering import ENTRY_BYTES
from gapless.encodings.oktopk.cuts.boundaries import (
    Boundaries,
    averaged_cuts,
    even_cuts,
    exact_boundaries,
    matched_owners,
    owner_costs,
)
from gapless.encodings.oktopk.cuts.joint import joint_search
from gapless.encodings.oktopk.cuts.loads import Loads, received_of, region_counts
from gapless.encodings.oktopk.cuts.milp import solve_milp
from gapless.encodings.oktopk.parameters import Parameters
from gapless.encodings.oktopk.problem import Problem
from gapless.options import Deadline
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["SEARCHES"]

Floats = NDArray[np.float64]


def even(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Regions of equally many elements."""
    ranks = problem.sets.ranks
    return Boundaries(even_cuts(problem.sets.elements, ranks), np.arange(ranks), 0.0)


def averaged(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Ok-Topk's: averages of the ranks' quantiles, of the last recorded step."""
    return _averaged(problem, problem.recorded)


def exact(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Exact for an order of owners; then owners are matched to regions and cuts found again, while that helps; so from
    several orders.
    """
    return _alternated(problem, Loads.of(problem.recorded), parameters, deadline)


def robust(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """For later steps: exact for the sum over the recorded steps, or over their last half or quarter, or the averaged
    rule; owners in order.

    Single steps are noisy, and old ones out of date. So each rule is tried on the last three quarters of the steps, one
    after another, made from those before: the one with the least load there, in the mean, is made from all.
    """
    recorded, order = problem.recorded, np.arange(problem.sets.ranks)
    tried, totals = max(1, recorded.steps // 4), np.zeros(len(_RULES))
    for first in range(recorded.steps - tried, max(0, recorded.steps - 4 * tried), -tried):
        if deadline.over:
            break
        before, after = recorded.part(steps=slice(0, first)), recorded.part(steps=slice(first, first + tried))
        for number, rule in enumerate(_RULES):
            received = received_of(region_counts(after, rule(problem, before).cuts), order)
            totals[number] += (received * problem.network.receiving_s_per_byte).max(axis=1).sum()
    return _RULES[int(np.argmin(totals))](problem, recorded)


def _of_sum(problem: Problem, sets: IndexSets, parts: int) -> Boundaries:
    """Exact for the last of so many equal parts of the steps, added up."""
    steps = max(1, sets.steps // parts)
    loads = Loads.of(sets.part(steps=slice(sets.steps - steps, None)), [range(steps)])
    cost = ENTRY_BYTES * problem.network.receiving_s_per_byte
    return exact_boundaries(loads, np.arange(sets.ranks), cost, averaged_cuts(sets, sets.steps - 1))


def _averaged(problem: Problem, sets: IndexSets) -> Boundaries:
    return Boundaries(averaged_cuts(sets, sets.steps - 1), np.arange(sets.ranks), 0.0)


_RULES: tuple[Callable[[Problem, IndexSets], Boundaries], ...]
_RULES = (*(partial(_of_sum, parts=parts) for parts in (1, 2, 4)), _averaged)


def joint(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Received and sent load together, from the exact boundaries."""
    loads = Loads.of(problem.recorded)
    start = _alternated(problem, loads, parameters, deadline)
    network = problem.network
    costs = (ENTRY_BYTES * network.receiving_s_per_byte, ENTRY_BYTES * network.sending_s_per_byte)
    return joint_search(loads, start, *costs, parameters.joint_rounds, deadline)


def milp(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """The MILP over both loads and over owners, from what the search over both found; for few ranks."""
    start = joint(problem, parameters, deadline)
    network, stage = problem.network, replace(deadline.stage(), on_plan=None, on_point=None)
    costs = (ENTRY_BYTES * network.receiving_s_per_byte, ENTRY_BYTES * network.sending_s_per_byte)
    return solve_milp(Loads.of(problem.recorded), start, *costs, parameters.milp_bins, stage).boundaries


def _alternated(problem: Problem, loads: Loads, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """The best of several beginnings: the ranks in order, and in turn from another first one."""
    cost, recorded, ranks = ENTRY_BYTES * problem.network.receiving_s_per_byte, problem.recorded, loads.ranks
    order, begins = np.arange(ranks), max(1, min(parameters.owner_regions // (ranks * loads.steps), ranks))
    best = exact_boundaries(loads, order, cost, averaged_cuts(recorded, recorded.steps - 1))
    best = _rematched(loads, best, cost, parameters, deadline)
    for begin in range(1, begins):
        if deadline.over:
            break
        found = exact_boundaries(loads, np.roll(order, begin * ranks // begins), cost, best.cuts)
        found = _rematched(loads, found, cost, parameters, deadline)
        if found.cost < best.cost * (1 - 1e-12):
            best = found
    return best


def _rematched(
    loads: Loads, best: Boundaries, cost: Floats, parameters: Parameters, deadline: Deadline
) -> Boundaries:  # fmt: skip
    """Owners matched to regions, and cuts found for those owners, as long as that helps."""
    for _ in range(parameters.owner_rounds):
        if deadline.over:
            break
        owners = matched_owners(owner_costs(loads.counts(best.cuts), cost), best.owners)
        found = exact_boundaries(loads, owners, cost, best.cuts)
        if found.cost >= best.cost * (1 - 1e-12):
            break
        best = found
    return best


SEARCHES: dict[str, Callable[[Problem, Parameters, Deadline], Boundaries]] = {
    "exact": exact,
    "joint": joint,
    "milp": milp,
    "robust": robust,
    "averaged": averaged,
    "even": even,
}
"""By name."""
