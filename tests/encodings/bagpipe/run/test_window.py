"""Windows: each array is of the type that docs/formats.md gives it, and as narrow as its numbers allow."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.bagpipe.designs.counts import PLACES
from gapless.encodings.bagpipe.lowering.actions import NOT_FETCHED, Actions
from gapless.encodings.bagpipe.run.window import PlannedBatch, Window, window_arrays


def planned(trainers: int) -> PlannedBatch:
    """Two rows and two examples, on the first trainer and on the last."""
    ids, trainer = np.array([3, 9]), np.array([0, trainers - 1])
    actions = Actions(
        ids=ids, fetched_by=np.array([NOT_FETCHED, trainers - 1]), private_to=trainer, sync=np.array([0, 0]),
        evicted=np.array([1, 0]), examples=np.bincount(trainer), prefetch_after=-1,
        users=np.arange(trainers) == trainer[:, None],
    )  # fmt: skip
    return PlannedBatch(ids, trainer, tuple(range(len(PLACES))), (1.0, np.nan, 2.0), actions, is_cut=True)


@pytest.mark.parametrize(("trainers", "narrow"), [(128, np.int8), (129, np.int16)])
def test_arrays_are_narrow_and_give_the_batch_back(trainers: int, narrow: type) -> None:
    batch = planned(trainers)
    columns = window_arrays([batch])
    types = {name: column.dtype for name, column in columns.items()}
    assert types["trainer"] == types["fetched_by"] == types["private_to"] == narrow
    assert types["sync"] == types["evicted"] == np.int8
    assert types["users"] == types["is_cut"] == np.uint8
    assert types["measured"] == np.float64
    window = Window(0, columns, trainers)
    read = window.actions(0)
    assert window.trainer(0).tolist() == batch.trainer.tolist()
    for name in ("ids", "fetched_by", "private_to", "sync", "evicted", "examples", "users"):
        assert np.array_equal(getattr(read, name), getattr(batch.actions, name)), name
