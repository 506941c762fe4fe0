"""Collective: what each rank holds before and after, chunk by chunk and buffer by buffer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.ir.graph import Graph, Placement

__all__ = [
    "COLLECTIVES", "ROOTED", "Collective", "allgather", "allreduce", "alltoall", "broadcast", "collective_by_name",
    "divided", "gather", "inverse", "reduce", "reducescatter", "scatter", "sendrecv",
]  # fmt: skip

Buffers = tuple[tuple[int, ...], ...]

MOST_CHUNKS = 1_000_000
"""Of all ranks together; far more than any stage can plan."""


@dataclass(frozen=True)
class Collective:
    """A collective over `rank_count` ranks.

    A chunk is the unit that is routed. `inputs[r]` and `outputs[r]` list the chunks in rank r's input and output
    buffer, in the order of the buffer. The pre- and postcondition follow: a rank holds its inputs at the start and
    its outputs at the end. `chunks_per_rank` is how many parts a rank's own data is cut into.

    Where it `reduces`, every rank that has a chunk in its input holds its own contribution to it, and a chunk in an
    output is the sum of them all; else a chunk has one owner. `chunk_sizes`: the bytes of each chunk where they are
    unlike, None where all have as many, whatever that is. Raises `InputError` where a chunk is in no input, or in more
    than one without being reduced, and for sizes that aren't one of at least a byte for each chunk.
    """

    name: str
    rank_count: int
    chunks_per_rank: int
    inputs: Buffers
    outputs: Buffers
    reduces: bool = False
    chunk_sizes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        if self.chunk_sizes is not None:
            self._check_sizes(self.chunk_sizes)
        for title, buffers in (("inputs", self.inputs), ("outputs", self.outputs)):
            if len(buffers) != self.rank_count:
                raise InputError(f"{self.name}: {title} must be {self.rank_count} lists, got {len(buffers)}")
            for rank, buffer in enumerate(buffers):
                if len(set(buffer)) != len(buffer):
                    raise InputError(f"{self.name}: {title}[{rank}] must not hold a chunk twice")
        holders = [0] * self.chunk_count
        for buffer in self.inputs:
            for chunk in buffer:
                holders[chunk] += 1
        for chunk, count in enumerate(holders):
            if count == 0 or (count > 1 and not self.reduces):
                rule = "one rank or more" if self.reduces else "exactly one rank"
                raise InputError(f"{self.name}: chunk {chunk} must be in the input of {rule}, got {count}")

    def _check_sizes(self, sizes: tuple[int, ...]) -> None:
        if len(sizes) != self.chunk_count or min(sizes) < 1:
            got = f"{len(sizes)} of at least {min(sizes, default=0)}"
            raise InputError(f"{self.name}: chunk_sizes must be {self.chunk_count} of at least 1 byte, got {got}")

    @cached_property
    def chunk_count(self) -> int:
        """The number of different chunks."""
        return 1 + max(chunk for buffer in (*self.inputs, *self.outputs) for chunk in buffer)

    @cached_property
    def owners(self) -> tuple[int, ...]:
        """`owners[c]`: the rank that holds chunk c at the start. Raises `InputError` where it `reduces`."""
        if self.reduces:
            raise InputError(f"{self.name}: a chunk that is reduced has no single owner")
        rank_of = {chunk: rank for rank, buffer in enumerate(self.inputs) for chunk in buffer}
        return tuple(rank_of[chunk] for chunk in range(self.chunk_count))

    @cached_property
    def contributors(self) -> Buffers:
        """`contributors[c]`: the ranks that hold (their part of) chunk c at the start, ascending."""
        return _holders(self.inputs, self.chunk_count)

    @cached_property
    def destinations(self) -> Buffers:
        """`destinations[c]`: the ranks that must hold chunk c at the end, its owner left out, ascending."""
        holders = _holders(self.outputs, self.chunk_count)
        if self.reduces:
            return holders
        return tuple(
            tuple(rank for rank in ranks if rank != owner) if owner in ranks else ranks
            for ranks, owner in zip(holders, self.owners, strict=True)
        )

    @cached_property
    def roots(self) -> tuple[int, ...]:
        """`roots[c]`: the rank from which chunk c is spread; where it `reduces`, one of those that want its sum, which
        is added up there first.

        Of several that want it, it is one that has a part of it, if there is such a rank. Chunks for which the same
        ranks come into question are dealt to these in equal runs, so that the chunks of an ALLREDUCE have the roots
        that REDUCESCATTER gives them. A sum of one part, or that nobody wants, has its root where it starts.
        """
        if not self.reduces:
            return self.owners
        classes: dict[tuple[int, ...], list[int]] = {}
        for chunk, (parts, wants) in enumerate(zip(self.contributors, self.destinations, strict=True)):
            both = tuple(sorted({*parts} & {*wants}))
            ranks = parts[:1] if len(parts) == 1 or not wants else both or wants
            classes.setdefault(ranks, []).append(chunk)
        roots = [0] * self.chunk_count
        for ranks, chunks in classes.items():
            for number, chunk in enumerate(chunks):
                roots[chunk] = ranks[number * len(ranks) // len(chunks)]
        return tuple(roots)

    def rooted(self, roots: tuple[int, ...]) -> Collective:
        """The same, with these `roots` of its sums, which are the planner's choice and not a part of what is asked."""
        if len(roots) != self.chunk_count or not self.reduces:
            raise InputError(f"{self.name}: roots must be {self.chunk_count} ranks of a collective that reduces")
        same = replace(self)
        same.__dict__["roots"] = roots
        return same

    def graph(self, chunk_bytes: int) -> Graph:
        """The collective in the graph IR: a tensor per chunk, no ops, pre- and postcondition as placements.

        `chunk_bytes`: of each chunk, unless it has `chunk_sizes`. Where it reduces, rank r's part of a chunk is
        contribution r.
        """
        before = [(chunk, rank) for rank, buffer in enumerate(self.inputs) for chunk in buffer]
        after = [(chunk, rank) for rank, buffer in enumerate(self.outputs) for chunk in buffer]
        parts = whole = None
        if self.reduces:
            bits = [1 << rank for rank in range(self.rank_count)]
            sum_of = {ranks: sum(bits[rank] for rank in ranks) for ranks in set(self.contributors)}
            sums = [sum_of[ranks] for ranks in self.contributors]
            parts, whole = [bits[rank] for _, rank in before], [sums[chunk] for chunk, _ in after]
        return Graph(
            size_bytes=np.full(self.chunk_count, self.chunk_sizes or chunk_bytes, dtype=np.int64),
            initial=Placement.of(before, parts),
            required=Placement.of(after, whole),
        )


def inverse(collective: Collective, name: str = "") -> Collective:
    """The collective backwards: what was sent to many ranks is reduced from them (BROADCAST becomes REDUCE).

    Raises `InputError` for one that reduces already.
    """
    if collective.reduces:
        raise InputError(f"{collective.name}: already reduces, it has no inverse that does")
    return replace(
        collective, name=name or f"inverse_{collective.name}", inputs=collective.outputs, outputs=collective.inputs,
        reduces=True,
    )  # fmt: skip


def divided(collective: Collective, parts: int) -> Collective:
    """The collective with each chunk cut into `parts`: part k of chunk c is chunk c * parts + k."""

    def cut(buffers: Buffers) -> Buffers:
        return tuple(tuple(chunk * parts + k for chunk in buffer for k in range(parts)) for buffer in buffers)

    if parts < 1:
        raise InputError(f"{collective.name}: parts must be >= 1, got {parts}")
    if collective.chunk_sizes is not None:
        raise InputError(f"{collective.name}: chunks of unlike sizes can't be cut into parts; cut the bytes instead")
    return replace(
        collective, chunks_per_rank=collective.chunks_per_rank * parts, inputs=cut(collective.inputs),
        outputs=cut(collective.outputs),
    )  # fmt: skip


def allgather(rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """ALLGATHER: every rank ends with every rank's data; chunk r * chunks_per_rank + k is part k of rank r's."""
    shares = _shares(rank_count, chunks_per_rank)
    return Collective("allgather", rank_count, chunks_per_rank, shares, (sum(shares, ()),) * rank_count)


def reducescatter(rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """REDUCESCATTER: rank r ends with the sum of every rank's r-th part, which is `chunks_per_rank` chunks."""
    return inverse(allgather(rank_count, chunks_per_rank), "reducescatter")


def allreduce(rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """ALLREDUCE: every rank ends with the sum of all; a buffer is cut into `chunks_per_rank` chunks for each rank."""
    whole = (sum(_shares(rank_count, chunks_per_rank), ()),) * rank_count
    return Collective("allreduce", rank_count, chunks_per_rank, whole, whole, reduces=True)


def alltoall(rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """ALLTOALL: rank d ends with the d-th part of every rank's buffer, in order of the ranks.

    `chunks_per_rank` counts the chunks of a whole buffer and must be a multiple of `rank_count`; 1 stands for one
    chunk for each destination.
    """
    per_pair = 1 if chunks_per_rank == 1 else chunks_per_rank // rank_count
    if chunks_per_rank != 1 and chunks_per_rank % rank_count:
        raise InputError(
            f"alltoall: chunks_per_rank must be 1 or a multiple of the {rank_count} ranks, got {chunks_per_rank}"
        )
    whole = per_pair * rank_count
    outputs = tuple(
        tuple(source * whole + target * per_pair + k for source in range(rank_count) for k in range(per_pair))
        for target in range(rank_count)
    )
    return Collective("alltoall", rank_count, whole, _shares(rank_count, whole), outputs)


def broadcast(rank_count: int, chunks_per_rank: int = 1, root: int = 0) -> Collective:
    """BROADCAST: every rank ends with the root's data."""
    whole = _shares(rank_count, chunks_per_rank)[0]
    _check_rank("broadcast", "root", root, rank_count)
    return Collective("broadcast", rank_count, chunks_per_rank, _only(root, whole, rank_count), (whole,) * rank_count)


def reduce(rank_count: int, chunks_per_rank: int = 1, root: int = 0) -> Collective:
    """REDUCE: the root ends with the sum of all."""
    _check_rank("reduce", "root", root, rank_count)
    return inverse(broadcast(rank_count, chunks_per_rank, root), "reduce")


def gather(rank_count: int, chunks_per_rank: int = 1, root: int = 0) -> Collective:
    """GATHER: the root ends with every rank's data."""
    shares = _shares(rank_count, chunks_per_rank)
    _check_rank("gather", "root", root, rank_count)
    return Collective("gather", rank_count, chunks_per_rank, shares, _only(root, sum(shares, ()), rank_count))


def scatter(rank_count: int, chunks_per_rank: int = 1, root: int = 0) -> Collective:
    """SCATTER: rank r ends with the r-th part of the root's data, which is `chunks_per_rank` chunks."""
    shares = _shares(rank_count, chunks_per_rank)
    _check_rank("scatter", "root", root, rank_count)
    return Collective("scatter", rank_count, chunks_per_rank, _only(root, sum(shares, ()), rank_count), shares)


def sendrecv(rank_count: int, chunks_per_rank: int = 1, root: int = 0, target: int | None = None) -> Collective:
    """SENDRECV: the data of rank `root` end on rank `target` too, by default the last rank (or the first)."""
    whole = _shares(rank_count, chunks_per_rank)[0]
    _check_rank("sendrecv", "root", root, rank_count)
    if target is None:
        target = rank_count - 1 if root != rank_count - 1 else 0
    _check_rank("sendrecv", "target", target, rank_count)
    if target == root:
        raise InputError(f"sendrecv: target must differ from root, got {target}")
    sides = (_only(root, whole, rank_count), _only(target, whole, rank_count))
    return Collective("sendrecv", rank_count, chunks_per_rank, *sides)


COLLECTIVES: dict[str, Callable[..., Collective]] = {
    "allgather": allgather,
    "allreduce": allreduce,
    "alltoall": alltoall,
    "broadcast": broadcast,
    "gather": gather,
    "reduce": reduce,
    "reducescatter": reducescatter,
    "scatter": scatter,
    "sendrecv": sendrecv,
}
"""Builders by name: (rank_count, chunks_per_rank) -> Collective; those with a root take it too."""


def collective_by_name(
    name: str, rank_count: int, chunks_per_rank: int = 1, root: int | None = None, target: int | None = None
) -> Collective:
    """The named collective.

    Raises `InputError` for a name that is not in `COLLECTIVES`, or a root or target that it has not.
    """
    if name not in COLLECTIVES:
        hint = suggestion(name, COLLECTIVES)
        rule = f"must be one of {', '.join(sorted(COLLECTIVES))}"
        raise InputError(f"collective: {rule}, got {name!r}" + (f"; {hint}" if hint else ""))
    if root is not None and name not in ROOTED:
        raise InputError(f"root: must be left out, {name} has none; got {root}")
    if target is not None and name != "sendrecv":
        raise InputError(f"target: must be left out, only sendrecv has one; got {target}")
    ends = {title: rank for title, rank in (("root", root), ("target", target)) if rank is not None}
    return COLLECTIVES[name](rank_count, chunks_per_rank, **ends)


ROOTED = ("broadcast", "gather", "reduce", "scatter", "sendrecv")


def _shares(rank_count: int, chunks_per_rank: int) -> Buffers:
    """`chunks_per_rank` new chunks for each rank."""
    if rank_count < 2:
        raise InputError(f"collective: rank_count must be >= 2, got {rank_count}")
    if chunks_per_rank < 1:
        raise InputError(f"collective: chunks_per_rank must be >= 1, got {chunks_per_rank}")
    if rank_count * chunks_per_rank > MOST_CHUNKS:
        got = f"{rank_count} ranks with {chunks_per_rank} each"
        raise InputError(f"collective: all ranks' chunks must be at most {MOST_CHUNKS:,}, got {got}")
    return tuple(tuple(range(rank * chunks_per_rank, (rank + 1) * chunks_per_rank)) for rank in range(rank_count))


def _only(rank: int, buffer: tuple[int, ...], rank_count: int) -> Buffers:
    return tuple(buffer if other == rank else () for other in range(rank_count))


def _check_rank(name: str, title: str, rank: int, rank_count: int) -> None:
    if not 0 <= rank < rank_count:
        raise InputError(f"{name}: {title} must be in 0..{rank_count - 1}, got {rank}")


def _holders(buffers: Buffers, chunk_count: int) -> Buffers:
    holders: list[list[int]] = [[] for _ in range(chunk_count)]
    for rank, buffer in enumerate(buffers):
        for chunk in buffer:
            holders[chunk].append(rank)
    return tuple(map(tuple, holders))
