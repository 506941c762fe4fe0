"""The methods: each makes cuts and owners for the recorded steps; what they are worth is for the replay to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES
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
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.profiles.sparsity.index_sets import IndexSets

__all__ = ["IN_ORDER", "CutMethod", "CutSearch", "asked_methods", "boundaries_by"]

Floats = NDArray[np.float64]


@dataclass
class CutSearch:
    """What the methods share: the question, the parameters, the time, and what more than one of them needs."""

    problem: Problem
    parameters: Parameters
    deadline: Deadline

    @cached_property
    def loads(self) -> Loads:
        """Of the recorded steps."""
        return Loads.of(self.problem.recorded)

    @cached_property
    def costs(self) -> tuple[Floats, Floats]:
        """Seconds that an entry costs each rank that receives it, and that sends it, float (P,)."""
        network = self.problem.network
        return ENTRY_BYTES * network.receiving_s_per_byte, ENTRY_BYTES * network.sending_s_per_byte

    @cached_property
    def exact(self) -> Boundaries:
        """Exact for an order of owners; then owners are matched to regions and cuts found again, while that helps; so
        from several orders: the ranks in turn, and from another first one.
        """
        loads, (cost, _), recorded = self.loads, self.costs, self.problem.recorded
        ranks, most = loads.ranks, self.parameters.owner_regions
        order, begins = np.arange(ranks), max(1, min(most // (ranks * loads.steps), ranks))
        best = self._rematched(exact_boundaries(loads, order, cost, averaged_cuts(recorded, recorded.steps - 1)))
        for begin in range(1, begins):
            if self.deadline.over:
                break
            turned = exact_boundaries(loads, np.roll(order, begin * ranks // begins), cost, best.cuts)
            turned = self._rematched(turned)
            if turned.cost < best.cost * (1 - 1e-12):
                best = turned
        return best

    def _rematched(self, best: Boundaries) -> Boundaries:
        """Owners matched to regions, and cuts found for those owners, as long as that helps."""
        loads, (cost, _) = self.loads, self.costs
        for _ in range(self.parameters.owner_rounds):
            if self.deadline.over:
                break
            owners = matched_owners(owner_costs(loads.counts(best.cuts), cost), best.owners)
            again = exact_boundaries(loads, owners, cost, best.cuts)
            if again.cost >= best.cost * (1 - 1e-12):
                break
            best = again
        return best

    @cached_property
    def joint(self) -> Boundaries:
        """Received and sent load together, from the exact boundaries."""
        return joint_search(self.loads, self.exact, *self.costs, self.parameters.joint_rounds, self.deadline)


def even(search: CutSearch) -> Boundaries:
    """Regions of equally many elements."""
    ranks = search.problem.sets.ranks
    return Boundaries(even_cuts(search.problem.sets.elements, ranks), np.arange(ranks), 0.0)


def averaged(search: CutSearch) -> Boundaries:
    """Ok-Topk's: averages of the ranks' quantiles, of the last recorded step."""
    return _averaged(search, search.problem.recorded)


def exact(search: CutSearch) -> Boundaries:
    """The least received load, with owners matched to regions."""
    return search.exact


def joint(search: CutSearch) -> Boundaries:
    """The search over received and sent load."""
    return search.joint


def milp(search: CutSearch) -> Boundaries:
    """The MILP over both loads and over owners, from what the search over both found; for few ranks."""
    start, stage = search.joint, replace(search.deadline.stage(), on_plan=None, on_point=None)
    return solve_milp(search.loads, start, *search.costs, search.parameters.milp_bins, stage).boundaries


def robust(search: CutSearch) -> Boundaries:
    """For later steps: exact for the sum over the recorded steps, or over their last half or quarter, or the averaged
    rule; owners in order.

    Single steps are noisy, and old ones out of date. So each rule is tried on the last three quarters of the steps, one
    after another, made from those before: the one with the least load there, in the mean, is made from all.
    """
    recorded, order = search.problem.recorded, np.arange(search.problem.sets.ranks)
    tried, totals = max(1, recorded.steps // 4), np.zeros(len(_RULES))
    for first in range(recorded.steps - tried, max(0, recorded.steps - 4 * tried), -tried):
        if search.deadline.over:
            break
        before, after = recorded.part(steps=slice(0, first)), recorded.part(steps=slice(first, first + tried))
        for number, rule in enumerate(_RULES):
            received = received_of(region_counts(after, rule(search, before).cuts), order)
            totals[number] += (received * search.problem.network.receiving_s_per_byte).max(axis=1).sum()
    return _RULES[int(np.argmin(totals))](search, recorded)


def _of_sum(search: CutSearch, sets: IndexSets, parts: int) -> Boundaries:
    """Exact for the last of so many equal parts of the steps, added up."""
    steps = max(1, sets.steps // parts)
    loads = Loads.of(sets.part(steps=slice(sets.steps - steps, None)), [range(steps)])
    return exact_boundaries(loads, np.arange(sets.ranks), search.costs[0], averaged_cuts(sets, sets.steps - 1))


def _averaged(search: CutSearch, sets: IndexSets) -> Boundaries:
    return Boundaries(averaged_cuts(sets, sets.steps - 1), np.arange(sets.ranks), 0.0)


_RULES: tuple[Callable[[CutSearch, IndexSets], Boundaries], ...]
_RULES = (*(partial(_of_sum, parts=parts) for parts in (1, 2, 4)), _averaged)


@dataclass(frozen=True)
class CutMethod:
    """A method by name. `find`: makes cuts and owners. `suits`: the questions in which `auto` tries it."""

    name: str
    find: Callable[[CutSearch], Boundaries]
    suits: Callable[[Problem], bool]

    def supports(self, problem: Problem) -> bool:
        """Whether it is asked for by name, or worth trying."""
        return problem.method == self.name or (problem.method == "auto" and self.suits(problem))

    def run(self, search: CutSearch) -> Iterator[tuple[str, Boundaries]]:
        """Its name and what it makes."""
        yield self.name, self.find(search)


def _always(problem: Problem) -> bool:
    return True


def _never(problem: Problem) -> bool:
    return False


def _for_recorded(problem: Problem) -> bool:
    return not problem.held_out


IN_ORDER = (
    CutMethod("averaged", averaged, _for_recorded),
    CutMethod("even", even, _for_recorded),
    CutMethod("exact", exact, _for_recorded),
    CutMethod("joint", joint, _for_recorded),
    CutMethod("robust", robust, lambda problem: problem.held_out > 0),
    CutMethod("milp", milp, _never),
)
"""For recorded steps everything but the MILP, which is for few ranks; where later steps are set apart to judge the plan
on, what is made for later ones."""


def asked_methods(problem: Problem, only: Sequence[str]) -> list[CutMethod]:
    """The methods in order; one that parameters name alone is tried whatever the question."""
    methods = [replace(method, suits=_always) if method.name in only else method for method in IN_ORDER]
    return [method for method in methods if method.supports(problem)]


def boundaries_by(name: str, search: CutSearch) -> Boundaries:
    """What the method of this name makes. Raises `InputError` for a name that none has."""
    for method in IN_ORDER:
        if method.name == name:
            return method.find(search)
    raise InputError(f"method: must be one of {', '.join(method.name for method in IN_ORDER)}, got {name!r}")
