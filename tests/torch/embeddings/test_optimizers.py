"""Steps of rows' optimisers against PyTorch's, and pooled rows. Without torch: skipped."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.profiles.traces.trace_question import OPTIMIZERS
from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.embeddings.optimizers import stepped, with_state


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


def test_pooled_bags_are_sums_of_rows() -> None:
    rows = torch.arange(8.0).reshape(4, 2)
    lengths = torch.tensor([[2, 0], [1, 3]])
    pooled = Lookup(rows, torch.tensor([0, 0, 3, 1, 2, 1]), 2, lengths).pooled()
    assert pooled.tolist() == [[[0.0, 2.0], [0.0, 0.0]], [[6.0, 7.0], [8.0, 11.0]]]
    assert Lookup(rows, torch.tensor([[1, 2]]), 1).pooled().tolist() == [[[2.0, 3.0], [4.0, 5.0]]]
