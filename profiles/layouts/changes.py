"""Times of all changes from one layout of a tensor to another, as tables of edges."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.layouts.costs import NS, MeshCosts
from gapless.profiles.layouts.layouts import split_dimension
from gapless.profiles.layouts.tables import FORBIDDEN
from gapless.profiles.layouts.transitions import next_steps

__all__ = ["Changes", "even_layouts"]

Ints = NDArray[np.int64]


def even_layouts(shape: Sequence[int], mesh: Sequence[int], sums: Sequence[str] = ()) -> list[str]:
    """The layouts of a tensor that give each device a shard of the same size, whole everywhere first.

    `sums`: parts that stand for sums to be tried beside whole and split ones.
    """
    parts = ["R", *(f"S{dimension}" for dimension in range(len(shape))), *sums]
    return [",".join(each) for each in itertools.product(parts, repeat=len(mesh)) if _is_even(each, shape, mesh)]


def _is_even(parts: Sequence[str], shape: Sequence[int], mesh: Sequence[int]) -> bool:
    pieces: dict[int, int] = {}
    for part, devices in zip(parts, mesh, strict=True):
        dimension = split_dimension(part)
        if dimension is not None:
            pieces[dimension] = pieces.get(dimension, 1) * devices
    return all(shape[dimension] and shape[dimension] % count == 0 for dimension, count in pieces.items())


class Changes:
    """The least time of each change of layout of a tensor with `item_bytes` an element, in whole nanoseconds.

    A sum is made only where its terms are, or from a whole, which is cheap: nothing else becomes a sum.
    """

    def __init__(self, shape: tuple[int, ...], item_bytes: int, costs: MeshCosts) -> None:
        self.shape, self.item_bytes, self.costs = shape, item_bytes, costs

    @cached_property
    def number(self) -> dict[str, int]:
        """The row of each layout in `table`."""
        sums = ("P", "P(avg)", "P(mask)")
        return {layout: row for row, layout in enumerate(even_layouts(self.shape, self.costs.shape, sums))}

    @cached_property
    def table(self) -> Ints:
        """int64, shape (layouts, layouts): row before, column after; `FORBIDDEN` where nothing leads there."""
        count = len(self.number)
        least = np.full((count, count), np.inf)
        np.fill_diagonal(least, 0.0)
        sums = ",".join(["P"] * len(self.costs.shape))
        for before, row in self.number.items():
            for step in next_steps(before, sums, self.shape, self.item_bytes, self.costs.shape):
                parts = before.split(",")
                parts[step.axis] = step.after
                column = self.number[",".join(parts)]
                least[row, column] = min(least[row, column], self.costs.step_s(step))
        for between in range(count):
            np.minimum(least, least[:, between, None] + least[None, between, :], out=least)
        known = np.isfinite(least)
        return np.where(known, np.ceil(np.where(known, least, 0.0) * NS), FORBIDDEN).astype(np.int64)

    def between(self, before: Sequence[str], after: Sequence[str]) -> Ints:
        """int64, shape (before, after)."""
        rows = [self.number[layout] for layout in before]
        columns = [self.number[layout] for layout in after]
        return self.table[np.ix_(rows, columns)]
