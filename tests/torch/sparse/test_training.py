"""Index sets recorded in training. Without torch these tests are skipped."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.torch.sparse.allreduce import Entries
from gapless.torch.sparse.training import KeptSums, TrainingTask, recorded

MODEL = "train:net,layers=2,width=8,batch=16,size=8,classes=2"


def test_each_rank_sends_its_share_of_a_training_that_makes_progress() -> None:
    found = recorded(TrainingTask(MODEL, 0, 12, 2, 0.2, 60.0), 0.05)
    sets = found.sets
    assert (sets.elements, sets.steps, sets.ranks) == (1178, 12, 2)
    assert (sets.counts == round(0.05 * sets.elements)).all()
    assert sets.parameter_names[:2] == ("0.weight", "1.weight")
    assert sets.parameter_start[:3].tolist() == [0, 8 * 3 * 9, 8 * 3 * 9 + 8]
    assert sets.values is not None
    assert np.abs(sets.values).min() > 0
    assert np.mean(found.losses[-4:]) < np.mean(found.losses[:4])


@pytest.mark.usefixtures("one_rank")
def test_kept_sums_go_on_from_a_saved_state_with_the_threshold_that_was_found() -> None:
    given = Entries(torch.arange(6), torch.tensor([5.0, -4.0, 3.0, 2.0, 1.0, 0.5]))
    whole, other = KeptSums(2, period=3), KeptSums(2, period=3)
    assert whole(given, 10, 0).values.tolist() == [5.0, -4.0]
    other.load_state_dict(whole.state_dict())
    smaller = Entries(given.places, given.values / 1.1)
    for each in (whole, other):
        assert each(smaller, 10, 1).places.tolist() == [0]
    assert other.received_words == whole.received_words
