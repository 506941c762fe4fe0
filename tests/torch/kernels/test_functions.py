"""Operators that stand in for PyTorch's: the same bits, with less to keep.

Without torch these tests are skipped.
"""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch.nn import functional
from torch_closeness import same

from gapless.torch.kernels import functions

aten = torch.ops.aten

WINDOWS = [
    ([3, 3], [2, 2], [1, 1], [1, 1], False),
    ([2, 2], [2, 2], [0, 0], [1, 1], True),
    ([3, 2], [1, 2], [1, 0], [2, 1], False),
    ([16, 16], [3, 3], [8, 8], [1, 1], False),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_max_pool_with_small_places_equals_the_plain_one(window: tuple[Any, ...]) -> None:
    image = torch.randn(2, 3, 19, 22)
    expected, places = aten.max_pool2d_with_indices(image, *window)
    found, own, small = functions.max_pool(image, *window)
    gradient, shape = torch.randn_like(expected), list(image.shape)
    assert same(found, expected)
    assert torch.equal(own, places)
    assert small.dtype == torch.uint8
    of_input = aten.max_pool2d_with_indices_backward(gradient, image, *window, places)
    assert same(functions.max_pool_backward(gradient, places, shape, *window), of_input)
    assert same(functions.max_pool_backward_from_bytes(gradient, small, shape, *window), of_input)


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
