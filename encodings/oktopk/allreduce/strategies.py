"""What cuts and owners are worth: the schedules of the steps, each in the best of the orders and gathers."""

from __future__ import annotations

from collections.abc import Callable
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
from gapless.ir.schedule import Schedule
from gapless.options import Deadline

__all__ = ["Candidate", "Selected", "Strategy", "best_candidate", "first_candidate", "first_strategy"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

Strategy = tuple[str, str, bool, int]
"""The order of phase 1, the gather of phase 2, whether the selected entries are balanced before, and how many messages
of phase 1 an owner adds at once (0: all).
"""

ORDERS = ("rotation", "largest")


@dataclass(frozen=True)
class Candidate:
    """Boundaries with how the steps are carried out, what each of them takes, and the schedule that is replayed.

    `step_s`, `sizes`: by recorded step; all of them, unless the clock left some out. `steps`: those in the schedule.
    """

    method: str
    boundaries: Boundaries
    strategy: Strategy
    step_s: dict[int, float]
    steps: tuple[int, ...]
    schedule: Schedule
    sizes: dict[int, StepSizes]

    @property
    def objective_s(self) -> float:
        """When the schedule ends: the worst step's time, or that of all in turn."""
        return float(self.schedule.end_s.max(initial=0.0))


Selected = Callable[[int], Ints]
"""The entries that all ranks get in a recorded step, ascending."""


def first_candidate(
    problem: Problem, method: str, boundaries: Boundaries, selected: Selected, deadline: Deadline,
    carried: Callable[[int], None] = lambda _: None, balance_above: float | None = None,
) -> Candidate:  # fmt: skip
    """The steps in the first order and gather that suit, the busiest first: as many as there is time for, at least one.

    `carried` is called with each step. `balance_above`: a step is balanced where a rank holds more sums than this
    factor of the mean; None: none is.
    """
    counts, owners = region_counts(problem.recorded, boundaries.cuts), boundaries.owners
    strategy, sizes, schedules = first_strategy(problem), dict[int, StepSizes](), dict[int, Schedule]()
    for step in np.argsort(-_contributed_s(problem, counts, owners).max(axis=1), kind="stable").tolist():
        if schedules and deadline.over:
            break
        sizes[step] = _step_sizes(counts[step], selected(step), boundaries.cuts)
        held = sizes[step].held(owners)
        if balance_above is not None and held.max() > balance_above * held.mean():
            strategy = (*strategy[:2], True, strategy[3])
        schedules[step] = _lowered(problem, sizes[step], owners, strategy)
        carried(step)
    return _candidate(problem, method, boundaries, strategy, sizes, schedules)


def best_candidate(
    problem: Problem, method: str, boundaries: Boundaries, selected: Selected, parameters: Parameters,
    deadline: Deadline,
) -> Candidate | None:  # fmt: skip
    """All steps in the order and gather that are best for the busiest; None where the time is over before all are."""
    counts, owners = region_counts(problem.recorded, boundaries.cuts), boundaries.owners
    sizes = {step: _step_sizes(one, selected(step), boundaries.cuts) for step, one in enumerate(counts)}
    busiest = max(sizes, key=lambda step: _load_s(problem, sizes[step], owners))
    strategy = _best_strategy(problem, sizes[busiest], owners, parameters, deadline)
    schedules = dict[int, Schedule]()
    for step, one in sizes.items():
        if deadline.over:
            return None
        schedules[step] = _lowered(problem, one, owners, strategy)
    return _candidate(problem, method, boundaries, strategy, sizes, schedules)


def _candidate(
    problem: Problem, method: str, boundaries: Boundaries, strategy: Strategy, sizes: dict[int, StepSizes],
    schedules: dict[int, Schedule],
) -> Candidate:  # fmt: skip
    """With the worst of the steps in its schedule, or all of them in turn."""
    step_s = {step: float(schedules[step].end_s.max(initial=0.0)) for step in sorted(schedules)}
    steps = (max(step_s, key=step_s.__getitem__),) if problem.objective == "worst" else tuple(step_s)
    schedule = in_turn([schedules[step] for step in steps])
    assert schedule.topology is problem.topology
    return Candidate(method, boundaries, strategy, step_s, steps, schedule, sizes)


def _step_sizes(counts: Ints, selected: Ints, cuts: Ints) -> StepSizes:
    return StepSizes(counts, np.diff(np.searchsorted(selected, cuts)))


def _contributed_s(problem: Problem, counts: Ints, owners: Ints) -> Floats:
    """About what each owner takes for phase 1, float (steps, ranks): of what it receives, or sends, the longer."""
    network = problem.network
    received_s = received_of(counts, owners) * network.receiving_s_per_byte[owners]
    return np.asarray(np.maximum(received_s, sent_of(counts, owners) * network.sending_s_per_byte[owners]))


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


def first_strategy(problem: Problem) -> Strategy:
    """Of the fewest messages among those that suit the topology, which is seen from a gather of nothing."""
    names = ("doubling", "ring", "direct", "flood")
    name = next(name for name in names if GATHERS[name](problem.network, ()) is not None)
    return ORDERS[0], name, False, _first_bucket(problem)


def _best_strategy(
    problem: Problem, sizes: StepSizes, owners: Ints, parameters: Parameters, deadline: Deadline
) -> Strategy:
    """The fastest for a step; gathers that suit the topology, first in the plain order."""
    ranks, best, bucket = problem.sets.ranks, list[tuple[float, Strategy]](), _first_bucket(problem)
    gathers = [name for name in GATHERS if name != "flood"]
    if ranks * (ranks - 1) <= parameters.flood_transfers:
        gathers.append("flood")
    for strategy in product(ORDERS[:1], gathers, (False, True), (bucket,)):
        if best and deadline.over:
            break
        found = lower(sizes, owners, problem.network, *strategy)
        if found is not None:
            best.append((float(found.end_s.max(initial=0.0)), strategy))
    if not best:  # nothing but the list schedule suits such a topology
        best.append((0.0, (ORDERS[0], "flood", False, bucket)))
    least_s, strategy = min(best)
    others = [(ORDERS[1], *strategy[1:]), *((*strategy[:3], size) for size in _other_buckets(problem))]
    for other in others:
        found = None if deadline.over else lower(sizes, owners, problem.network, *other)
        if found is not None and float(found.end_s.max(initial=0.0)) < least_s:
            least_s, strategy = float(found.end_s.max(initial=0.0)), other
    return strategy


def _first_bucket(problem: Problem) -> int:
    """Adding each message as it comes is soonest over unless there is something to pay each time."""
    return 0 if problem.network.adding.is_free else 1


def _other_buckets(problem: Problem) -> list[int]:
    """Powers of two, and all at once."""
    ranks = problem.sets.ranks
    return [*(1 << power for power in range(1, (ranks - 1).bit_length())), 0] if problem.network.adding.start_s else []
