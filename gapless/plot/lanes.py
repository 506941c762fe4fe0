"""Lanes: what happens on each engine and each link of a schedule, in columns, as pictures draw it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import known_events
from gapless.ir.schedule import EventKind, Schedule

__all__ = [
    "Lanes",
    "busiest",
    "by_device",
    "joined",
    "lanes_of",
    "place_names",
    "resource_lanes_of",
    "taking_time",
    "utilisation",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_KINDS = 8
MOST_NAMED = 100_000
"""Of more events than this, none has room for its name."""
IN_NODE, BETWEEN_NODES, REDUCING, LINK = "send in a node", "send between nodes", "send and reduce", "transfer"
AGAIN = "recompute"
"""Ops that ran before."""


@dataclass(frozen=True)
class Lanes:
    """The m events that take time, each in a row of the picture.

    `row`, `kind`: int64, shape (m,), into `names` and `kinds`. `device`, `is_link`: of each row, where it is
    and whether it is a link (or links). `label`: a name for each event, empty where several were joined, and of more
    than `MOST_NAMED`. `until_s`: how long the picture is at least.
    """

    names: tuple[str, ...]
    device: tuple[int, ...]
    is_link: tuple[bool, ...]
    kinds: tuple[str, ...]
    row: Ints
    kind: Ints
    start_s: Floats
    end_s: Floats
    label: tuple[str, ...]
    until_s: float = 0.0

    @property
    def span_s(self) -> float:
        """The latest end, or `until_s` if that is later."""
        return float(self.end_s.max(initial=self.until_s))


def lanes_of(schedule: Schedule, device_names: Sequence[str] = ()) -> Lanes:
    """A row for each engine and each link that is in use for any time: by device, engines first, then links out.

    `device_names`: by device, their numbers if empty. Events that name unknown things are left out, as in a replay.
    """
    topology, numbers = schedule.topology, taking_time(schedule)
    is_transfer = schedule.is_transfer[numbers]
    place = schedule.place[numbers] + np.where(is_transfer, len(topology.engines), 0)
    used, row = np.unique(place, return_inverse=True)
    engine_device = [device for device, _ in topology.engines]
    device_of = np.array(engine_device + topology.link_source.tolist(), dtype=np.int64)[used]
    names = place_names(schedule, device_names)
    order, is_link = np.argsort(device_of, kind="stable"), used >= len(engine_device)
    return _lanes(schedule, numbers, row, order, [names[place] for place in used.tolist()], device_of, is_link)


def resource_lanes_of(schedule: Schedule) -> Lanes:
    """A row for each exclusive resource (a switch's side, a NIC) that is in use for any time, by name.

    A transfer has a part in the row of every resource that it holds; the device of a row is where the first one starts.
    The rows go on until everything in the schedule has ended.
    """
    topology, numbers = schedule.topology, taking_time(schedule)
    until_s = float(schedule.end_s[known_events(schedule)].max(initial=0.0))
    numbers = numbers[schedule.is_transfer[numbers]]
    link = schedule.place[numbers]
    counts = np.diff(topology.held_start)[link]
    part = np.repeat(np.arange(len(numbers)), counts)
    within = np.arange(len(part)) - np.repeat(np.cumsum(counts) - counts, counts)
    used, first, row = np.unique(
        topology.held[topology.held_start[link[part]] + within], return_index=True, return_inverse=True
    )
    names = [topology.resources[resource] for resource in used.tolist()]
    order = np.array(sorted(range(len(names)), key=lambda place: _parts(names[place])), dtype=np.int64)
    device, is_link = topology.link_source[link[part[first]]], np.ones(len(names), dtype=np.bool_)
    return replace(_lanes(schedule, numbers[part], row, order, names, device, is_link), until_s=until_s)


def _parts(name: str) -> list[tuple[str, int]]:
    """What names with numbers are sorted by: nic2 comes before nic10."""
    return [(word, int(number or -1)) for word, number in re.findall(r"(\D*)(\d{0,18})", name)]


def busiest(lanes: Lanes, most_rows: int) -> Lanes:
    """The rows in use for most of the time, in their order, at most so many."""
    if len(lanes.names) <= most_rows:
        return lanes
    busy_s = np.bincount(lanes.row, weights=lanes.end_s - lanes.start_s, minlength=len(lanes.names))
    kept = np.sort(np.argsort(-busy_s, kind="stable")[:most_rows])
    events = np.flatnonzero(np.isin(lanes.row, kept))
    return replace(
        lanes,
        names=tuple(lanes.names[row] for row in kept.tolist()),
        device=tuple(lanes.device[row] for row in kept.tolist()),
        is_link=tuple(lanes.is_link[row] for row in kept.tolist()),
        row=np.searchsorted(kept, lanes.row[events]),
        kind=lanes.kind[events],
        start_s=lanes.start_s[events],
        end_s=lanes.end_s[events],
        label=tuple(lanes.label[event] for event in events.tolist()),
    )


def taking_time(schedule: Schedule) -> Ints:
    """The events that take time, but for those that name unknown things, which a replay leaves out too."""
    numbers = known_events(schedule)
    taken_s = schedule.end_s[numbers] - schedule.start_s[numbers]
    return np.asarray(numbers[taken_s > 1e-12 * float(schedule.end_s[numbers].max(initial=0.0))])


def _lanes(
    schedule: Schedule, numbers: Ints, row: Ints, order: Ints, names: Sequence[str], device: Ints,
    is_link: NDArray[np.bool_],
) -> Lanes:  # fmt: skip
    """Events in rows that have been made for them, which stand in an order."""
    kinds, kind = _kinds(schedule, numbers)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    is_named = len(numbers) <= MOST_NAMED
    return Lanes(
        names=tuple(names[place] for place in order.tolist()),
        device=tuple(device[order].tolist()),
        is_link=tuple(is_link[order].tolist()),
        kinds=kinds,
        row=rank[row],
        kind=kind,
        start_s=np.maximum(schedule.start_s[numbers], 0.0),
        end_s=schedule.end_s[numbers],
        label=tuple(_label(schedule, number) if is_named else "" for number in numbers.tolist()),
    )


def place_names(schedule: Schedule, device_names: Sequence[str] = ()) -> list[str]:
    """What each engine, then each link, is called; `device_names`: by device, their numbers if empty."""
    topology = schedule.topology
    devices = list(device_names) or [str(device) for device in range(topology.device_count)]
    alone = topology.device_count == 1
    engines = [engine if alone else f"{devices[device]}: {engine}" for device, engine in topology.engines]
    return engines + [f"{devices[link.source]} \u2192 {devices[link.target]}" for link in topology.links]


def _kinds(schedule: Schedule, numbers: Ints) -> tuple[tuple[str, ...], Ints]:
    """The kinds of events, the one that takes most time first, and that of each event; the rarest share `other`."""
    topology = schedule.topology
    transfers = np.flatnonzero(schedule.is_transfer[numbers])
    of_ops = [op.kind for op in schedule.graph.ops]
    names, code = np.unique([*of_ops, LINK, IN_NODE, BETWEEN_NODES, REDUCING, AGAIN], return_inverse=True)
    sent = np.zeros(len(transfers), dtype=np.int64)
    if 1 < topology.node_count < topology.device_count:
        sent = np.where(topology.is_inter_node[schedule.place[numbers[transfers]]], 2, 1)
    sent[schedule.reduces[numbers[transfers]]] = 3
    kind = code[schedule.op[numbers]]
    kind[transfers] = code[len(of_ops) + sent]
    kind[_runs_again(schedule, numbers)] = code[-1]
    time_s = np.bincount(kind, weights=(schedule.end_s - schedule.start_s)[numbers], minlength=len(names))
    order = np.argsort(-time_s, kind="stable")
    order = order[np.isin(order, kind)]
    rank = np.zeros(len(names), dtype=np.int64)
    rank[order] = np.arange(len(order))
    titles = [str(name) for name in names[order]]
    if len(titles) > MOST_KINDS:
        titles[MOST_KINDS - 1 :] = ["other"]
    return tuple(titles), np.minimum(rank[kind], MOST_KINDS - 1)


def _runs_again(schedule: Schedule, numbers: Ints) -> NDArray[np.bool_]:
    """Whether each event computes what an earlier one has computed in the same place."""
    computes = np.flatnonzero(schedule.kind[numbers] == EventKind.COMPUTE)
    computes = computes[np.argsort(schedule.start_s[numbers[computes]], kind="stable")]
    op_and_place = np.stack([schedule.op[numbers[computes]], schedule.place[numbers[computes]]])
    _, first = np.unique(op_and_place, axis=1, return_index=True)
    again = np.zeros(len(numbers), dtype=np.bool_)
    again[np.delete(computes, first)] = True
    return again


def _label(schedule: Schedule, number: int) -> str:
    if schedule.kind[number] != EventKind.TRANSFER:
        return schedule.graph.ops[int(schedule.op[number])].name
    moves = schedule.moves[number].tolist()
    more = f" +{len(moves) - 1}" if len(moves) > 1 else ""
    return schedule.graph.tensor_name(moves[0]) + more


def joined(lanes: Lanes, narrow_s: float) -> Lanes:
    """The same lanes with touching events of one kind as one, where each is narrower than `narrow_s`."""
    order = np.lexsort((lanes.start_s, lanes.row))
    row, kind, start_s, end_s = lanes.row[order], lanes.kind[order], lanes.start_s[order], lanes.end_s[order]
    is_narrow = end_s - start_s < narrow_s
    same = (row[1:] == row[:-1]) & (kind[1:] == kind[:-1]) & is_narrow[1:] & is_narrow[:-1]
    same &= start_s[1:] - end_s[:-1] <= 1e-6 * narrow_s
    first = np.flatnonzero(np.append(True, ~same)[: len(row)])
    sizes = np.diff(np.append(first, len(row)))
    labels = [
        lanes.label[k] if size == 1 else "" for k, size in zip(order[first].tolist(), sizes.tolist(), strict=True)
    ]
    last = first + sizes - 1
    return replace(
        lanes, row=row[first], kind=kind[first], start_s=start_s[first], end_s=end_s[last], label=tuple(labels)
    )


def by_device(lanes: Lanes, device_names: Sequence[str], most_rows: int) -> Lanes:
    """The same events with a row for what each device computes and one for what it sends; at most `most_rows`.

    Where devices are still too many, consecutive ones share rows.
    """
    sends = np.array(lanes.is_link, dtype=np.int64)
    device = np.array(lanes.device, dtype=np.int64)
    per_device = len(np.unique(sends))
    count = int(device.max(initial=0)) + 1
    share = -(-count * per_device // most_rows)
    group = (device // share) * 2 + sends
    used, row_of_lane = np.unique(group, return_inverse=True)
    names = []
    for number in used.tolist():
        first, last = number // 2 * share, min(number // 2 * share + share, count) - 1
        titles = [device_names[k] if device_names else str(k) for k in (first, last)]
        what = ("" if per_device == 1 and number % 2 else " sends") if number % 2 else " computes"
        names.append((titles[0] if first == last else f"{titles[0]}\u2013{titles[1]}") + what)
    return replace(
        lanes,
        names=tuple(names),
        device=tuple((used // 2 * share).tolist()),
        is_link=tuple((used % 2 == 1).tolist()),
        row=row_of_lane[lanes.row],
    )


def utilisation(lanes: Lanes, bins: int) -> Floats:
    """The share of each slice of time in which each row has an event of each kind; shape (kinds, rows, bins), 0..1."""
    change = np.zeros((len(lanes.kinds), len(lanes.names), bins + 1))  # of the rate from one slice to the next
    step_s = lanes.span_s / bins
    group, start_s, end_s = _unions(lanes)
    kind, row = np.divmod(group, len(lanes.names))
    for edge_s, sign in ((start_s, 1.0), (end_s, -1.0)):
        place = np.clip(edge_s / step_s, 0.0, bins)
        slot = np.minimum(place.astype(np.int64), bins - 1)
        # From the edge on the row is busy: for the rest of this slice, and wholly in those that follow.
        rest = slot + 1 - place
        np.add.at(change, (kind, row, slot), sign * rest)
        np.add.at(change, (kind, row, slot + 1), sign * (1.0 - rest))
    return np.asarray(np.clip(np.cumsum(change, axis=2)[:, :, :bins], 0.0, 1.0))


def _unions(lanes: Lanes) -> tuple[Ints, Floats, Floats]:
    """The times in which a row has any event of a kind: kind times rows plus row, starts and ends."""
    group = lanes.kind * len(lanes.names) + lanes.row
    order = np.lexsort((lanes.start_s, group))
    group, start_s = group[order], lanes.start_s[order]
    # Each group on a stretch of time of its own: then one running maximum serves them all.
    shift_s = 2 * lanes.span_s * group
    until_s = np.maximum.accumulate(lanes.end_s[order] + shift_s)
    first = np.flatnonzero(np.append(True, start_s[1:] + shift_s[1:] > until_s[:-1])[: len(group)])
    last = np.append(first[1:], len(group)) - 1
    return group[first], start_s[first], (until_s - shift_s)[last]
