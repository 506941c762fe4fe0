"""Attention in pieces and by the flash kernel: as products, softmax and dropout have it, forward and backward.

Without torch these tests are skipped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch_closeness import CLOSE, distance

from gapless.torch.devices import measure_peak
from gapless.torch.kernels import attention
from gapless.torch.kernels import attention as flash

B, H, T, S, D = 3, 4, 10, 7, 8
SHAPE = [B, H, T, S]
SHARE, FACTOR = 0.3, 1 / 0.7
MASKS: dict[str, Callable[[], torch.Tensor]] = {
    "causal": lambda: torch.full((T, S), -math.inf).triu(1),
    "of keys": lambda: torch.randn(S),
    "of examples": lambda: torch.randn(B, 1, 1, S),
    "of heads": lambda: torch.randn(H, T, S),
    "of all": lambda: torch.randn(B, H, T, S),
}
PIECES = {"one": 2**30, "examples": B * H * T * S * 4 // 3 + 1, "heads": 2 * T * S * 4, "queries": 3 * S * 4}
"""The most bytes of scores in a piece, by what a piece is then made of."""


@pytest.fixture(params=list(PIECES))
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores cut in each way."""
    monkeypatch.setattr(attention, "_PIECES", 10**9)
    monkeypatch.setattr(attention, "_LEAST_BYTES", PIECES[request.param])


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    """Query, key, value, and the gradient of what is found."""
    torch.manual_seed(0)
    shapes = ((B * H, T, D), (B * H, D, S), (B * H, S, D), (B * H, T, D))
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def plain(
    query: Any, key: Any, value: Any, gradient: Any, mask: Any, dropped: Any = None
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """What autograd makes of products and softmax."""
    leaves = [its.clone().requires_grad_() for its in (query, key, value)]
    scores = (leaves[0] @ leaves[1] * 0.5).view(SHAPE) + mask
    probability = scores.softmax(-1)
    if dropped is not None:
        probability = probability * dropped * FACTOR
    found = probability.view(-1, T, S) @ leaves[2]
    found.backward(gradient)
    gradients = [its.grad for its in leaves]
    assert all(its is not None for its in gradients)
    return found.detach(), [its for its in gradients if its is not None]


def steps_of(mask: torch.Tensor) -> attention.Steps:
    return (("mul", 0.5), ("add", mask))


@pytest.mark.thorough("queries", "heads-", "dtype1")
@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("name", list(MASKS))
@pytest.mark.usefixtures("pieces")
def test_attention_in_pieces_is_attention(name: str, dtype: torch.dtype) -> None:
    mask = MASKS[name]().to(dtype)
    *its, gradient = tensors(dtype)
    expected, gradients = plain(*its, gradient, mask)
    steps = steps_of(mask)
    (found,) = attention.attention(*its, steps, SHAPE, False)
    again, probability = attention.attention_keeping(*its, steps, SHAPE, False)
    assert torch.equal(again, found)
    assert distance(found, expected) < CLOSE[dtype]
    backward = attention.attention_backward(gradient, *its, steps, SHAPE, False)
    from_kept = attention.attention_backward_from_probabilities(gradient, *its, probability, steps, SHAPE)
    for mine, kept, other in zip(backward, from_kept, gradients, strict=True):
        assert torch.equal(mine, kept)
        assert distance(mine, other) < CLOSE[dtype]


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.usefixtures("pieces")
def test_dropout_is_drawn_as_it_is_for_the_whole(dtype: torch.dtype) -> None:
    mask = MASKS["causal"]().to(dtype)
    *its, gradient = tensors(dtype)
    steps = steps_of(mask)
    with torch.random.fork_rng(devices=[]):
        state = torch.manual_seed(3).get_state()
        dropped = torch.empty(SHAPE, dtype=torch.bool).bernoulli_(1 - SHARE)
        after = torch.get_rng_state()
        expected, gradients = plain(*its, gradient, mask, dropped)
        torch.set_rng_state(state)
        (found,) = attention.dropped_attention(*its, steps, SHAPE, False, SHARE, FACTOR)
        assert torch.equal(torch.get_rng_state(), after)
        torch.set_rng_state(state)
        again, *kept = attention.dropped_attention_keeping(*its, steps, SHAPE, False, SHARE, FACTOR)
        torch.set_rng_state(state)
        backward = attention.dropped_attention_backward(gradient, *its, steps, SHAPE, False, SHARE, FACTOR)
    assert torch.equal(kept[1], dropped)
    assert torch.equal(again, found)
    assert distance(found, expected) < CLOSE[dtype]
    from_kept = attention.dropped_attention_backward_from_probabilities(gradient, *its, *kept, steps, SHAPE, FACTOR)
    for mine, same, other in zip(backward, from_kept, gradients, strict=True):
        assert torch.equal(mine, same)
        assert distance(mine, other) < CLOSE[dtype]


@pytest.mark.parametrize("dtype", list(CLOSE))
@pytest.mark.parametrize("name", list(MASKS))
def test_flash_kernel_is_attention(name: str, dtype: torch.dtype) -> None:
    mask = MASKS[name]().to(dtype)
    *its, gradient = tensors(dtype)
    steps = steps_of(mask)
    assert flash.can_flash(its[0], its[2], steps, SHAPE)
    expected, gradients = plain(*its, gradient, mask)
    found, sums = flash.flash_attention(*its, steps, SHAPE, False)
    again, sums_again, _ = flash.flash_attention_keeping(*its, steps, SHAPE, False)
    for mine, other in ((found, expected), (again, expected), (sums_again, sums)):
        assert distance(mine, other) < CLOSE[dtype]
    for made in ((found, sums), (again, sums_again)):
        backward = flash.flash_attention_backward(gradient, *its, *made, steps, SHAPE)
        for mine, other in zip(backward, gradients, strict=True):
            assert distance(mine, other) < CLOSE[dtype]


def test_flash_kernel_is_for_factors_before_masks_and_heads_of_one_width() -> None:
    query, _, value, _ = tensors(torch.float32)
    assert not flash.can_flash(query, value, (("add", 0), ("mul", 2.0)), SHAPE)
    assert not flash.can_flash(query, value[..., :4], (), SHAPE)
    assert not flash.can_flash(query, value, (), SHAPE[1:])
    assert not flash.can_flash(query.bfloat16(), value, (), SHAPE)


def test_rows_without_any_key_are_zero_where_the_model_has_them_so() -> None:
    mask = torch.zeros(T, S)
    mask[2] = -math.inf
    *its, gradient = tensors(torch.float32)
    steps = steps_of(mask)
    (found,) = attention.attention(*its, steps, SHAPE, True)
    assert not found[:, 2].any()
    assert torch.isfinite(found).all()
    flashed, sums = flash.flash_attention(*its, steps, SHAPE, True)
    assert distance(flashed, found) < CLOSE[torch.float32]
    of_pieces = attention.attention_backward(gradient, *its, steps, SHAPE, True)
    of_flash = flash.flash_attention_backward(gradient, *its, flashed, sums, steps, SHAPE)
    for mine, other in zip(of_flash, of_pieces, strict=True):
        assert distance(mine, other) < CLOSE[torch.float32]


def test_pieces_take_less_than_the_probabilities() -> None:
    shape = [2, 4, 256, 256]
    its = [torch.randn(parts) for parts in ((8, 256, 8), (8, 8, 256), (8, 256, 8))]
    peak_bytes, _ = measure_peak(lambda: attention.attention(*its, (("mul", 0.5),), shape, False), its[0].device)
    assert peak_bytes < 0.5 * 4 * math.prod(shape)
