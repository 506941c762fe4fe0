"""Collective: what each rank holds before and after, chunk by chunk and buffer by buffer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from planwright.errors import InputError
from planwright.graph import Graph, Placement

__all__ = ["COLLECTIVES", "Collective", "allgather", "collective_by_name"]


@dataclass(frozen=True)
class Collective:
    """A collective over `rank_count` ranks.

    A chunk is the unit that is routed. `inputs[r]` and `outputs[r]` list the chunks in rank r's input and output
    buffer, in the order of the buffer. The pre- and postcondition follow: a rank holds its inputs at the start and
    its outputs at the end. `chunks_per_rank` is how many parts a rank's own data is cut into (TACCL's chunkup).
    """

    name: str
    rank_count: int
    chunks_per_rank: int
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[tuple[int, ...], ...]

    @property
    def chunk_count(self) -> int:
        """The number of different chunks."""
        return 1 + max(chunk for buffer in (*self.inputs, *self.outputs) for chunk in buffer)

    @property
    def owners(self) -> tuple[int, ...]:
        """`owners[c]`: the rank that holds chunk c at the start."""
        rank_of = {chunk: rank for rank, buffer in enumerate(self.inputs) for chunk in buffer}
        return tuple(rank_of[chunk] for chunk in range(self.chunk_count))

    @property
    def destinations(self) -> tuple[tuple[int, ...], ...]:
        """`destinations[c]`: the ranks that must hold chunk c at the end, its owner left out, ascending."""
        holders: list[list[int]] = [[] for _ in range(self.chunk_count)]
        for rank, buffer in enumerate(self.outputs):
            for chunk in buffer:
                holders[chunk].append(rank)
        return tuple(
            tuple(rank for rank in ranks if rank != owner) for ranks, owner in zip(holders, self.owners, strict=True)
        )

    def graph(self, chunk_bytes: int) -> Graph:
        """The collective in the graph IR: a tensor per chunk, no ops, pre- and postcondition as placements."""
        return Graph(
            size_bytes=np.full(self.chunk_count, chunk_bytes, dtype=np.int64),
            initial=Placement.of([(chunk, rank) for rank, buffer in enumerate(self.inputs) for chunk in buffer]),
            required=Placement.of([(chunk, rank) for rank, buffer in enumerate(self.outputs) for chunk in buffer]),
        )


def allgather(rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """ALLGATHER: every rank ends with every rank's data; chunk r * chunks_per_rank + k is part k of rank r's."""
    if rank_count < 2:
        raise InputError(f"allgather: rank_count must be >= 2, got {rank_count}")
    if chunks_per_rank < 1:
        raise InputError(f"allgather: chunks_per_rank must be >= 1, got {chunks_per_rank}")
    everything = tuple(range(rank_count * chunks_per_rank))
    return Collective(
        name="allgather",
        rank_count=rank_count,
        chunks_per_rank=chunks_per_rank,
        inputs=tuple(everything[rank * chunks_per_rank : (rank + 1) * chunks_per_rank] for rank in range(rank_count)),
        outputs=(everything,) * rank_count,
    )


COLLECTIVES = {"allgather": allgather}
"""Builders by name: (rank_count, chunks_per_rank) -> Collective."""


def collective_by_name(name: str, rank_count: int, chunks_per_rank: int = 1) -> Collective:
    """The named collective; raises `InputError` for a name that is not in `COLLECTIVES`."""
    if name not in COLLECTIVES:
        raise InputError(f"collective: must be one of {', '.join(sorted(COLLECTIVES))}, got {name!r}")
    return COLLECTIVES[name](rank_count, chunks_per_rank)
