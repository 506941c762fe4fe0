"""Lower a replayed schedule of operations of switches to an MSCCL++ plan, by multimem's load-reduce and store.

All ranks lie behind one switch. A chunk that is reduced to a rank and multicast from there is one operation of that
rank: it reads the sum of what all have, and stores it at all. A chunk that is only multicast is a store. Before the
first of them all ranks say that they have started, after the last that what they store is there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from gapless.errors import InputError
from gapless.io.mscclpp.program import (
    LIMITS,
    SWITCH,
    Block,
    ChannelIds,
    Channels,
    Chunks,
    Gpu,
    Operation,
    Plan,
    RankGroup,
)
from gapless.ir.collective import Collective
from gapless.ir.schedule import Schedule

__all__ = ["lower_switched"]

_MOST_RUNS = 40
"""Operations on data of a block; the rest of what it takes is for meetings."""


@dataclass(frozen=True)
class _Act:
    """An operation of a switch: `root` is None where it reduces to all."""

    start_s: float
    reduces: bool
    root: int | None
    ranks: tuple[int, ...]
    chunks: tuple[int, ...]


def lower_switched(schedule: Schedule, collective: Collective, name: str, placement: str, instances: int) -> Plan:
    """The plan that does what a clean schedule does. Raises `InputError` for one that it has no operations for."""
    ranks = collective.rank_count
    shares = _shares(schedule, collective)
    source = "i" if placement == "out-of-place" or collective.name == "allreduce" else "o"
    target = "i" if placement == "in-place" and collective.name == "allreduce" else "o"
    peers = ranks - 1
    if peers > LIMITS.channels:
        raise InputError(f"mscclpp: a block takes {LIMITS.channels} channels, to meet all other ranks it needs {peers}")
    blocks = max(1, max(-(-len(runs) // _MOST_RUNS) for runs in shares)) * instances
    group = RankGroup(ranks, tuple(range(ranks)))
    kinds = [source, target] if collective.name == "allreduce" and source != target else [target]
    counts = [
        (len(given) * instances, len(wanted) * instances)
        for given, wanted in zip(collective.inputs, collective.outputs, strict=True)
    ]
    gpus = []
    for rank, runs in enumerate(shares):
        spans = [
            Chunks(first * instances + part * size, size)
            for part in range(instances) for first, size in runs
        ]  # fmt: skip
        own = [
            _block(number, spans[number::blocks], rank, peers, len(kinds), collective, source, instances)
            for number in range(blocks)
        ]
        others = tuple(other for other in range(ranks) if other != rank) * blocks
        links = (Channels("memory", others), *(Channels(SWITCH, (), kind, (group,)) for kind in kinds))
        gpus.append(Gpu(rank, *counts[rank], 0, tuple(own), links))
    return Plan(name or f"{collective.name}_{ranks}", collective.name, placement == "in-place", tuple(gpus))


def _block(
    number: int, spans: Sequence[Chunks], rank: int, peers: int, kinds: int, collective: Collective, source: str,
    instances: int,
) -> Block:  # fmt: skip
    """Meet, work, meet. `kinds`: the switch channels of the GPU; the first is read, the last written."""
    operations = [*_meeting(peers), Operation("nop")]
    first = 0
    if collective.name == "allgather" and source == "i":
        first = collective.outputs[rank].index(collective.inputs[rank][0]) * instances
    for span in spans:
        there = Chunks(span.index, span.size, switch_channel_id=kinds - 1)
        if collective.name == "allgather":
            own = Chunks(span.index - first, span.size, source)
            operations.append(Operation("gstore", (own,), (there,), SWITCH))
        else:
            read = Chunks(span.index, span.size, switch_channel_id=0)
            operations.append(Operation("glres", (read,), (there,), SWITCH))
    operations += [Operation("nop"), *_meeting(peers)]
    ids = (
        ChannelIds("memory", tuple(range(number * peers, (number + 1) * peers))),
        ChannelIds(SWITCH, tuple(range(kinds))),
    )
    return Block(number, tuple(operations), ids)


def _meeting(peers: int) -> Iterator[Operation]:
    """Signal to all others, and wait for all others."""
    most = LIMITS.channels_per_operation
    for name in ("signal", "wait"):
        for first in range(0, peers, most):
            yield Operation(name, channel_type="memory", channel_ids=tuple(range(first, min(first + most, peers))))


def _shares(schedule: Schedule, collective: Collective) -> list[list[tuple[int, int]]]:
    """For each rank the runs (first place in the output, length) that it stores at all, in the order of the plan."""
    if collective.name not in ("allreduce", "allgather"):
        known = "allreduce and allgather, since switches store at all ranks"
        raise InputError(f"mscclpp: plans with operations of switches are written for {known}; got {collective.name}")
    everybody = tuple(range(collective.rank_count))
    found: list[list[int]] = [[] for _ in everybody]
    summed: dict[int, int] = {}
    for act in _acts(schedule):
        if act.ranks != everybody:
            rule = f"operations of switches must be of all {len(everybody)} ranks"
            raise InputError(f"mscclpp: {rule}, got {len(act.ranks)}")
        for chunk in act.chunks:
            if act.root is None:
                found[chunk * len(everybody) // collective.chunk_count].append(chunk)
            elif act.reduces:
                summed[chunk] = act.root
            elif collective.reduces and summed.get(chunk) != act.root:
                rule = "a chunk must be multicast by the rank that it was reduced to"
                raise InputError(f"mscclpp: {rule}, got another for chunk {chunk}")
            else:
                found[act.root].append(chunk)
    if sorted(chunk for chunks in found for chunk in chunks) != list(range(collective.chunk_count)):
        raise InputError("mscclpp: operations of switches must store each chunk at all ranks, once")
    place = {chunk: number for number, chunk in enumerate(collective.outputs[0])}
    return [list(_runs([place[chunk] for chunk in chunks])) for chunks in found]


def _runs(places: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(first, length) of what follows each other."""
    for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        each = [place for _, place in run]
        yield each[0], len(each)


def _acts(schedule: Schedule) -> list[_Act]:
    """The operations of a schedule that has nothing else, in the order of their starts."""
    ops, topology = schedule.switch_ops, schedule.topology
    plain = 0 if ops is None else int((ops.of_event < 0).sum())
    if ops is None or plain:
        rule = "a plan must have operations of switches alone, or none"
        raise InputError(f"mscclpp: {rule}, got {plain} transfers besides; plan with --no-switch-reduction")
    found = []
    order = np.argsort(ops.of_event, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(ops.of_event[order])) + 1):
        sources, targets = (
            sorted(set(end[schedule.place[rows]].tolist())) for end in (topology.link_source, topology.link_target)
        )
        reduces = bool(schedule.reduces[rows[0]])
        one = targets if reduces else sources
        root = one[0] if len(one) == 1 else None
        ranks = tuple(sorted({*sources, *targets}))
        chunks = tuple(schedule.moves[int(rows[0])].tolist())
        found.append(_Act(float(schedule.start_s[rows[0]]), reduces, root, ranks, chunks))
    return sorted(found, key=lambda act: act.start_s)
