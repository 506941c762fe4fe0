"""Operations of switches that add up and multicast: what makes a bundle of transfers one, and what its group holds.

A bundle is replayed as one event, its first: it reads all copies that its transfers read, and writes what they write.
Bundles of a group that start and end together are one step. It holds every link and resource once, and takes as long as
the port through which most of its bytes pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.checker.timeline import instants_of
from gapless.ir.schedule import Schedule

__all__ = ["Kind", "Steps", "broken_ops", "leaders", "steps_of"]

Ints = NDArray[np.int64]


class Kind(IntEnum):
    """What a bundle does."""

    MULTICAST = 0
    REDUCTION = 1
    TO_ALL = 2


_NAMES = {Kind.MULTICAST: "multicasts", Kind.REDUCTION: "reduces", Kind.TO_ALL: "reduces_to_all"}


def broken_ops(schedule: Schedule, is_known: NDArray[np.bool_], tolerance_s: float) -> list[tuple[Ints, str]]:
    """The bundles that are no operation of their switch: the rows of each, and what is wrong with it.

    `is_known`: the rows that name only what graph and topology have.
    """
    ops = schedule.switch_ops
    if ops is None:
        return []
    rows = np.flatnonzero(ops.of_event != -1)
    order = rows[np.argsort(ops.of_event[rows], kind="stable")]
    numbers, first = np.unique(ops.of_event[order], return_index=True)
    bundles = np.split(order, first[1:]) if len(order) else []
    found = []
    for number, bundle in zip(numbers.tolist(), bundles, strict=True):
        text = _problem(schedule, number, bundle, is_known, tolerance_s)
        if text:
            found.append((bundle, f"is part of operation {number} of a switch, which {text}"))
    return found


def _problem(
    schedule: Schedule, number: int, rows: Ints, is_known: NDArray[np.bool_], tolerance_s: float
) -> str:  # fmt: skip
    """What keeps some rows from being one operation; empty for nothing."""
    ops, groups = schedule.switch_ops, schedule.topology.switch_groups
    if ops is None or not 0 <= number < len(ops.group):
        return f"must be one of {0 if ops is None else len(ops.group)}"
    which = int(ops.group[number])
    if not 0 <= which < len(groups):
        return f"names switch group {which}, of {len(groups)}"
    if not schedule.is_transfer[rows].all():
        return "has an event that is no transfer"
    if not is_known[rows].all():
        return "has an event that names unknown things"
    for title, times_s in (("start", schedule.start_s[rows]), ("end", schedule.end_s[rows])):
        if np.ptp(times_s) > tolerance_s:
            return f"has transfers that don't {title} together"
    moved = schedule.moves[int(rows[0])]
    if any(not np.array_equal(np.sort(schedule.moves[int(row)]), np.sort(moved)) for row in rows[1:].tolist()):
        return "has transfers of different tensors"
    if len(np.unique(moved)) != len(moved):
        return "moves a tensor twice"
    return _shape_problem(schedule, which, rows)


def _shape_problem(schedule: Schedule, which: int, rows: Ints) -> str:
    """What keeps transfers of the same tensors at the same time from being an operation of a switch group."""
    topology, group = schedule.topology, schedule.topology.switch_groups[which]
    place, reduces = schedule.place[rows], schedule.reduces[rows]
    pairs = list(zip(topology.link_source[place].tolist(), topology.link_target[place].tolist(), strict=True))
    sources, targets = {source for source, _ in pairs}, {target for _, target in pairs}
    outside = sorted((sources | targets) - set(group.ranks))
    if outside:
        return f"reaches rank {outside[0]}, which is not in switch group {which}"
    if len(set(pairs)) != len(pairs):
        return "has two transfers between the same ranks"
    if reduces.any() != reduces.all():
        return "has transfers that add and others that don't"
    kind = _kind(bool(reduces.any()), len(targets))
    ranks = sources | targets
    if kind is Kind.TO_ALL:
        is_whole = len(pairs) == len(ranks) * (len(ranks) - 1)
    else:
        is_whole = len(sources if kind is Kind.MULTICAST else targets) == 1
    if not is_whole:
        rule = "one to others, others to one, or among all of them"
        return f"has {len(pairs)} transfers from {len(sources)} ranks to {len(targets)}, must be {rule}"
    if not getattr(group.reduction, _NAMES[kind]):
        return f"is what switch group {which} doesn't do ({_NAMES[kind]} is false)"
    if len(ranks) < len(group.ranks) and not group.reduction.subsets:
        return f"is of {len(ranks)} ranks, must be of all {len(group.ranks)} of switch group {which}"
    return ""


def _kind(reduces: bool, targets: int) -> Kind:
    if not reduces:
        return Kind.MULTICAST
    return Kind.REDUCTION if targets == 1 else Kind.TO_ALL


def leaders(schedule: Schedule, numbers: Ints) -> Ints:
    """Of each of some rows the place of the one that stands for its bundle; of a plain one its own. int64."""
    found = np.arange(len(numbers))
    ops = schedule.switch_ops
    if ops is not None:
        part = np.flatnonzero(ops.of_event[numbers] >= 0)
        _, first, inverse = np.unique(ops.of_event[numbers[part]], return_index=True, return_inverse=True)
        found[part] = part[first[inverse]]
    return found


@dataclass(frozen=True)
class Steps:
    """The steps of all switch groups, and their bundles, both numbered by first events.

    `leader`: the event that stands for each bundle, `step`: the step that it is in; int64 of shape (bundles,). `ranks`:
    of each. `first`: the event that stands for each step, `least_s`: how long it takes. `held`: resources, as numbers
    of the topology, that a step holds besides those of its links: (event, resource), int64 of shape (n, 2).
    """

    leader: Ints
    step: Ints
    group: Ints
    ranks: tuple[frozenset[int], ...]
    first: Ints
    least_s: NDArray[np.float64]
    held: Ints


def steps_of(schedule: Schedule, numbers: Ints, leader: Ints, tolerance_s: float) -> Steps:
    """The steps of bundles that are operations of their switches. `leader`: see `leaders`."""
    ops, topology = schedule.switch_ops, schedule.topology
    empty = np.empty(0, dtype=np.int64)
    part = empty if ops is None else np.flatnonzero(ops.of_event[numbers] >= 0)
    if ops is None or not len(part):
        return Steps(empty, empty, empty, (), empty, np.empty(0), np.empty((0, 2), dtype=np.int64))
    bundle_of = np.unique(leader[part], return_inverse=True)[1]
    bundles = np.unique(leader[part])
    rows = numbers[bundles]
    group = ops.group[ops.of_event[rows]]
    times_s = np.concatenate([schedule.start_s[numbers], schedule.end_s[numbers]])
    instant = instants_of(times_s, tolerance_s)
    key = np.stack([group, instant[bundles], instant[len(numbers) + bundles]], axis=1)
    _, first, step = np.unique(key, axis=0, return_index=True, return_inverse=True)
    step = step.reshape(-1)
    sides = _sides(schedule, numbers[part], bundle_of)
    sent = np.add.reduceat(
        np.append(schedule.graph.size_bytes[schedule.moves.take(rows).values], 0), schedule.moves.take(rows).start[:-1]
    )
    count = topology.device_count
    most = np.zeros(len(first), dtype=np.float64)
    loads: dict[int, float] = {}
    for bundle, side in sides.tolist():
        at = int(step[bundle]) * 2 * count + side
        loads[at] = loads.get(at, 0.0) + float(sent[bundle])
    for at, load in loads.items():
        most[at // (2 * count)] = max(most[at // (2 * count)], load)
    reductions = [topology.switch_groups[each].reduction for each in group[first].tolist()]
    least_s = np.array([one.alpha_s for one in reductions]) + most * [one.beta_s_per_byte for one in reductions]
    held = _held(schedule, sides, group, bundles[first][step])
    ranks: list[set[int]] = [set() for _ in rows]
    for bundle, side in sides.tolist():
        ranks[bundle].add(side // 2)
    return Steps(bundles, step, group, tuple(map(frozenset, ranks)), bundles[first], least_s, held)


def _sides(schedule: Schedule, rows: Ints, bundle_of: Ints) -> Ints:
    """(bundle, 2 * rank + whether it receives) of each side of a rank that a bundle's bytes pass, each once.

    Where the switch sends what a rank asks for by its ports, too, both sides of that rank are there.
    """
    ops, topology = schedule.switch_ops, schedule.topology
    source, target = topology.link_source[schedule.place[rows]], topology.link_target[schedule.place[rows]]
    sides = [np.stack([bundle_of, 2 * source], axis=1), np.stack([bundle_of, 2 * target + 1], axis=1)]
    found = np.unique(np.concatenate(sides), axis=0)
    loops = []
    start = np.append(np.flatnonzero(np.diff(found[:, 0], prepend=-1)), len(found)).tolist()
    for bundle, place in enumerate(np.unique(bundle_of, return_index=True)[1].tolist()):
        own, row = found[start[bundle] : start[bundle + 1], 1], int(rows[place])
        group = topology.switch_groups[int(ops.group[ops.of_event[row]])] if ops is not None else None
        if group is None or not group.reduction.loopback:
            continue
        senders, receivers = own[own % 2 == 0] // 2, own[own % 2 == 1] // 2
        kind = _kind(bool(schedule.reduces[row]), len(receivers))
        if kind is Kind.MULTICAST:
            loops.append((bundle, 2 * int(senders[0]) + 1))
        elif kind is Kind.REDUCTION:
            loops.append((bundle, 2 * int(receivers[0])))
    return np.concatenate([found, np.array(loops, dtype=np.int64).reshape(-1, 2)])


def _held(schedule: Schedule, sides: Ints, group: Ints, holder: Ints) -> Ints:
    """(event, resource) of the ports that bundles' sides are of. `holder`: the event that holds for each bundle."""
    groups = schedule.topology.switch_groups
    port_of = {
        (which, 2 * rank + side): pair[side]
        for which, each in enumerate(groups)
        for rank, pair in zip(each.ranks, each.ports, strict=False)
        for side in (0, 1)
    }
    rows = [
        (int(holder[bundle]), port)
        for bundle, side in sides.tolist()
        if (port := port_of.get((int(group[bundle]), side))) is not None
    ]
    return np.unique(np.array(rows, dtype=np.int64).reshape(-1, 2), axis=0)
