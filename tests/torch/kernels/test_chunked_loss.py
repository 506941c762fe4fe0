"""Linear and cross entropy in chunks: as PyTorch's, forward and backward.

Without torch these tests are skipped.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch.nn import functional
from torch_closeness import CLOSE, distance

from gapless.torch.devices import measure_peak
from gapless.torch.kernels import chunked_loss as chunked

ROWS, WIDTH, WORDS, IGNORED = 37, 8, 50, -100


@pytest.fixture(params=[1, 5 * WORDS * 4, 2**30], ids=["16 chunks", "5 rows", "one chunk"])
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows cut in each way."""
    monkeypatch.setattr(chunked, "_PIECES", 16 if request.param == 1 else 10**9)
    monkeypatch.setattr(chunked, "_LEAST_BYTES", request.param)


def tensors(dtype: torch.dtype, with_bias: bool) -> tuple[Any, Any, Any, Any]:
    """Given, weight, bias and labels, some of which don't count."""
    torch.manual_seed(0)
    given, weight = torch.randn(ROWS, WIDTH, dtype=dtype), torch.randn(WORDS, WIDTH, dtype=dtype).t()
    label = torch.randint(WORDS, (ROWS,))
    label[::5] = IGNORED
    return given, weight, torch.randn(WORDS, dtype=dtype) if with_bias else None, label


@pytest.mark.thorough("16 chunks", "one chunk", "dtype1")
@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("is_mean", [True, False])
@pytest.mark.parametrize("is_turned", [True, False])
@pytest.mark.usefixtures("chunks")
def test_loss_and_gradients_are_pytorchs(dtype: torch.dtype, with_bias: bool, is_mean: bool, is_turned: bool) -> None:
    given, weight, bias, label = tensors(dtype, with_bias)
    leaves = [its.clone().requires_grad_() for its in (given, weight, bias) if its is not None]
    scores = leaves[0] @ leaves[1] + (leaves[2] if with_bias else 0.0)
    expected = functional.cross_entropy(scores, label, reduction="mean" if is_mean else "sum")
    (expected * 3.0).backward()
    arguments = (given, weight, bias, label, IGNORED, is_mean, is_turned)
    (loss,) = chunked.linear_cross_entropy(*arguments)
    again, *kept = chunked.linear_cross_entropy_keeping(*arguments)
    assert torch.equal(loss, again)
    assert distance(loss, expected.detach()) < CLOSE[dtype]
    gradient = torch.tensor(3.0, dtype=dtype)
    for found in (
        chunked.linear_cross_entropy_backward(gradient, *arguments),
        chunked.linear_cross_entropy_scale(gradient, *kept),
    ):
        assert len(found) == len(leaves)
        for place, (mine, leaf) in enumerate(zip(found, leaves, strict=True)):
            assert leaf.grad is not None
            assert distance(mine, leaf.grad.t() if place == 1 and is_turned else leaf.grad) < CLOSE[dtype]


def test_mean_over_no_rows_is_not_a_number_as_pytorchs() -> None:
    given, weight, _, label = tensors(torch.float32, with_bias=False)
    (loss,) = chunked.linear_cross_entropy(given, weight, None, torch.full_like(label, IGNORED), IGNORED, True, True)
    assert loss.isnan()


def test_scores_are_never_there_as_a_whole() -> None:
    given, weight, label = torch.randn(2048, 8), torch.randn(8, 1000), torch.randint(1000, (2048,))
    arguments = (given, weight, None, label, IGNORED, True, True)
    for function, most in (
        (lambda: chunked.linear_cross_entropy(*arguments), 0.15),
        (lambda: chunked.linear_cross_entropy_backward(torch.ones(()), *arguments), 0.2),
    ):
        peak_bytes, _ = measure_peak(function, given.device)
        assert peak_bytes < most * 4 * 2048 * 1000
