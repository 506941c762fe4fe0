"""Lossy hooks in training: process groups, overflows, resuming; in four processes that train in pairs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from hook_training import FEW, KINDS, MODES, PAIRS, train_groups, train_modes

pytestmark = pytest.mark.usefixtures("one_thread")
CASES = [f"{kind} {mode}" for kind in KINDS for mode in MODES]
FEW_CASES = [f"{kind} {mode}" for kind in KINDS for mode in FEW]
Found = list[dict[str, Any]]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each of four processes saw, which train in pairs."""
    return run_ranks(train_groups, 4, tmp_path_factory.mktemp("hooks"))


@pytest.fixture(scope="module")
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Found]:
    """What each of two processes saw of a case; cases that are thorough are trained when one is asked for."""
    rest = cache(lambda: run_ranks(train_modes, 2, tmp_path_factory.mktemp("modes")))
    few: Found = request.getfixturevalue("found")
    return lambda case: [rank[case] for rank in (few[:2] if case in FEW_CASES else rest())]


def equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("kind", ["plan", *KINDS])
def test_hooks_average_over_ddps_process_group(found: Found, kind: str) -> None:
    for rank in range(4):
        assert equal(found[rank][f"{kind} whole"], found[rank]["alone"])
    assert not equal(found[0]["alone"], found[2]["alone"])


@pytest.mark.parametrize("kind", KINDS)
def test_eight_bits_among_four_ranks_are_near_the_mean_and_the_same_in_all(found: Found, kind: str) -> None:
    for rank in found:
        assert equal(rank[f"{kind} of bytes"], found[0][f"{kind} of bytes"])
        sent, plain = (
            torch.cat([each.reshape(-1) for each in rank[name]]) for name in (f"{kind} of bytes", "nodes flat")
        )
        assert 0 < (sent - plain).norm() < 0.03 * plain.norm()


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_several_steps_are_sent_with_the_last(found: Found, kind: str) -> None:
    for rank in range(4):
        pairs = zip(found[rank][f"{kind} accumulated"], found[rank]["alone twice"], strict=True)
        assert all(torch.allclose(one, other, rtol=1e-6, atol=1e-7) for one, other in pairs)


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_of_other_ranks_than_ddps_is_refused(found: Found, kind: str) -> None:
    for rank in range(4):
        said = found[rank][f"{kind} refused"]
        assert f"must average over the ranks that DDP does, {list(PAIRS[rank // 2])}, got [0, 1, 2, 3]" in said
        assert "group=ddp.process_group" in said


def test_in_two_nodes_of_two_gradients_are_those_of_one_level(found: Found) -> None:
    for rank in found:
        pairs = zip(rank["nodes whole"], rank["nodes flat"], strict=True)
        assert all(torch.allclose(one, other, rtol=1e-5, atol=1e-7) for one, other in pairs)
        assert equal(rank["nodes whole"], found[0]["nodes whole"])


def test_in_nodes_an_overflow_and_a_saved_state_change_nothing(found: Found) -> None:
    for rank in found:
        its = rank["nodes"]
        assert its["finite"]
        assert its["scale"] != 2.0**10
        for other in ("scaled", "resumed"):
            assert equal(its["plain"], its[other])
        assert equal(its["plain"], found[0]["nodes"]["plain"])


def test_nodes_that_can_not_be_are_refused(found: Found) -> None:
    for rank in found:
        said = rank["nodes refused"]
        assert "'powersgd:2' needs whole matrices, of which nodes make shares" in said["powersgd"]
        assert said["three"] == "ranks_per_node: must divide the 4 ranks, got 3"
        assert "kind must be 'buckets', got 'buckets in nodes of 2'" in rank["nodes other"]


@pytest.mark.thorough(but=FEW_CASES)
@pytest.mark.parametrize("case", CASES)
def test_training_through_an_overflow_has_the_bits_of_one_without(trained: Callable[[str], Found], case: str) -> None:
    ranks = trained(case)
    for its in ranks:
        assert its["scale"] != 2.0**10
        assert its["finite"]
        assert equal(its["plain"], its["scaled"])
        assert equal(its["plain"], ranks[0]["plain"])


@pytest.mark.thorough(but=FEW_CASES)
@pytest.mark.parametrize("case", CASES)
def test_resumed_training_has_the_bits_of_one_at_one_go(trained: Callable[[str], Found], case: str) -> None:
    assert all(equal(its["plain"], its["resumed"]) for its in trained(case))
