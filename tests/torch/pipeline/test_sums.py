"""Sums after a pipeline's step in one process; among processes they are in `test_training.py`."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.errors import InputError
from gapless.torch.pipeline.sums import Groups, ReplicaSums, planned_sum_bytes

ALONE = Groups(0, 0, 1, None, None, None, None)


def test_what_a_stage_sends_is_said_by_shapes_and_vectors_go_plain() -> None:
    stage = nn.Linear(8, 6)
    assert planned_sum_bytes(stage, "plain") == 4 * (48 + 6)
    assert planned_sum_bytes(stage, "rank 1") == 4 * (8 + 6 + 6)
    assert planned_sum_bytes(stage, "float16") == 2 * (48 + 6)
    assert planned_sum_bytes(stage, "plain", ["weight"]) == 4 * 6


@pytest.mark.parametrize("fuses", [True, False])
def test_a_process_with_both_ends_adds_up_the_gradients_of_a_shared_weight(fuses: bool) -> None:
    first, last = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
    first.weight.grad, last.weight.grad = torch.ones(3, 3), 2 * torch.ones(3, 3)
    sums = ReplicaSums(ALONE, {0: first, 1: last}, 1, (("weight", "weight"),), fuses)
    sums()
    assert first.weight.grad.tolist() == last.weight.grad.tolist() == (3 * torch.ones(3, 3)).tolist()
    assert first.weight.grad is not last.weight.grad, "an optimiser may change one"
    assert sums.sent_bytes == {"sums": 0, "embedding": 0}


def test_groups_need_a_process_a_rank_of_each_replica() -> None:
    with pytest.raises(InputError, match=r"^processes: must be 2 ranks x 2 replicas = 4, got 1$"):
        Groups.made(2, 2, (0, 1))
    assert Groups.made(1, 1, (0, 0)) == ALONE
