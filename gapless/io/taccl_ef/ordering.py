"""One order for all transfers of a schedule: the order of the steps in every thread block."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gapless.errors import InputError
from gapless.schedule import EventKind, Schedule
from gapless.topologies.links import Links

__all__ = ["Transfers", "ordered_transfers", "transfers_of"]

SAME_INSTANT = 1e-9
"""Of the makespan: starts closer than that are one instant, as the checker has it."""


@dataclass(frozen=True)
class Transfers:
    """By event: the ranks that it goes from and to, its chunks, whether it reduces."""

    source: list[int]
    target: list[int]
    chunks: list[list[int]]
    reduces: list[bool]


def transfers_of(schedule: Schedule) -> Transfers:
    """The events of a schedule as plain lists. Raises `InputError` where one is no transfer."""
    for event, kind in enumerate(schedule.kind.tolist()):
        if kind != EventKind.TRANSFER:
            raise InputError(f"schedule: event {event} must be a transfer, got {EventKind(kind).name.lower()}")
    links = Links.of(schedule.topology.links)
    start, chunks = schedule.moves.start.tolist(), schedule.moves.values.tolist()
    return Transfers(
        source=links.source[schedule.place].tolist(),
        target=links.target[schedule.place].tolist(),
        chunks=[chunks[begin:end] for begin, end in pairwise(start)],
        reduces=schedule.reduces.tolist(),
    )


def ordered_transfers(schedule: Schedule, transfers: Transfers, fuse: bool) -> list[int]:
    """Event numbers by start; of equal starts what ends first, then what is listed first.

    `fuse`: of equal starts, what leaves a rank comes before what arrives there, as far as there is no cycle. In the
    next round the rank then sends on what it received last, and the two steps lie side by side. Transfers that start
    together and take time don't depend on each other, so any order of them will do.
    """
    order = [int(event) for event in np.lexsort((np.arange(len(schedule)), schedule.end_s, schedule.start_s))]
    return _outgoing_first(schedule, transfers, order) if fuse else order


def _outgoing_first(schedule: Schedule, transfers: Transfers, order: list[int]) -> list[int]:
    """The same order with each instant's transfers sorted again."""
    tolerance_s = SAME_INSTANT * float(schedule.end_s.max(initial=0.0))
    start_s, end_s = schedule.start_s.tolist(), schedule.end_s.tolist()
    ordered: list[int] = []
    begin = 0
    for at in range(1, len(order) + 1):
        first_s = start_s[order[begin]]
        if at < len(order) and start_s[order[at]] - first_s <= tolerance_s:
            continue
        group = order[begin:at]
        lasting = all(end_s[event] - first_s > tolerance_s for event in group)
        ordered += _sorted_instant(transfers, group) if lasting and len(group) > 1 else group
        begin = at
    return ordered


def _sorted_instant(transfers: Transfers, group: list[int]) -> list[int]:
    """Depth first from the target of each transfer: all that leaves it comes before."""
    leaving: dict[int, list[int]] = {}
    target = transfers.target
    for event in group:
        leaving.setdefault(transfers.source[event], []).append(event)
    ordered: list[int] = []
    seen: set[int] = set()
    for root in group:
        stack = [(root, False)]
        while stack:
            event, is_done = stack.pop()
            if is_done:
                ordered.append(event)
            elif event not in seen:
                seen.add(event)
                stack.append((event, True))
                stack += [(other, False) for other in reversed(leaving.get(target[event], [])) if other not in seen]
    return ordered
