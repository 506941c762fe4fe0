"""The buffers of all GPUs while a program is executed, filled so that whatever goes wrong shows in the result."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.io.taccl_ef.buffers import alias_start
from gapless.io.taccl_ef.program import Problem

__all__ = ["ELEMENTS", "Memory", "Values", "layout"]

Values = NDArray[np.int64]
ELEMENTS = 4
"""Elements of a chunk: the first is the chunk's own number, for names; the others are random, so that sums of other
parts, or chunks at the wrong place, never look right."""
NAMED_CHUNKS = 64
"""Wrong chunks that are looked up one by one; the others are counted."""
RANDOM_BITS = 40
"""So that a sum over thousands of ranks still fits 63 bits."""


class Memory:
    """All GPUs' buffers: `cells[g]` holds the chunks of GPU g, `bases[g]` says where each buffer starts in it.

    `store` is the memory of all GPUs in one, in which that of GPU g starts at `starts[g]`.
    `sizes[g]`: chunks of GPU g's input, output and scratch buffer. `in_place`: whether input and output are one memory.
    """

    def __init__(self, sizes: Sequence[tuple[int, int, int]], in_place: bool) -> None:
        rng = np.random.default_rng(0)
        self.bases = [layout(rank, inputs, outputs, in_place) for rank, (inputs, outputs, _) in enumerate(sizes)]
        totals = [base["s"] + scratch for base, (_, _, scratch) in zip(self.bases, sizes, strict=True)]
        self.starts = np.cumsum([0, *totals])
        self.store: Values = np.zeros((self.starts[-1], ELEMENTS), dtype=np.int64)
        self.store_is_written: NDArray[np.bool_] = np.zeros(self.starts[-1], dtype=np.bool_)
        self.cells: list[Values] = np.split(self.store, self.starts[1:-1])
        self.is_written: list[NDArray[np.bool_]] = np.split(self.store_is_written, self.starts[1:-1])
        self.inputs: list[Values] = []
        start = 1
        for rank, (count, _, _) in enumerate(sizes):
            value = rng.integers(2**RANDOM_BITS, size=(count, ELEMENTS), dtype=np.int64)
            value[:, 0] = np.arange(start, start + count)
            start += count
            mine = slice(self.bases[rank]["i"], self.bases[rank]["i"] + count)
            self.inputs.append(value)
            self.cells[rank][mine] = value
            self.is_written[rank][mine] = True

    def wrong_chunks(self, collective: Collective, parts: int) -> list[Problem]:
        """Every output chunk that is not what the collective says; `parts`: chunks that each of its own is cut into."""
        expected = np.zeros((collective.chunk_count, parts, ELEMENTS), dtype=np.int64)
        for rank, buffer in enumerate(collective.inputs):
            np.add.at(expected, np.array(buffer, dtype=np.intp), self.inputs[rank].reshape(-1, parts, ELEMENTS))
        problems: list[Problem] = []
        unnamed = 0
        for rank, buffer in enumerate(collective.outputs):
            base = self.bases[rank]["o"]
            got = self.cells[rank][base : base + len(buffer) * parts]
            wrong = (got != expected[np.array(buffer, dtype=np.intp)].reshape(-1, ELEMENTS)).any(axis=1)
            for cell in np.flatnonzero(wrong).tolist():
                if len(problems) == NAMED_CHUNKS:
                    unnamed += 1
                    continue
                index, part = divmod(cell, parts)
                name = f"rank {rank} output chunk {index}" + (f" part {part} of {parts}" if parts > 1 else "")
                problems.append(self._wrong(rank, base + cell, name, _holders(collective, buffer[index]), parts))
        if unnamed:
            problems.append(Problem("wrong-chunk", f"{unnamed} more output chunks are wrong"))
        return problems

    def _wrong(self, rank: int, cell: int, name: str, holders: list[str], parts: int) -> Problem:
        wanted = holders[0] if len(holders) == 1 else f"the sum of {', '.join(holders)}"
        if not self.is_written[rank][cell]:
            return Problem("missing-chunk", f"{name}: expected {wanted}, but nothing was written there", rank)
        got = "something else (a mix, or a wrong sum)"
        for other, inputs in enumerate(self.inputs):
            same = np.flatnonzero((inputs == self.cells[rank][cell]).all(axis=1))
            if len(same):
                part = f" part {same[0] % parts}" if parts > 1 else ""
                got = f"rank {other}'s input {same[0] // parts}{part}"
        return Problem("wrong-chunk", f"{name}: expected {wanted}, got {got}", rank)


def _holders(collective: Collective, chunk: int) -> list[str]:
    """The inputs that a chunk is made of."""
    found = enumerate(collective.inputs)
    return [
        f"rank {rank}'s input {index}" for rank, buffer in found for index, each in enumerate(buffer) if each == chunk
    ]


def layout(rank: int, inputs: int, outputs: int, in_place: bool) -> dict[str, int]:
    """Where the buffers start in a GPU's memory, given the chunks of input and output."""
    if not in_place:
        return {"i": 0, "o": inputs, "s": inputs + outputs}
    return {**alias_start(rank, inputs, outputs), "s": max(inputs, outputs)}
