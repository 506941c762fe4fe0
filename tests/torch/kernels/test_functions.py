"""Operators that stand in for PyTorch's: the same bits, with less to keep.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch.nn import functional

from gapless.torch.capture.operators import COMMUTES, IN_PLACE
from gapless.torch.kernels import functions

aten = torch.ops.aten

WINDOWS = [
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([2, 2], [2, 2], [0, 0], [1, 1], True),
    ([3, 2], [1, 2], [1, 0], [2, 1], False),
    ([16, 16], [3, 3], [8, 8], [1, 1], False),
]


def same(mine: torch.Tensor, its: torch.Tensor) -> bool:
    """Equal bit by bit, NaN and the sign of zero included."""
    return mine.dtype == its.dtype and torch.equal(
        mine.contiguous().view(torch.uint8), its.contiguous().view(torch.uint8)
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_max_pool_with_small_places_equals_the_plain_one(window: tuple[Any, ...]) -> None:
    image = torch.randn(2, 3, 19, 22)
    expected, places = aten.max_pool2d_with_indices(image, *window)
    found, small = functions.max_pool(image, *window)
    gradient = torch.randn_like(expected)
    assert same(found, expected)
    assert small.dtype == torch.uint8
    assert same(
        functions.max_pool_backward(gradient, small, list(image.shape), *window),
        aten.max_pool2d_with_indices_backward(gradient, image, *window, places),
    )


@pytest.mark.parametrize("shape", [(1,), (7,), (8,), (3, 5, 11)])
def test_relu_from_bits_equals_the_plain_one(shape: tuple[int, ...]) -> None:
    output, gradient = torch.randn(shape).relu(), torch.randn(shape)
    bits = functions.relu_bits(output)
    assert bits.numel() == -(-output.numel() // 8)
    assert same(functions.relu_bits_backward(gradient, bits), aten.threshold_backward(gradient, output, 0))


@pytest.mark.parametrize("share", [0.04, 0.1, 0.5, 0.97])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_equals_eagers_from_mask_and_from_state(share: float, dtype: torch.dtype) -> None:
    given = torch.randn(1000).to(dtype).requires_grad_()
    gradient = torch.randn(1000).to(dtype)
    factor = functions.dropout_factor(share, dtype)
    with torch.random.fork_rng(devices=[]):
        state = torch.manual_seed(5).get_state()
        expected = functional.dropout(given, share)
        after = torch.get_rng_state()
        expected.backward(gradient)
        torch.set_rng_state(state)
        found, mask = functions.dropout(given.detach(), share, factor)
        assert torch.equal(torch.get_rng_state(), after)
        torch.set_rng_state(state)
        redrawn = functions.dropout_backward_redrawn(gradient, share, factor, [1])
    assert given.grad is not None
    assert torch.equal(found, expected)
    assert torch.equal(functions.dropout_backward(gradient, mask, factor), given.grad)
    assert torch.equal(redrawn, given.grad)


def arguments_of(target: Any) -> tuple[Any, ...]:
    """Arguments for an operator that can run in place."""
    a, b = torch.randn(40, 300), torch.randn(40, 300)
    name = target.__name__ if callable(target) and not hasattr(target, "_schema") else str(target)
    special = {
        "batch_norm": (a, *torch.rand(4, 300).add(0.1), True, 0.1, 1e-5),
        "dropout": (a, 0.3, 1.4),
        "dropout_backward": (a, b > 0, 1.4),
        "dropout_backward_redrawn": (a, 0.3, 1.4, [1, 40]),
        "aten.threshold_backward.default": (a, b.relu(), 0),
        "aten.sigmoid_backward.default": (a, b.sigmoid()),
        "aten.tanh_backward.default": (a, b.tanh()),
        "aten._softmax_backward_data.default": (a, b.softmax(1), 1, torch.float32),
        "aten._log_softmax_backward_data.default": (a, b.log_softmax(1), 1, torch.float32),
        "aten.mul.Scalar": (a, 0.7),
        "aten.div.Scalar": (a, 0.7),
    }
    binary = name.endswith((".Tensor", "_backward.default"))
    return special.get(name, (a, b) if binary else (a,))


@pytest.mark.parametrize("target", list(IN_PLACE), ids=lambda target: getattr(target, "__name__", str(target)))
def test_operator_in_place_equals_the_plain_one_and_writes_over_its_argument(target: Callable[..., Any]) -> None:
    first, *rest = arguments_of(target)
    with torch.random.fork_rng(devices=[]):
        state = torch.get_rng_state()
        expected = target(first.clone(), *rest)
        torch.set_rng_state(state)
        found = IN_PLACE[target](first, *rest)
    if isinstance(expected, tuple):
        expected, found = expected[0], found[0]
    assert same(found, expected)
    assert found.data_ptr() == first.data_ptr()


@pytest.mark.parametrize("target", sorted(COMMUTES, key=str), ids=str)
def test_arguments_may_be_swapped(target: Callable[..., Any]) -> None:
    a, b = torch.randn(1000), torch.randn(1000)
    assert same(target(a, b), target(b, a))
