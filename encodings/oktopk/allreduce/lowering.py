"""From cuts, owners and a step's sizes to a schedule in the graph IR: a rank is a device.

Phase 1: rank i's entries of region r are a tensor of their own size, with contribution i, that goes to the owner, which
adds up all of them. Where adding takes time, it does so bucket by bucket, while the next ones are under way. Phase 2:
the owner's sums are pieces, the one that stays and those that balancing moves; every piece must end on every rank with
the contributions of all ranks that selected anything in the region. An entry is a value and an index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.balancing import balancing_moves
from gapless.encodings.oktopk.allreduce.gathers import GATHERS, Message, Piece
from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.ir.graph import Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.ir.simulate import retime

__all__ = ["Rows", "StepSizes", "in_buckets", "in_turn", "lower", "received_words"]

Ints = NDArray[np.int64]

_KINDS = {True: "reduce", False: "add"}
"""Of the op that adds the last bucket of a sum, and of those before."""


@dataclass(frozen=True)
class StepSizes:
    """One step, cut into regions: `counts`, entries of each rank in each region, int64 (ranks, regions); `selected`,
    entries of each region's sum that every rank gets, int64 (regions,). `sum_bytes`: of those where they go another way
    than as entries, int64 (regions,).
    """

    counts: Ints
    selected: Ints
    sum_bytes: Ints | None = None

    def held(self, owners: Ints) -> Ints:
        """Selected entries of each rank after phase 1, int64 (P,)."""
        found = np.zeros(len(owners), dtype=np.int64)
        found[owners] = self.selected
        return found


@dataclass
class Rows:
    """A sparse allreduce in the making: tensors sized by entries; times only number the events."""

    network: Network
    builder: ScheduleBuilder = field(default_factory=lambda: ScheduleBuilder(counts_contributions=True))

    def tensor(self, name: str, entries: int) -> int:
        return self.builder.tensor(name, ENTRY_BYTES * entries)

    def send(self, message: Message) -> None:
        """An event for each link of the route."""
        links = (message.link,) if message.link >= 0 else self.network.paths[message.source, message.target]
        for link in links:
            self.builder.move(link, message.tensors, float(len(self.builder.events)), 1.0)

    def add_up(
        self, name: str, owner: int, own: tuple[int, ...], received: Sequence[Sequence[int]], sums: tuple[int, ...]
    ) -> None:
        """Ops on the owner's engine: `received`, in buckets that are each added at once, to its `own`."""
        for number, bucket in enumerate(received or ((),)):
            parts = tuple(sorted((*own, *bucket)))
            entries = sum(self.builder.size_bytes[tensor] for tensor in bucket) // ENTRY_BYTES
            is_last = number >= len(received) - 1
            held_bytes = sum(self.builder.size_bytes[tensor] for tensor in parts)  # fewer where places are the same
            own = sums if is_last else (self.builder.tensor(f"{name}, {number + 1} buckets", held_bytes),)
            took = (Implementation(self.network.adding.time_s(entries)),)
            op = Op(f"{'reduce' if is_last else 'add to'} {name}", parts, own, took, _KINDS[is_last], reduces=True)
            at = float(len(self.builder.events))
            self.builder.run(op, self.network.engines[owner], at, at + 1)

    def schedule(self, name: str) -> Schedule:
        """Everything as early as the order allows."""
        return retime(self.builder.schedule(self.network.topology, name, as_listed=True))


def lower(
    step: StepSizes, owners: Ints, network: Network, order: str, gather: str, balances: bool, bucket: int = 0
) -> Schedule | None:
    """The schedule of one step; None where the topology doesn't have what the gather needs.

    `order`: of phase 1, `rotation` (Ok-Topk's, section 3.1.1) or `largest` (large messages first). `gather`: of
    `GATHERS`. `balances`: whether phase 2 begins with the balancing moves. `bucket`: messages that an owner adds at
    once, while the next ones are under way; 0: all of them.
    """
    rows, count = Rows(network), len(owners)
    parts, received = _parts(rows, step), [list[int]() for _ in owners]
    for message in _phase_1(step, owners, parts, order):
        rows.send(message)
        received[message.target] += message.tensors
    held = step.held(owners)
    moves = balancing_moves(held.tolist(), network.topology.node_of_device) if balances else []
    pieces, moving = list[Piece](), list[Message]()
    for region, owner in enumerate(owners.tolist()):
        moved = [move for move in moves if move[0] == owner]
        sums = _sums(rows, region, int(step.selected[region]), moved)
        sources = {rank: parts[rank, region] for rank in range(count) if (rank, region) in parts}
        if not sources:
            continue
        if step.sum_bytes is not None:
            rows.builder.size_bytes[sums[0]] = int(step.sum_bytes[region])
        own = (sources[owner],) if owner in sources else ()
        rows.add_up(f"region {region}", owner, own, in_buckets(received[owner], bucket), tuple(sums))
        bits = sum(1 << rank for rank in sources)
        holders = [owner, *(target for _, target, _ in moved)]
        moving += [Message(owner, to, (tensor,)) for tensor, to in zip(sums[1:], holders[1:], strict=True)]
        for tensor, holder in zip(sums, holders, strict=True):
            size_bytes = rows.builder.size_bytes[tensor]
            if size_bytes:
                pieces.append(Piece(tensor, holder, size_bytes, owner if holder != owner else -1))
            rows.builder.required += [(tensor, rank, bits) for rank in (range(count) if size_bytes else (owner,))]
    for message in moving:
        rows.send(message)
    pieces = _timed(rows, pieces) if gather == "flood" else pieces
    messages = GATHERS[gather](network, pieces)
    if messages is None:
        return None
    makers = {piece.tensor: piece.maker for piece in pieces}
    for message in messages:
        tensors = tuple(tensor for tensor in message.tensors if makers[tensor] != message.target)
        if tensors:
            rows.send(replace(message, tensors=tensors))
    return rows.schedule(f"sparse allreduce on {network.topology.name}")


def in_buckets(messages: Sequence[int], bucket: int) -> list[Sequence[int]]:
    """So many at a time, 0: all at once.

    >>> in_buckets([3, 1, 4, 1, 5], 2)
    [[3, 1], [4, 1], [5]]
    """
    size = bucket or max(1, len(messages))
    return [messages[first : first + size] for first in range(0, len(messages), size)]


def _parts(rows: Rows, step: StepSizes) -> dict[tuple[int, int], int]:
    """The tensor of each rank's entries in each region where it has any."""
    found = {}
    for rank, region in zip(*(axis.tolist() for axis in np.nonzero(step.counts)), strict=True):
        found[rank, region] = rows.tensor(f"rank {rank} region {region}", int(step.counts[rank, region]))
        rows.builder.initial.append((found[rank, region], rank, 1 << rank))
    return found


def _sums(rows: Rows, region: int, selected: int, moved: Sequence[tuple[int, int, int]]) -> list[int]:
    """The pieces of a region's sum: what stays, and what each move takes."""
    kept = selected - sum(entries for _, _, entries in moved)
    sums = [rows.tensor(f"sum {region}", kept)]
    return sums + [rows.tensor(f"sum {region} for rank {target}", entries) for _, target, entries in moved]


def received_words(schedule: Schedule) -> Ints:
    """Words of 4 bytes that each rank receives in a schedule, what it only passes on included, int64 (P,)."""
    topology, graph = schedule.topology, schedule.graph
    target = topology.link_target[schedule.place[schedule.moves.owner]]
    size_bytes = graph.size_bytes[schedule.moves.values]
    return np.bincount(target, weights=size_bytes / 4, minlength=topology.device_count).astype(np.int64)


def _phase_1(step: StepSizes, owners: Ints, parts: dict[tuple[int, int], int], order: str) -> list[Message]:
    """Every rank's entries to the owners of their regions."""
    count, region_of = len(owners), np.argsort(owners).tolist()
    pairs = [(rank, (rank + shift) % count) for shift in range(1, count) for rank in range(count)]
    if order == "largest":
        load = step.counts.sum(axis=0)
        pairs.sort(key=lambda pair: (-int(load[region_of[pair[1]]]), (pair[0] - pair[1]) % count))
        pairs = _dealt(pairs, count)
    return [
        Message(rank, owner, (parts[rank, region_of[owner]],))
        for rank, owner in pairs if (rank, region_of[owner]) in parts
    ]  # fmt: skip


def _dealt(pairs: list[tuple[int, int]], count: int) -> list[tuple[int, int]]:
    """The pairs in rounds in which each rank sends and receives at most once, the first ones as early as can be."""
    rounds: list[list[tuple[int, int]]] = []
    sends, takes = [[False] * (2 * count) for _ in range(count)], [[False] * (2 * count) for _ in range(count)]
    for source, target in pairs:
        number = next(k for k in range(2 * count) if not (sends[source][k] or takes[target][k]))
        sends[source][number] = takes[target][number] = True
        while len(rounds) <= number:
            rounds.append([])
        rounds[number].append((source, target))
    return [pair for one in rounds for pair in one]


def _timed(rows: Rows, pieces: list[Piece]) -> list[Piece]:
    """The pieces with when they are there, from what has been listed so far."""
    so_far = replace(rows, builder=replace(rows.builder, required=[])).schedule("")
    end_s: dict[tuple[int, int], float] = {}
    for number in range(len(so_far)):
        event = so_far.event(number)
        if event.kind == EventKind.COMPUTE:
            where = so_far.topology.engines[event.place][0]
            end_s.update({(tensor, where): event.end_s for tensor in so_far.graph.ops[event.op].outputs})
        else:
            where = int(so_far.topology.link_target[event.place])
            end_s.update({(tensor, where): event.end_s for tensor in event.moves})
    return [replace(piece, ready_s=end_s[piece.tensor, piece.holder]) for piece in pieces]


def in_turn(schedules: Sequence[Schedule]) -> Schedule:
    """Schedules of steps on one topology, each beginning when the one before it is over."""
    if len(schedules) == 1:
        return schedules[0]
    tensors = np.append(0, np.cumsum([one.graph.tensor_count for one in schedules])).tolist()
    ends = np.append(0.0, np.cumsum([one.end_s.max(initial=0.0) for one in schedules])).tolist()
    ops, names, events = list[Op](), list[str](), list[Event]()
    for step, (one, (first, _)) in enumerate(zip(schedules, pairwise(tensors), strict=True)):
        for event in one.events():
            events.append(replace(
                event, start_s=event.start_s + ends[step], end_s=event.end_s + ends[step],
                moves=tuple(tensor + first for tensor in event.moves), op=event.op + len(ops) if event.op >= 0 else -1,
            ))  # fmt: skip
        ops += [
            replace(op, inputs=tuple(t + first for t in op.inputs), outputs=tuple(t + first for t in op.outputs))
            for op in one.graph.ops
        ]
        names += [f"step {step}: {name}" for name in one.graph.tensor_names]
    graph = Graph(
        np.concatenate([one.graph.size_bytes for one in schedules]), tuple(ops),
        _placed([one.graph.initial for one in schedules], tensors),
        _placed([one.graph.required for one in schedules], tensors), tuple(names),
    )  # fmt: skip
    return schedule_from_events(graph, schedules[0].topology, events, schedules[0].name)


def _placed(placements: Sequence[Placement], first: Sequence[int]) -> Placement:
    tensors = [one.tensors + start for one, start in zip(placements, first, strict=False)]
    devices = [one.devices for one in placements]
    held = tuple(bits for one in placements for bits in one.contributions or ())
    return Placement(np.concatenate(tensors), np.concatenate(devices), held)
