"""Other allreduces of the same step as schedules, to be replayed beside a plan: TopkA, TopkDSA, gTopk, a dense ring.

Gaussiank is TopkA of the sets that its thresholds choose. Adding takes what it takes a plan's owners, but for the dense
ring, whose additions are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.oktopk.allreduce.gathers import GATHERS, Message, Piece
from gapless.encodings.oktopk.allreduce.lowering import Rows, StepSizes, in_buckets, lower
from gapless.encodings.oktopk.allreduce.network import ENTRY_BYTES, Network
from gapless.encodings.oktopk.cuts.boundaries import even_cuts
from gapless.encodings.oktopk.cuts.loads import region_counts
from gapless.errors import InputError
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.profiles.sparsity.index_sets import IndexSets
from gapless.topologies.ring import fastest_ring

__all__ = ["dense_ring", "gtopk", "topka", "topkdsa"]

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
    if not network.adding.is_free:
        _add_all(rows, messages)
    return rows.schedule("TopkA")


_BUCKETS = 16
"""In which TopkA's sets are added at most."""


def _add_all(rows: Rows, messages: Sequence[Message]) -> None:
    """Every rank adds all sets, in the order in which they come."""
    ranks, received = len(rows.builder.initial), [list[int]() for _ in rows.builder.initial]
    everyone = sum(bits for tensor, _, bits in rows.builder.initial if rows.builder.size_bytes[tensor])
    for message in messages:
        received[message.target] += message.tensors
    for rank, tensors in enumerate(received):
        total = rows.tensor(f"sum on rank {rank}", 0)
        own = (rank,) if rows.builder.size_bytes[rank] else ()
        rows.add_up(f"sum on rank {rank}", rank, own, in_buckets(tensors, -(-ranks // _BUCKETS)), (total,))
        rows.builder.required.append((total, rank, everyone))


def topkdsa(sets: IndexSets, step: int, network: Network, gather: str) -> Schedule | None:
    """Even regions, then an allgather of all sums, without balancing (SparCML's split and allgather): of all of the
    regions' elements, without indices, where that is less.
    """
    cuts = even_cuts(sets.elements, sets.ranks)
    counts = region_counts(sets.part(steps=slice(step, step + 1)), cuts)[0]
    union = np.diff(np.searchsorted(sets.union(step), cuts))
    is_dense = ENTRY_BYTES * int(union.sum()) > ELEMENT_BYTES * sets.elements
    sum_bytes = ELEMENT_BYTES * np.diff(cuts) if is_dense else None
    sizes = StepSizes(counts, union, sum_bytes)
    return lower(sizes, np.arange(sets.ranks), network, "rotation", gather, balances=False)


def gtopk(sets: IndexSets, step: int, network: Network) -> Schedule:
    """Up a binomial tree, at whose nodes two sets are added and the k largest kept, and down it (Shi et al., 2019).

    k: what the rank that selects most does. Raises `InputError` for sets without values, of which k can't be chosen.
    """
    rows, count = Rows(network), int(sets.counts[step].max())
    held = [_largest(sets.of(step, rank), sets.values_of(step, rank), count) for rank in range(sets.ranks)]
    tensors = list[int]()
    bits = [1 << rank for rank in range(sets.ranks)]
    for rank, (places, _) in enumerate(held):
        tensors.append(rows.tensor(f"rank {rank}", len(places)))
        rows.builder.initial.append((tensors[rank], rank, bits[rank]))
    hops = _tree_hops(sets.ranks)
    for number, (source, target) in enumerate(hops):
        rows.send(Message(source, target, (tensors[source],)))
        held[target] = _merged(held[target], held[source], count)
        kept = rows.tensor(f"node {number}", len(held[target][0]))
        rows.add_up(f"region {number}", target, (tensors[target],), [[tensors[source]]], (kept,))
        tensors[target] = kept
        bits[target] |= bits[source]
    for source, target in reversed(hops):
        rows.send(Message(target, source, (tensors[0],)))
    rows.builder.required += [(tensors[0], rank, bits[0]) for rank in range(sets.ranks)]
    return rows.schedule("gTopk")


def _tree_hops(ranks: int) -> list[tuple[int, int]]:
    """(source, target) of the binomial tree up to rank 0, level by level."""
    hops, distance = list[tuple[int, int]](), 1
    while distance < ranks:
        hops += [(rank, rank - distance) for rank in range(distance, ranks, 2 * distance)]
        distance *= 2
    return hops


Held = tuple[NDArray[np.int32], NDArray[np.float32]]
"""Places, ascending, and their entries."""


def _merged(own: Held, other: Held, count: int) -> Held:
    """The largest of two sets' sums."""
    places, number = np.unique(np.concatenate([own[0], other[0]]), return_inverse=True)
    sums = np.zeros(len(places), dtype=np.float32)
    np.add.at(sums, number, np.concatenate([own[1], other[1]]))
    return _largest(places, sums, count)


def _largest(places: NDArray[np.int32], values: NDArray[np.float32], count: int) -> Held:
    """Those of largest magnitude, of equal ones those of lower places."""
    kept = np.sort(np.argsort(-np.abs(values), kind="stable")[:count])
    return places[kept], values[kept]


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
