"""The MILP of a window: partitions of consecutive batches at once that keep the most rows where they are.

`x[i, j]` is 1 where example i, of any batch of the window, is trained on trainer j. A row is kept on j, `keep[e, j]`,
only where all examples that use it are: those of two batches that follow each other, or those of one batch where the
row has a root already, j alone, or leaves the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.partition.cuts import Ints
from gapless.encodings.bagpipe.partition.milp import Encoding
from gapless.model import Model

__all__ = ["Keep", "decode_window", "encode_window"]


@dataclass(frozen=True)
class Keep:
    """A row that is kept where these examples, numbered through the window, are on one trainer; `root`: on which."""

    examples: Ints
    root: int | None


def encode_window(keeps: Sequence[Keep], capacities: Sequence[Ints]) -> Encoding:
    """Fewest rows that aren't kept. `capacities`: places of each trainer, by batch."""
    trainers = len(capacities[0])
    sizes = [int(places.sum()) for places in capacities]
    model = Model("bagpipe window")
    place = model.binaries("x", (sum(sizes), trainers))
    model.add("one trainer each", (1.0, place), lower=1.0, upper=1.0, cite="Bagpipe, constraint (i)")
    row = np.repeat(np.arange(len(capacities)), sizes)[:, None] * trainers + np.arange(trainers)
    full = np.concatenate(capacities).astype(np.float64)
    model.add_sparse(
        "full trainers", len(full), row.ravel(), place.ravel(), 1.0, lower=full, upper=full,
        cite="Bagpipe, constraint (ii)",
    )  # fmt: skip
    pairs = [(number, j) for number, keep in enumerate(keeps) for j in _possible(keep, trainers)]
    if pairs:
        kept = model.binaries("keep", len(pairs))
        users = [keeps[number].examples for number, _ in pairs]
        where = np.concatenate([place[examples, j] for examples, (_, j) in zip(users, pairs, strict=True)])
        columns = np.stack([np.repeat(kept, [len(examples) for examples in users]), where], axis=1)
        model.add("kept where all are", (np.array([1.0, -1.0]), columns), upper=0.0)
        model.minimize((-1.0, kept), offset=float(len(keeps)))
    return Encoding(model, place)


def _possible(keep: Keep, trainers: int) -> Sequence[int]:
    return range(trainers) if keep.root is None else (keep.root,)


def decode_window(encoding: Encoding, values: NDArray[np.float64], capacities: Sequence[Ints]) -> list[Ints]:
    """The trainers of each batch's examples at a point."""
    trainer = values[encoding.place].argmax(axis=1).astype(np.int64)
    return np.split(trainer, np.cumsum([int(places.sum()) for places in capacities])[:-1])
