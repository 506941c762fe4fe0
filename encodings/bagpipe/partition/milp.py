"""The paper's partition MILP and its relaxation, and MILPs of the objectives beyond it for small batches and windows.

`x[i, j]` is 1 where example i is trained on trainer j. With costs per example and trainer the rows are those of a
transportation problem: totally unimodular, so that the relaxation has a whole optimum and the model is a network.

In a window `x` has the examples of all its batches. A row is kept on j, `keep[e, j]`, only where all examples that use
it are: those of two batches that follow each other, or those of one batch where the row has a root already, j alone, or
leaves the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.partition.batch import Sharing
from gapless.model import Model
from gapless.profiles.traces.bags import lookups

__all__ = [
    "Encoding",
    "Keep",
    "decode",
    "encode",
    "encode_fetches",
    "encode_max_load",
    "encode_messages",
    "encode_window",
]


@dataclass(frozen=True)
class Encoding:
    """The model, and `place[i, j]`: the column of x for example i on trainer j, int64."""

    model: Model
    place: Ints


@dataclass(frozen=True)
class Keep:
    """A row that is kept where these examples, numbered through the window, are on one trainer; `root`: on which."""

    examples: Ints
    root: int | None


def encode(cost: NDArray[np.integer], capacity: Ints, relaxed: bool = False) -> Encoding:
    """The partition of least cost; with `relaxed` its linear relaxation."""
    encoding = _with_places(Model("bagpipe partition"), [capacity], relaxed)
    encoding.model.minimize((cost, encoding.place))
    return encoding


def encode_fetches(sharing: Sharing, capacity: Ints) -> Encoding:
    """The partition with the fewest fetches, each id once per trainer and batch."""
    encoding, used, _ = _with_uses(sharing, capacity, "bagpipe fetches")
    encoding.model.minimize((1.0, used))
    return encoding


def encode_max_load(sharing: Sharing, capacity: Ints) -> Encoding:
    """The partition whose busiest trainer receives and sends the fewest rows."""
    encoding, used, pairs = _with_uses(sharing, capacity, "bagpipe max-load")
    trainers = sharing.trainers
    most = encoding.model.integers("most", (), upper=float(2 * len(used)))
    id_, receiver = pairs
    is_sent = sharing.owner[id_] >= 0
    encoding.model.add_sparse(
        "the busiest",
        trainers,
        np.concatenate([np.arange(trainers), receiver, sharing.owner[id_][is_sent]]),
        np.concatenate([np.full(trainers, most), used, used[is_sent]]),
        np.concatenate([np.ones(trainers), -np.ones(len(used) + int(is_sent.sum()))]),
        lower=0.0,
    )
    encoding.model.minimize((1.0, most))
    return encoding


def encode_messages(sharing: Sharing, worth: Ints, capacity: Ints) -> Encoding:
    """Fewest messages, of which a trainer that uses an id costs `worth[id, trainer]`. `sharing`: without owners."""
    encoding, used, (id_, trainer) = _with_uses(sharing, capacity, "bagpipe messages")
    encoding.model.minimize((worth[id_, trainer].astype(np.float64), used))
    return encoding


def encode_window(keeps: Sequence[Keep], capacities: Sequence[Ints]) -> Encoding:
    """Fewest rows that aren't kept. `capacities`: places of each trainer, by batch."""
    encoding, trainers = _with_places(Model("bagpipe window"), capacities), len(capacities[0])
    model = encoding.model
    pairs = [
        (keep.examples, trainer)
        for keep in keeps
        for trainer in (range(trainers) if keep.root is None else (keep.root,))
    ]
    if pairs:
        kept = model.binaries("keep", len(pairs))
        where = np.concatenate([encoding.place[examples, trainer] for examples, trainer in pairs])
        columns = np.stack([np.repeat(kept, [len(examples) for examples, _ in pairs]), where], axis=1)
        model.add("kept where all are", (np.array([1.0, -1.0]), columns), upper=0.0)
        model.minimize((-1.0, kept), offset=float(len(keeps)))
    return encoding


def decode(encoding: Encoding, values: Floats) -> Ints:
    """The trainer of each example at a point."""
    trainer: Ints = values[encoding.place].argmax(axis=1).astype(np.int64)
    return trainer


def _with_places(model: Model, capacities: Sequence[Ints], relaxed: bool = False) -> Encoding:
    """x, for the examples of some batches: each on one trainer, each trainer with as many as it has places."""
    sizes, trainers = [int(places.sum()) for places in capacities], len(capacities[0])
    shape = (sum(sizes), trainers)
    place = model.continuous("x", shape, upper=1.0) if relaxed else model.binaries("x", shape)
    model.add("one trainer each", (1.0, place), lower=1.0, upper=1.0, cite="Bagpipe, constraint (i)")
    row = np.repeat(np.arange(len(sizes)), sizes)[:, None] * trainers + np.arange(trainers)
    full = np.concatenate(capacities).astype(np.float64)
    model.add_sparse(
        "full trainers", len(full), row.ravel(), place.ravel(), 1.0, lower=full, upper=full,
        cite="Bagpipe, constraint (ii)",
    )  # fmt: skip
    return Encoding(model, place)


def _with_uses(sharing: Sharing, capacity: Ints, name: str) -> tuple[Encoding, Ints, tuple[Ints, Ints]]:
    """x with its rows, and a binary `fetch` per id and trainer that doesn't own it, 1 where an example uses it there.

    Returns the columns of `fetch` and, aligned, their (ids, trainers).
    """
    encoding = _with_places(Model(name), [capacity])
    model = encoding.model
    is_foreign = sharing.owner[:, None] != np.arange(sharing.trainers)
    id_, receiver = (axis.astype(np.int64) for axis in np.nonzero(is_foreign))
    used: Ints = model.binaries("fetch", len(id_))
    column = np.full(is_foreign.shape, -1, np.int64)
    column[id_, receiver] = used
    # One row per use (example, id) and trainer: what is used there is fetched.
    example, used_id = lookups(sharing.index)
    fetch = column[used_id]
    use, trainer = np.nonzero(fetch >= 0)
    model.add(
        "fetched where used",
        (np.array([1.0, -1.0]), np.stack([fetch[use, trainer], encoding.place[example[use], trainer]], axis=1)),
        lower=0.0,
    )
    return encoding, used, (id_, receiver)
