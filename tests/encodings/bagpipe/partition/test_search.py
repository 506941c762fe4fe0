"""Uses that are kept up to date are those of a fresh count, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from bagpipe_batches import random_batch
from examples import share

from gapless.encodings.bagpipe.ids import loops
from gapless.encodings.bagpipe.partition.batch import Batch, Sharing
from gapless.encodings.bagpipe.partition.search import Rates, Uses


@pytest.mark.parametrize("seed", range(share(20)))
@pytest.mark.parametrize("least_work", [0, 2**17])
def test_traffic_and_costs_after_moves(seed: int, least_work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "LEAST_WORK", least_work)
    rng = np.random.default_rng(seed)
    examples, trainers = int(rng.integers(2, 60)), int(rng.integers(1, 7))
    sharing = Sharing.of(random_batch(rng, examples, trainers))
    trainer = rng.integers(trainers, size=examples)
    uses = Uses(sharing, trainer)
    for _ in range(5):
        block = rng.permutation(examples)[: int(rng.integers(1, examples))]
        uses.take(block, trainer[block])
        trainer[block] = rng.integers(trainers, size=len(block))
        uses.put(block, trainer[block])
        for ours, counted in zip(vars(uses.traffic).values(), vars(sharing.traffic(trainer)).values(), strict=True):
            assert np.array_equal(ours, counted)


@pytest.mark.parametrize("least_work", [0, 2**17])
def test_what_an_example_adds(least_work: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids 0 and 1; trainer 0 owns id 0 and uses id 1 too; both examples of trainer 1 use both and were taken."""
    monkeypatch.setattr(loops, "LEAST_WORK", least_work)
    sharing = Sharing.of(Batch(np.array([[0, 1], [0, 1], [0, 1]]), np.array([0, -1]), 2))
    uses = Uses(sharing, np.array([0, 1, 1]))
    uses.take(np.array([1, 2]), np.array([1, 1]))
    rates = Rates(np.array([1.0, 2.0]), np.array([3.0, 0.0]))
    # On trainer 0 nothing is new. On trainer 1 id 0 costs 2 + 3 and id 1 costs 2, each with a weight of 1/2.
    assert uses.costs(np.array([1, 2]), rates).tolist() == [[0, 224], [0, 224]]
