"""Amounts: collectives of unlike shares, ALLTOALLV by the bytes of pairs of ranks, ALLGATHERV by those of each rank.

A share is cut into pieces, chunks of nearly equal bytes, as many as a plan likes. One of no bytes has none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.array_types import Ints
from gapless.errors import InputError
from gapless.ir.collective import MOST_CHUNKS, Collective

__all__ = ["ALLGATHERV", "ALLTOALLV", "VECTORS", "Amounts", "pieces_of"]

ALLTOALLV, ALLGATHERV = "alltoallv", "allgatherv"
VECTORS = {
    ALLTOALLV: "ALLTOALLV: rank d ends with every rank's part for it, whose bytes a matrix says",
    ALLGATHERV: "ALLGATHERV: every rank ends with every rank's data, whose bytes a vector says",
}
"""The collectives of unlike shares, with what they are."""
_ALIGNED_BYTES = 16
_MOST_BYTES = 10**15
"""Of one share, as of any size that people type."""


@dataclass(frozen=True)
class Amounts:
    """`rows[s][t]`: bytes from rank s to rank t, of ALLTOALLV; of ALLGATHERV `rows[0][s]`, those of rank s.

    What a rank has for itself stays where it is. Raises `InputError` for another collective, for a matrix that isn't
    square, bytes out of 0..10^15, and where nothing is to be sent.
    """

    collective: str
    rows: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if self.collective not in VECTORS:
            raise InputError(f"collective: must be one of {', '.join(sorted(VECTORS))}, got {self.collective!r}")
        count = len(self.rows[0]) if self.rows else 0
        lengths = {len(row) for row in self.rows}
        if self.is_gather and len(self.rows) != 1:
            raise InputError(f"matrix: must be one row, bytes by rank, for allgatherv, got {len(self.rows)} rows")
        if not self.is_gather and lengths != {len(self.rows)}:
            got = f"{len(self.rows)} rows of {' or '.join(map(str, sorted(lengths)))}"
            raise InputError(f"matrix: must be square, bytes from row to column, for alltoallv, got {got}")
        if count < 2:
            raise InputError(f"matrix: must be over at least 2 ranks, got {count}")
        for s, row in enumerate(self.rows):
            for t, size in enumerate(row):
                if not 0 <= size <= _MOST_BYTES:
                    raise InputError(f"matrix: row {s}, column {t}: must be bytes in 0..10^15, got {size}")
        if not self.sent.any():
            raise InputError("matrix: must have bytes for another rank, got none")

    @property
    def is_gather(self) -> bool:
        """Whether it is an ALLGATHERV."""
        return self.collective == ALLGATHERV

    @property
    def rank_count(self) -> int:
        """The number of ranks."""
        return len(self.rows[0])

    @cached_property
    def table(self) -> Ints:
        """`rows` as an array, int64."""
        return np.array(self.rows, dtype=np.int64)

    @cached_property
    def sent(self) -> Ints:
        """`sent[s, t]`: bytes that rank t wants from rank s, int64, 0 where they are the same."""
        matrix = np.repeat(self.table[0][:, None], self.rank_count, axis=1) if self.is_gather else self.table.copy()
        np.fill_diagonal(matrix, 0)
        return matrix

    @property
    def input_bytes(self) -> int:
        """Of the largest input buffer."""
        return int((self.table[0] if self.is_gather else self.table.sum(axis=1)).max())

    @property
    def output_bytes(self) -> int:
        """Of the largest output buffer."""
        return int(self.table.sum() if self.is_gather else self.table.sum(axis=0).max())

    @property
    def equal_bytes(self) -> int | None:
        """The bytes of every share that is sent, where all have as many; else None."""
        shares = self.table[0] if self.is_gather else self.sent[~np.eye(self.rank_count, dtype=np.bool_)]
        return int(shares[0]) if (shares == shares[0]).all() else None

    @property
    def turned(self) -> Amounts:
        """The other way round: what rank s had for t, t has for s."""
        return replace(self, rows=tuple(zip(*self.rows, strict=True)))

    def cut(self, pieces: Sequence[Sequence[int]]) -> Collective:
        """The collective in chunks; `pieces`: of each share, by the same rows, bytes that add up to the share."""
        ranks = self.rank_count
        sizes: list[int] = []
        inputs: list[list[int]] = [[] for _ in range(ranks)]
        outputs: list[list[int]] = [[] for _ in range(ranks)]
        everyone = range(ranks)
        for number, share in enumerate(pieces):
            source, target = (number, None) if self.is_gather else divmod(number, ranks)
            chunks = range(len(sizes), len(sizes) + len(share))
            sizes += share
            inputs[source] += chunks
            for rank in everyone if target is None else (target,):
                outputs[rank] += chunks
        if len(sizes) > MOST_CHUNKS:
            raise InputError(f"{self.collective}: must have at most {MOST_CHUNKS:,} chunks, got {len(sizes):,}")
        buffers = tuple(map(tuple, inputs)), tuple(map(tuple, outputs))
        return Collective(self.collective, ranks, 1, *buffers, chunk_sizes=tuple(sizes))


def pieces_of(size_bytes: int, count: int) -> list[int]:
    """Bytes of nearly equal pieces, at most so many; those of no bytes are left out.

    Where shares are large enough, pieces start at multiples of 16 bytes of the share, as devices like them.
    """
    unit = _ALIGNED_BYTES if size_bytes >= _ALIGNED_BYTES * count else 1
    units, rest = divmod(size_bytes, unit)
    small, more = divmod(units, count)
    pieces = [(small + (k < more)) * unit for k in range(count if small else more)]
    return [*pieces[:-1], pieces[-1] + rest] if pieces else []
