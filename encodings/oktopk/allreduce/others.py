"""Other allreduces of the same step as schedules, to be replayed beside a plan: TopkA, TopkDSA, a dense ring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.gathers import GATHERS, Piece
from gapless.encodings.oktopk.allreduce.lowering import Rows, StepSizes, lower
from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.encodings.oktopk.cuts.boundaries import even_cuts
from gapless.encodings.oktopk.cuts.loads import region_counts
from gapless.errors import InputError
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.topologies.ring import fastest_ring

__all__ = ["dense_ring", "topka", "topkdsa"]

Ints = NDArray[np.int64]

ELEMENT_BYTES = 4
"""Of a dense gradient."""


def topka(sets: IndexSets, step: int, network: Network, gather: str) -> Schedule | None:
    """All sets to all ranks, which add them up; None where the topology doesn't have what the gather needs."""
    rows, pieces = Rows(network), list[Piece]()
    for rank, entries in enumerate(sets.counts[step].tolist()):
        tensor = rows.tensor(f"rank {rank}", entries)
        rows.builder.initial.append((tensor, rank, 1 << rank))
        if entries:
            pieces.append(Piece(tensor, rank, ENTRY_BYTES * entries))
            rows.builder.required += [(tensor, other, 1 << rank) for other in range(sets.ranks)]
    messages = GATHERS[gather](network, pieces)
    if messages is None:
        return None
    for message in messages:
        rows.send(message)
    return rows.schedule("TopkA")


def topkdsa(sets: IndexSets, step: int, network: Network, gather: str) -> Schedule | None:
    """Even regions, then an allgather of all sums, without balancing (SparCML's split and allgather)."""
    cuts = even_cuts(sets.elements, sets.ranks)
    counts = region_counts(sets.part(steps=slice(step, step + 1)), cuts)[0]
    union = np.diff(np.searchsorted(sets.union(step), cuts))
    return lower(StepSizes(counts, union), np.arange(sets.ranks), network, "rotation", gather, balances=False)


def dense_ring(elements: int, network: Network) -> Schedule | None:
    """A ring's reduce-scatter and allgather of the whole gradient; None where no ring is found."""
    try:
        links = fastest_ring(network.topology)
    except InputError:
        return None
    rows, count = Rows(network), network.topology.device_count
    sizes = np.diff(even_cuts(elements, count)).tolist()
    whole = (1 << count) - 1
    builder = rows.builder
    for chunk, size in enumerate(sizes):
        builder.tensor(f"chunk {chunk}", ELEMENT_BYTES * size)
        builder.initial += [(chunk, rank, 1 << rank) for rank in range(count)]
        builder.required += [(chunk, rank, whole) for rank in range(count)]
    for step in range(2 * (count - 1)):
        for place, link in enumerate(links):
            at, moved = float(len(builder.events)), ((place - step) % count,)
            builder.events.append(
                Event(EventKind.TRANSFER, at, at + 1, link, moves=moved, reduces=step < count - 1)
            )  # fmt: skip
    return rows.schedule("dense ring")
