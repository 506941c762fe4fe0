"""Planned models under DistributedDataParallel: gradients complete in the plan's order, and have eager's bits.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from data_parallel_variants import IN_EAGERS_PLACES, SETUPS, WIDTH, Deep, Trained, of_whole_batch, train_all, trained
from gloo_ranks import run_ranks

from gapless.torch import planned
from gapless.torch.ddp import measure_gradients


def are_equal(one: Trained, other: Trained) -> bool:
    pairs = zip(one.weights.values(), other.weights.values(), strict=True)
    return one.losses == other.losses and all(torch.equal(*pair) for pair in pairs)


@pytest.mark.usefixtures("one_rank", "one_thread")
def test_gradients_come_in_the_order_of_the_backward_pass_into_fused_buckets() -> None:
    eager = Deep(layers=2)
    follows = planned(copy.deepcopy(eager), "0.95x", report=lambda _: None)
    setup = replace(SETUPS["fused buckets"], modes=("plain", "topk:0.1"))
    expected, found = trained(eager, setup, 0), trained(follows, setup, 0)
    assert are_equal(found, expected)
    layers = [int(name.split(".")[1]) for name in found.seen]
    assert layers == sorted(layers, reverse=True)


@pytest.mark.thorough
@pytest.mark.parametrize("count", [2, 4])
def test_training_in_processes_is_eagers_whatever_ddp_is_told(count: int, tmp_path: Path) -> None:
    ranks = run_ranks(train_all, count, tmp_path)
    for found in ranks:
        for name, (expected, got) in found.items():
            if count == 2 or name in IN_EAGERS_PLACES:
                assert are_equal(got, expected), name
            assert all(torch.allclose(got.weights[key], value, atol=1e-6) for key, value in expected.weights.items())
        expected, got = found["plain"]
        first = got.seen.index("sent")
        assert first <= expected.seen.index("sent") < got.seen.index("layers.0.weight")
    weights = [found["plain"][1].weights for found in ranks]
    whole = of_whole_batch(count)
    for name, value in whole.items():
        assert all(torch.equal(other[name], weights[0][name]) for other in weights)
        assert (weights[0][name] - value).norm() < 1e-5 * value.norm()


def test_gradients_of_a_planned_model_are_measured_in_the_order_of_the_backward_pass() -> None:
    model, given = planned(Deep(layers=2), "1x", report=lambda _: None), torch.randn(4, WIDTH)
    found = measure_gradients(model, lambda each: each(given).pow(2).mean(), steps=2, warm_up=1)
    assert [int(name.split(".")[1]) for name in found.names] == [4, 4, 3, 3, 1, 1, 0, 0]
