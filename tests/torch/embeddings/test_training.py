"""Small models with bags in gloo processes against PyTorch's own in one process. Without torch: skipped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from bag_training import CASES, DIMENSION, plans, task, train_all
from gloo_ranks import run_ranks

from gapless.errors import RunError
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.trace_question import OPTIMIZERS, state_values
from gapless.torch.embeddings.cache import Lookup
from gapless.torch.embeddings.optimizers import stepped, with_state
from gapless.torch.embeddings.plans import load_plans, save_plans
from gapless.torch.embeddings.training import compared

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], list[dict[str, Any]]]:
    """What each process ends with, by case, for a number of processes."""
    return cache(lambda ranks: run_ranks(train_all, ranks, tmp_path_factory.mktemp(f"of{ranks}")))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("ranks", [2, 3])
def test_training_by_plans_is_that_of_one_process_within_rounding(
    found: Callable[[int], list[dict[str, Any]]], ranks: int, case: str
) -> None:
    trained = compared(task(case, ranks), plans(ranks), [each[case] for each in found(ranks)])
    assert trained.row_error < 1e-5
    assert trained.dense_error < 1e-5
    assert trained.loss_error < 1e-5


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_state_moves_with_the_row_and_never_with_the_gradient(
    found: Callable[[int], list[dict[str, Any]]], ranks: int, optimizer: str
) -> None:
    fetched = written = now = later = 0
    for plan in plans(ranks):
        private = int((plan.step.prefetched & plan.is_private).sum())
        fetched += private + ranks * (len(plan.step.prefetch_ids) - private)
        written += int(plan.step.evicted.sum())
        now += (ranks - 1) * int(plan.users[plan.sync_now].sum())
        later += (ranks - 1) * int(plan.users[plan.sync_later].sum())
    row_bytes = 4 * (DIMENSION + state_values(optimizer, DIMENSION))
    moved = [each[optimizer]["moved_bytes"] for each in found(ranks)]
    assert {kind: sum(each[kind] for each in moved) for kind in moved[0]} == {
        "fetched": fetched * row_bytes, "written": written * row_bytes,
        "sync_now": now * 4 * DIMENSION, "sync_later": later * 4 * DIMENSION,
    }  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_is_that_of_pytorch(optimizer: str) -> None:
    """On rows that some steps use and others don't, each of which PyTorch takes on a sparse gradient."""
    chance = torch.Generator().manual_seed(0)
    weights = torch.randn(6, 4, generator=chance, dtype=torch.float64)
    rows, table = with_state(optimizer, weights), weights.clone().requires_grad_()
    totals = torch.zeros(6, dtype=torch.float64)
    of_name: dict[str, Any] = {"sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad, "adam": torch.optim.SparseAdam}
    with torch.sparse.check_sparse_tensor_invariants(enable=False):
        theirs = of_name[optimizer]([table], lr=0.1) if optimizer in of_name else None
        for step in range(1, 6):
            used = torch.tensor(sorted({step % 6, 2 * step % 6}))
            gradient = torch.randn(len(used), 4, generator=chance, dtype=torch.float64)
            rows[used] = stepped(optimizer, rows[used], gradient, 0.1, step)
            table.grad = torch.sparse_coo_tensor(used[None], gradient, (6, 4), check_invariants=False)
            if theirs is not None:
                theirs.step()
                continue
            for row, own in zip(used.tolist(), gradient, strict=True):
                totals[row] += (own**2).mean()
                with torch.no_grad():
                    table[row] -= 0.1 * own / totals[row].sqrt()
    torch.testing.assert_close(rows[:, :4], table.detach(), rtol=1e-9, atol=1e-9)


def test_a_stop_ends_the_training_in_one_process(found: Callable[[int], list[dict[str, Any]]]) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(RunError, match="the training was stopped before it was done"):
        compared(task("sgd", 2), plans(2), [each["sgd"] for each in found(2)], stop)


def test_pooled_bags_are_sums_of_rows() -> None:
    rows = torch.arange(8.0).reshape(4, 2)
    lengths = torch.tensor([[2, 0], [1, 3]])
    pooled = Lookup(rows, torch.tensor([0, 0, 3, 1, 2, 1]), 2, lengths).pooled()
    assert pooled.tolist() == [[[0.0, 2.0], [0.0, 0.0]], [[6.0, 7.0], [8.0, 11.0]]]
    assert Lookup(rows, torch.tensor([[1, 2]]), 1).pooled().tolist() == [[[2.0, 3.0], [4.0, 5.0]]]


def test_plans_are_read_as_they_were_written(tmp_path: Path) -> None:
    save_plans(tmp_path / "plans.pt", plans(3))
    for one, other in zip(load_plans(tmp_path / "plans.pt"), plans(3), strict=True):
        assert isinstance(one.index, Bags)
        assert isinstance(other.index, Bags)
        np.testing.assert_array_equal(one.index.values, other.index.values)
        np.testing.assert_array_equal(one.index.lengths, other.index.lengths)
        for name in ("trainer", "users", "is_private", "sync_now", "sync_later"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        for name in ("batch", "examples", "ids", "rows", "prefetched", "evicted", "prefetch_after"):
            np.testing.assert_array_equal(getattr(one.step, name), getattr(other.step, name))
