"""The paper's partition MILP and its relaxation, and MILPs of the objectives beyond it for small batches.

`x[i, j]` is 1 where example i is trained on trainer j. With costs per example and trainer the rows are those of a
transportation problem: totally unimodular, so that the relaxation has a whole optimum and the model is a network.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.partition.sharing import Sharing
from gapless.model import Model
from gapless.profiles.traces.bags import lookups

__all__ = ["Encoding", "decode", "encode", "encode_fetches", "encode_max_load"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Encoding:
    """The model, and `place[i, j]`: the column of x for example i on trainer j, int64."""

    model: Model
    place: Ints


def encode(cost: NDArray[Any], capacity: Ints, relaxed: bool = False) -> Encoding:
    """The partition of least cost; with `relaxed` its linear relaxation."""
    model = Model("bagpipe partition")
    columns = model.continuous("x", cost.shape, upper=1.0) if relaxed else model.binaries("x", cost.shape)
    encoding = Encoding(model, columns)
    _one_trainer_each(encoding)
    _full_trainers(encoding, capacity)
    model.minimize((cost, encoding.place))
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


def decode(encoding: Encoding, values: Floats) -> Ints:
    """The trainer of each example at a point."""
    trainer: Ints = values[encoding.place].argmax(axis=1).astype(np.int64)
    return trainer


def _one_trainer_each(encoding: Encoding) -> None:
    """Each example is on one trainer."""
    encoding.model.add("one trainer each", (1.0, encoding.place), lower=1.0, upper=1.0, cite="Bagpipe, constraint (i)")


def _full_trainers(encoding: Encoding, capacity: Ints) -> None:
    """Each trainer gets as many examples as it has places."""
    places = capacity.astype(np.float64)
    encoding.model.add(
        "full trainers", (1.0, encoding.place.T), lower=places, upper=places, cite="Bagpipe, constraint (ii)"
    )


def _with_uses(sharing: Sharing, capacity: Ints, name: str) -> tuple[Encoding, Ints, tuple[Ints, Ints]]:
    """x with its rows, and a binary `fetch` per id and trainer that doesn't own it, 1 where an example uses it there.

    Returns the columns of `fetch` and, aligned, their (ids, trainers).
    """
    model = Model(name)
    encoding = Encoding(model, model.binaries("x", (sharing.examples, sharing.trainers)))
    _one_trainer_each(encoding)
    _full_trainers(encoding, capacity)
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
