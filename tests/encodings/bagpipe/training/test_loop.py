"""A user's own loop by a plan: its end, and going on from a state in another loop. Without torch: skipped."""

from __future__ import annotations

import re
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from planned_loop import BATCH_SIZE, DESIGNS, RANKS, TRACE, train_all

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process ends with."""
    return run_ranks(train_all, RANKS, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("design", DESIGNS)
def test_training_goes_on_from_a_state_with_the_same_bits(found: list[dict[str, Any]], design: str) -> None:
    for rank in found:
        each = rank[design]
        assert torch.equal(each["weights"], each["resumed"])
        assert not torch.equal(each["weights"], each["at_stop"])
        for one, other, third in zip(each["model"], each["again"], each["first"], strict=True):
            assert torch.equal(one, other)
            assert torch.equal(one, third)


@pytest.mark.parametrize("design", DESIGNS)
def test_every_example_is_trained_once(found: list[dict[str, Any]], design: str) -> None:
    batches = zip(*(rank[design]["examples"] for rank in found), strict=True)
    for number, parts in enumerate(batches):
        examples = range(number * BATCH_SIZE, min((number + 1) * BATCH_SIZE, TRACE.examples or 0))
        assert sorted(example for part in parts for example in part) == list(examples)


def test_designs_train_the_same_tables_within_rounding(found: list[dict[str, Any]]) -> None:
    for rank in found:
        for design in DESIGNS[1:]:
            torch.testing.assert_close(rank[design]["weights"], rank[DESIGNS[0]]["weights"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ids", "state: must be of the same batches, has others"),
        ("optimizer", "state: must be of optimiser adagrad, got adam"),
        ("batch", "state: batch must be at most 9, got 99"),
        ("shape", r"state: weights must have shape \(110, 8\), got \(3, 8\)"),
        ("design", "run: must have a cache, got design table-wise, where nothing is planned ahead"),
        ("no backward", "update: must follow the backward pass, got rows without a gradient"),
        ("not updated", "batch 0: must be updated before the next one"),
        ("servers", "run: is for 2 trainers, one a process, each with a server; got 2 processes and 3 servers"),
    ],
)
def test_what_does_not_fit_is_one_line(found: list[dict[str, Any]], name: str, message: str) -> None:
    assert re.match(message, found[0]["refused"][name])
