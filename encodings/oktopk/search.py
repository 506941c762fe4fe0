"""The methods: each makes cuts and owners for the recorded steps; what they are worth is for the replay to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gapless.encodings.oktopk.baselines import averaged_cuts, even_cuts
from gapless.encodings.oktopk.boundaries import Boundaries, exact_boundaries
from gapless.encodings.oktopk.joint import joint_search
from gapless.encodings.oktopk.loads import Loads, received_of, region_counts
from gapless.encodings.oktopk.lowering import ENTRY_BYTES
from gapless.encodings.oktopk.milp import solve_milp
from gapless.encodings.oktopk.owners import matched_owners, owner_costs
from gapless.encodings.oktopk.parameters import Parameters
from gapless.encodings.oktopk.problem import Problem
from gapless.options import Deadline
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["SEARCHES", "windows_of"]


def windows_of(sets: IndexSets, entries: int) -> list[list[int]]:
    """Neighbouring steps together, so many that a rank selects at least `entries` in them; the first few may be left
    over.
    """
    width = min(sets.steps, max(1, -(-entries // max(1, int(sets.counts.mean())))))
    firsts = range(sets.steps % width, sets.steps, width)
    return [list(range(first, first + width)) for first in firsts]


def even(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Regions of equally many elements."""
    ranks = problem.sets.ranks
    return Boundaries(even_cuts(problem.sets.elements, ranks), np.arange(ranks), 0.0)


def averaged(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Ok-Topk's: averages of the ranks' quantiles, of the last recorded step."""
    recorded = problem.recorded
    return Boundaries(averaged_cuts(recorded, recorded.steps - 1), np.arange(recorded.ranks), 0.0)


def exact(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """Exact for the owners' order; then owners are matched to regions and cuts found again, while that helps."""
    return _alternated(problem, Loads.of(problem.recorded), parameters, deadline)


def robust(problem: Problem, parameters: Parameters, deadline: Deadline) -> Boundaries:
    """For later steps: as `exact`, for sums over several steps where single ones have few entries; owners in order.

    Both this and the averaged rule are tried on the last quarter of the recorded steps, made from those before. The one
    with the lower load there, in the mean, is made from all steps.
    """
    recorded, order = problem.recorded, np.arange(problem.sets.ranks)
    tried = max(1, recorded.steps // 4)
    if recorded.steps <= tried:
        return _RULES[0](problem, recorded, parameters)
    before, after = recorded.part(steps=slice(0, -tried)), recorded.part(steps=slice(-tried, None))
    means = []
    for rule in _RULES:
        cuts = rule(problem, before, parameters).cuts
        means.append(float(received_of(region_counts(after, cuts), order).max(axis=1).mean()))
    return _RULES[int(np.argmin(means))](problem, recorded, parameters)


def _of_all(problem: Problem, sets: IndexSets, parameters: Parameters) -> Boundaries:
    loads = Loads.of(sets, windows_of(sets, parameters.window_entries))
    cost = ENTRY_BYTES * problem.network.receiving_s_per_byte
    return exact_boundaries(loads, np.arange(sets.ranks), cost, averaged_cuts(sets, sets.steps - 1))


def _averaged(problem: Problem, sets: IndexSets, parameters: Parameters) -> Boundaries:
    return Boundaries(averaged_cuts(sets, sets.steps - 1), np.arange(sets.ranks), 0.0)


_RULES = (_of_all, _averaged)


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
    cost = ENTRY_BYTES * problem.network.receiving_s_per_byte
    recorded = problem.recorded
    best = exact_boundaries(loads, np.arange(loads.ranks), cost, averaged_cuts(recorded, recorded.steps - 1))
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
