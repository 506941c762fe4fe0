"""oneDNN's recurrent layers, which keep what their gradient needs only where gradients are on.

Needs the extra `torch`.
"""

from __future__ import annotations

import functools

from gapless.torch.library import Argument, Made, Tensor, torch

__all__ = ["LAYER", "Layout", "layer", "layouts"]

LAYER = torch.ops.aten.mkldnn_rnn_layer.default
"""One layer in one direction, as eager runs an LSTM on a CPU."""

Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
"""Sizes, strides, type."""


def layer(*arguments: Argument) -> Made:
    """One layer, and what its gradient needs; autograd records nothing of it."""
    with torch.enable_grad(), torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        made: tuple[Tensor, ...] = LAYER(*arguments)
        return made


def layouts(*arguments: Argument) -> tuple[Layout, ...]:
    """What a layer returns for tensors like these, found by a run on zeros: PyTorch doesn't say what oneDNN keeps."""
    parts = (
        (tuple(part.shape), tuple(part.stride()), part.dtype) if isinstance(part, torch.Tensor) else _plain(part)
        for part in arguments
    )
    return _found(*parts)


def _plain(part: Argument) -> object:
    return tuple(part) if isinstance(part, list) else part


@functools.lru_cache(256)
def _found(*parts: object) -> tuple[Layout, ...]:
    given = [_like(part) for part in parts]
    return tuple((tuple(made.shape), tuple(made.stride()), made.dtype) for made in layer(*given))


def _like(part: object) -> object:
    """Zeros for a layout, what it is for all else."""
    if isinstance(part, tuple) and len(part) == 3 and isinstance(part[2], torch.dtype):
        return torch.zeros(part[0], dtype=part[2])
    return part
