"""What cuts and owners are worth: the schedules of the steps, each in the best of the orders and gathers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.gathers import GATHERS
from gapless.encodings.oktopk.allreduce.lowering import StepSizes, in_turn, lower
from gapless.encodings.oktopk.cuts.boundaries import Boundaries
from gapless.encodings.oktopk.cuts.loads import received_of, region_counts, sent_of
from gapless.encodings.oktopk.parameters import Parameters
from gapless.encodings.oktopk.problem import Problem
from gapless.options import Deadline
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.schedule import Schedule

__all__ = ["Judged", "Strategy", "judged", "sizes_of"]

Ints = NDArray[np.int64]

Strategy = tuple[str, str, bool]
"""The order of phase 1, the gather of phase 2, and whether the selected entries are balanced before."""

ORDERS = ("rotation", "largest")


@dataclass(frozen=True)
class Judged:
    """Boundaries with how the steps are carried out, what each of them takes, and the schedule that is replayed.

    `steps`: those in the schedule. `objective_s`: when that ends.
    """

    method: str
    boundaries: Boundaries
    strategy: Strategy
    step_s: tuple[float, ...]
    steps: tuple[int, ...]
    schedule: Schedule
    sizes: tuple[StepSizes, ...]

    @property
    def objective_s(self) -> float:
        """The worst step's time, or that of all in turn."""
        return float(self.schedule.end_s.max(initial=0.0))


def sizes_of(sets: IndexSets, selected: list[Ints], cuts: Ints) -> tuple[StepSizes, ...]:
    """The sizes of each step, cut into regions; `selected`: the entries that all ranks get, for each step."""
    counts = region_counts(sets, cuts)
    return tuple(
        StepSizes(counts[step], np.diff(np.searchsorted(chosen, cuts))) for step, chosen in enumerate(selected)
    )


def judged(
    problem: Problem, method: str, boundaries: Boundaries, selected: list[Ints], parameters: Parameters,
    deadline: Deadline, is_quick: bool = False,
) -> Judged:  # fmt: skip
    """Choose order and gather for the busiest step, and carry out all steps so; if quick, take the first that suits."""
    sizes, owners, network = sizes_of(problem.recorded, selected, boundaries.cuts), boundaries.owners, problem.network
    loads = [_load_s(problem, one, owners) for one in sizes]
    busiest = int(np.argmax(loads))
    if is_quick:
        strategy = _first_strategy(problem)
    else:
        strategy = _best_strategy(problem, sizes[busiest], owners, parameters, deadline)
    schedules = [_lowered(problem, one, owners, strategy) for one in sizes]
    step_s = tuple(float(one.end_s.max(initial=0.0)) for one in schedules)
    steps = (int(np.argmax(step_s)),) if problem.objective == "worst" else tuple(range(len(sizes)))
    schedule = in_turn([schedules[step] for step in steps])
    assert schedule.topology is network.topology
    return Judged(method, boundaries, strategy, step_s, steps, schedule, sizes)


def _load_s(problem: Problem, sizes: StepSizes, owners: Ints) -> float:
    """About what a step takes: the busiest rank's entries, both phases."""
    received, sent = received_of(sizes.counts[None], owners)[0], sent_of(sizes.counts[None], owners)[0]
    network, gathered = problem.network, int(sizes.selected.sum())
    received_s = (received + gathered - sizes.selected) * network.receiving_s_per_byte[owners]
    return float(max(received_s.max(), (sent * network.sending_s_per_byte[owners]).max()))


def _lowered(problem: Problem, sizes: StepSizes, owners: Ints, strategy: Strategy) -> Schedule:
    found = lower(sizes, owners, problem.network, *strategy)
    assert found is not None  # a strategy suits the topology, whatever the sizes
    return found


def _first_strategy(problem: Problem) -> Strategy:
    """Of the fewest messages among those that suit the topology, which is seen from a gather of nothing."""
    names = ("doubling", "ring", "direct", "flood")
    name = next(name for name in names if GATHERS[name](problem.network, ()) is not None)
    return ORDERS[0], name, False


def _best_strategy(
    problem: Problem, sizes: StepSizes, owners: Ints, parameters: Parameters, deadline: Deadline
) -> Strategy:
    """The fastest for a step; gathers that suit the topology, first in the plain order."""
    ranks, best = problem.sets.ranks, list[tuple[float, Strategy]]()
    gathers = [name for name in GATHERS if name != "flood"]
    if ranks * (ranks - 1) <= parameters.flood_transfers:
        gathers.append("flood")
    for strategy in product(ORDERS[:1], gathers, (False, True)):
        if best and deadline.over:
            break
        found = lower(sizes, owners, problem.network, *strategy)
        if found is not None:
            best.append((float(found.end_s.max(initial=0.0)), strategy))
    if not best:  # nothing but the list schedule suits such a topology
        best.append((0.0, (ORDERS[0], "flood", False)))
    least_s, strategy = min(best)
    other = (ORDERS[1], *strategy[1:])
    found = None if deadline.over else lower(sizes, owners, problem.network, *other)
    return other if found is not None and float(found.end_s.max(initial=0.0)) < least_s else strategy
