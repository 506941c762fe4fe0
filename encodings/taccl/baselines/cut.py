"""Cut: a collective's buffers in the blocks that the algorithms move, each block in equal parts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.ir.collective import COLLECTIVES, ROOTED, Collective, collective_by_name, divided

__all__ = ["Cut", "cut", "factor_of", "root_of", "standard_name"]


@dataclass(frozen=True)
class Cut:
    """A collective whose chunks are small enough for blocks to be cut into `parts` parts of (nearly) equal size.

    `blocks[b]`: the chunks of block b. ALLGATHER, REDUCESCATTER and ALLREDUCE have a block for each rank, what is
    rooted and the same everywhere has one; the others have none.
    """

    collective: Collective
    chunk_bytes: int
    parts: int
    blocks: tuple[tuple[int, ...], ...]

    def part(self, chunks: tuple[int, ...], number: int) -> tuple[int, ...]:
        """Part `number` of some chunks."""
        count = len(chunks)
        return chunks[number * count // self.parts : (number + 1) * count // self.parts]


def cut(collective: Collective, chunk_bytes: int, parts: int, whole: bool = False) -> Cut:
    """Cut chunks further where the blocks, or all of them as a `whole`, do not divide into `parts` as they are."""
    factor = factor_of(collective, parts, whole)
    fine = collective if factor == 1 else divided(collective, factor)
    return Cut(fine, -(-chunk_bytes // factor), parts, _blocks(fine))


def factor_of(collective: Collective, parts: int, whole: bool = False) -> int:
    """Into how many each chunk has to be cut, so that blocks, or all of them, divide into so many parts."""
    unit = collective.chunk_count if whole else math.gcd(*(len(block) for block in _units(collective)))
    return parts // math.gcd(unit, parts)


def standard_name(collective: Collective) -> str | None:
    """Its name where it is what the name says, None for one of the user's own."""
    name = collective.name
    if name not in COLLECTIVES:
        return None
    root = root_of(collective) if name in ROOTED else None
    if name in ROOTED and root is None:
        return None
    if name == "sendrecv":  # its target is free
        return name
    same = collective_by_name(name, collective.rank_count, collective.chunks_per_rank, root)
    return name if same == collective else None


def root_of(collective: Collective) -> int | None:
    """The one rank that holds all at the start, or else at the end; None where there is no such rank."""
    for buffers in (collective.inputs, collective.outputs):
        holders = [rank for rank, buffer in enumerate(buffers) if buffer]
        if len(holders) == 1:
            return holders[0]
    return None


def _units(collective: Collective) -> list[tuple[int, ...]]:
    """What is cut into parts: the blocks, or else what each rank has for each other."""
    blocks = _blocks(collective)
    if blocks or collective.reduces:
        return list(blocks)
    pairs: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for chunk, (owner, ranks) in enumerate(zip(collective.owners, collective.destinations, strict=True)):
        pairs.setdefault((owner, ranks), []).append(chunk)
    return [tuple(chunks) for chunks in pairs.values()]


def _blocks(collective: Collective) -> tuple[tuple[int, ...], ...]:
    name = collective.name
    if name == "allgather":
        return collective.inputs
    if name == "reducescatter":
        return collective.outputs
    if name == "allreduce":
        size = collective.chunk_count // collective.rank_count
        return tuple(tuple(range(k * size, (k + 1) * size)) for k in range(collective.rank_count))
    return (tuple(range(collective.chunk_count)),) if name in ("broadcast", "reduce") else ()
