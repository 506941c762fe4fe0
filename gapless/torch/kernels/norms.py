"""Batch norm whose gradient is computed from its output, or from that of the activation behind it.

Of z = gamma * h + beta the normalised input is h = (z - beta) / gamma, so that the input needn't be kept: one tensor
serves batch norm, activation and the next layer (Rota Bulo and others, CVPR 2018). A leaky ReLU gives its input back;
a ReLU doesn't, and its gradient is computed from z as well. Batch norm may then write its output over its input.
Needs |gamma| > 0: rounding grows with |beta / gamma|. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable

from gapless.errors import InputError
from gapless.torch.joint_graph import NORM
from gapless.torch.library import Tensor, torch

__all__ = [
    "BATCH_NORM",
    "INVERTING",
    "batch_norm",
    "batch_norm_backward_from_activation",
    "batch_norm_backward_from_output",
    "batch_norm_in_place",
    "check_invertible",
    "is_invertible",
]

aten = torch.ops.aten
BATCH_NORM = aten._native_batch_norm_legit_functional  # noqa: SLF001
"""PyTorch's own, as it stands in joint graphs."""
_batch_norm_out = aten._native_batch_norm_legit  # noqa: SLF001
_LEAST_SHARE = 1e-2
"""Of |beta| that |gamma| must be at least: the normalised input is then good to 1e-5 in 32 bits."""
_LEAST = 1e-6


def batch_norm(
    given: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, is_training: bool, step: float, eps: float
) -> tuple[Tensor, ...]:
    """PyTorch's own: output, mean, one over the deviation, and the new running statistics."""
    results: tuple[Tensor, ...] = BATCH_NORM.default(given, gamma, beta, mean, var, is_training, step, eps)
    return results


batch_norm.__qualname__ = str(BATCH_NORM.default)  # the cache of measured operators knows it as what it is


def batch_norm_in_place(
    given: Tensor, gamma: Tensor, beta: Tensor, mean: Tensor, var: Tensor, is_training: bool, step: float, eps: float
) -> tuple[Tensor, ...]:
    """The same, the output written over the input."""
    new_mean, new_var = mean.clone(), var.clone()
    saved = [torch.empty_like(gamma), torch.empty_like(gamma)]
    settings = (is_training, step, eps)
    _batch_norm_out.out(
        given, gamma, beta, new_mean, new_var, *settings, out=given, save_mean=saved[0], save_invstd=saved[1]
    )
    return given, *saved, new_mean, new_var


def batch_norm_backward_from_output(
    gradient: Tensor, output: Tensor, gamma: Tensor, beta: Tensor, inverse: Tensor, eps: float, mask: list[bool]
) -> tuple[Tensor, ...]:
    """The gradients of input, gamma and beta from the output and one over the deviation of the input.

    The output has mean beta and deviation |gamma|, so that PyTorch's own operator finds h in it as in the input.
    """
    given = (gradient, output, gamma * gamma * inverse, None, None, beta, gamma.reciprocal(), True, eps, mask)
    gradients: tuple[Tensor, ...] = aten.native_batch_norm_backward(*given)
    return gradients


def batch_norm_backward_from_activation(
    gradient: Tensor, output: Tensor, slope: float, gamma: Tensor, beta: Tensor, inverse: Tensor, eps: float,
    mask: list[bool],
) -> tuple[Tensor, ...]:  # fmt: skip
    """The same from the output of the leaky ReLU behind it."""
    before = aten.leaky_relu(output, 1 / slope)  # its inverse
    return batch_norm_backward_from_output(gradient, before, gamma, beta, inverse, eps, mask)


INVERTING: dict[Callable[..., tuple[Tensor, ...]], tuple[int, int]] = {
    batch_norm_backward_from_output: (2, 3),
    batch_norm_backward_from_activation: (3, 4),
}
"""The places of gamma and beta among the arguments of those that need an invertible batch norm."""


def is_invertible(gamma: Tensor, beta: Tensor) -> bool:
    """Whether the input can be had from the output."""
    return bool(((gamma.abs() >= _LEAST_SHARE * beta.abs()) & (gamma.abs() >= _LEAST)).all())


def check_invertible(name: str, gamma: Tensor, beta: Tensor) -> None:
    """Raise `InputError` where the input can't be had from the output."""
    if not is_invertible(gamma, beta):
        raise InputError(
            f"step: batch norm weight {name!r} is too near zero for a gradient from the output (below {_LEAST_SHARE} "
            f"of the bias, or {_LEAST}); capture without {NORM!r} among the close implementations"
        )
