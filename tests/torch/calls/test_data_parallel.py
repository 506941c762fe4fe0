"""Planned models under DistributedDataParallel: gradients complete in the plan's order, a segment at a time.

Without torch these tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from planned_model_ranks import train


@pytest.mark.thorough
def test_training_has_eagers_bits_and_sums_begin_before_all_gradients_are_there(tmp_path: Path) -> None:
    ranks = run_ranks(train, 2, tmp_path)
    for found in ranks:
        (losses, weights, seen), (expected, wanted, _) = found["planned"], found["eager"]
        assert losses == expected
        assert all(torch.equal(weights[name], wanted[name]) for name in wanted)
        assert seen.index("sent") < seen.index("0.weight")
    assert torch.equal(ranks[0]["planned"][1]["0.weight"], ranks[1]["planned"][1]["0.weight"])
