"""Batch norm's gradient from its output, and from that of its activation; batch norm in place.

Without torch these tests are skipped.
"""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch.nn import functional
from torch_closeness import distance

from gapless.errors import InputError
from gapless.torch.kernels import norms

aten = torch.ops.aten
CHANNELS, EPS = 6, 1e-5
CLOSE = {torch.float32: 2e-6, torch.float64: 1e-14}
"""For weights of at least a tenth of the bias; the worst that is allowed, a hundredth, is ten times as far off."""
LAYOUTS = [torch.contiguous_format, torch.channels_last]
ALL = [True, True, True]


def tensors(dtype: torch.dtype, layout: torch.memory_format, share: float = 0.1) -> list[torch.Tensor]:
    """Input, weight of both signs, bias, and the gradient of the output."""
    torch.manual_seed(0)
    given, gradient = (torch.randn(4, CHANNELS, 9, 11, dtype=dtype).contiguous(memory_format=layout) for _ in range(2))
    beta = torch.randn(CHANNELS, dtype=dtype)
    sign = torch.where(torch.arange(CHANNELS) % 2 == 0, 1.0, -1.0)
    gamma = ((share * beta.abs() + torch.rand(CHANNELS, dtype=dtype).mul_(share)) * sign).to(dtype)
    return [2.0 + 3.0 * given, gamma, beta, gradient]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("dtype", "share", "times"), [(torch.float32, 0.1, 1), (torch.float32, 0.01, 10), (torch.float64, 0.1, 1)]
)
@pytest.mark.parametrize("slope", [None, 0.01, 0.3])
def test_gradient_from_output_is_that_from_input(
    layout: torch.memory_format, dtype: torch.dtype, share: float, times: int, slope: float | None
) -> None:
    given, gamma, beta, gradient = tensors(dtype, layout, share)
    leaves = [tensor.clone().requires_grad_() for tensor in (given, gamma, beta)]
    found = functional.batch_norm(leaves[0], None, None, leaves[1], leaves[2], True, eps=EPS)
    after = found if slope is None else functional.leaky_relu(found, slope)
    after.backward(gradient)
    mean, var = torch.zeros(CHANNELS, dtype=dtype), torch.ones(CHANNELS, dtype=dtype)
    output, _, inverse, _, _ = norms.batch_norm(given, gamma, beta, mean, var, True, 0.1, EPS)
    assert norms.is_invertible(gamma, beta)
    if slope is None:
        gradients = norms.batch_norm_backward_from_output(gradient, output, gamma, beta, inverse, EPS, ALL)
    else:
        output = functional.leaky_relu(output, slope)
        before = aten.leaky_relu_backward(gradient, output, slope, True)
        gradients = norms.batch_norm_backward_from_activation(before, output, slope, gamma, beta, inverse, EPS, ALL)
    for mine, leaf in zip(gradients, leaves, strict=True):
        assert leaf.grad is not None
        assert distance(mine, leaf.grad) < times * CLOSE[dtype]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_in_place_has_the_bits_of_the_plain_one(layout: torch.memory_format, dtype: torch.dtype) -> None:
    given, gamma, beta, _ = tensors(dtype, layout)
    mean, var = torch.randn(CHANNELS, dtype=dtype), torch.rand(CHANNELS, dtype=dtype)
    before = mean.clone()
    rest = (gamma, beta, mean, var, True, 0.1, EPS)
    expected = norms.batch_norm(given, *rest)
    found = norms.batch_norm_in_place(given, *rest)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
    assert found[0].data_ptr() == given.data_ptr()
    assert torch.equal(mean, before)


@pytest.mark.parametrize(("gamma", "beta"), [(0.0, 0.0), (1e-7, 0.0), (0.009, 1.0), (-0.009, -1.0)])
def test_weight_near_zero_is_refused(gamma: float, beta: float) -> None:
    with pytest.raises(InputError, match=r"batch norm weight 'norm\.weight' is too near zero"):
        norms.check_invertible("norm.weight", torch.tensor([1.0, gamma]), torch.tensor([1.0, beta]))
    norms.check_invertible("norm.weight", torch.tensor([1.0, -0.011]), torch.tensor([1.0, 1.0]))
