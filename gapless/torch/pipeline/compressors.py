"""Compressors of gradients that go from stage to stage, by the names of modes: `rank 4`, `top 1%`, `float16`."""

from __future__ import annotations

import re
from typing import Any, Protocol

from gapless.errors import InputError
from gapless.torch.ddp import compressors
from gapless.torch.ddp.state import poison
from gapless.torch.library import torch

__all__ = ["Compressor", "compressor_of"]


class Compressor(Protocol):
    """Turns gradients of one shape into payloads and back, approximately; may remember what helps with the next."""

    def encode(self, gradient: Any) -> Any:
        """The payload, flat."""

    def empty(self, gradient: Any) -> Any:
        """Room for the payload of a gradient such as this."""

    def decode(self, payload: Any, gradient: Any) -> Any:
        """What a payload stands for, in the shape of this gradient."""


def compressor_of(mode: str) -> Compressor:
    """The compressor of a mode. Raises `InputError` for a name that is none of them."""
    if match := re.fullmatch(r"rank (\d+)", mode):
        return LowRank(int(match[1]))
    if match := re.fullmatch(r"top (\d*\.?\d+)%", mode):
        return TopK(float(match[1]) / 100)
    if mode in ("float16", "bfloat16"):
        return Cast(getattr(torch, mode))
    raise InputError(f"mode: must be rank N, top X%, float16 or bfloat16, as in 'rank 4', got {mode!r}")


class LowRank:
    """A matrix as the product of two with `rank` columns, by one power iteration from the last one's (PowerSGD).

    Rows are all dimensions but the last. The payload has rank * (rows + columns) numbers; where that is no less than
    the matrix has, it is the matrix.
    """

    def __init__(self, rank: int) -> None:
        if rank < 1:
            raise InputError(f"rank: must be >= 1, got {rank}")
        self.rank = rank
        self._right: Any = None

    def _numbers(self, gradient: Any) -> int:
        rows, columns = map(int, _matrix(gradient).shape)
        return min(self.rank * (rows + columns), rows * columns)

    def encode(self, gradient: Any) -> Any:
        """Both factors, the orthonormal one first."""
        matrix = _matrix(gradient)
        if self._numbers(gradient) == matrix.numel():
            return matrix.reshape(-1).clone()
        if self._right is None:
            generator = torch.Generator().manual_seed(0)
            self._right = torch.randn(matrix.shape[1], self.rank, generator=generator).to(matrix)
        left = torch.linalg.qr((matrix @ self._right).float()).Q.to(matrix.dtype)
        right = matrix.T @ left
        if torch.isfinite(poison(right)):  # an overflow mustn't spoil what comes later
            self._right = right
        return torch.cat([left.reshape(-1), right.reshape(-1)])

    def empty(self, gradient: Any) -> Any:
        """Room for both factors."""
        return gradient.new_empty(self._numbers(gradient))

    def decode(self, payload: Any, gradient: Any) -> Any:
        """The product of the factors."""
        rows, columns = _matrix(gradient).shape
        if len(payload) == rows * columns:
            return payload.view(gradient.shape)
        left, right = payload.split([rows * self.rank, columns * self.rank])
        return (left.view(rows, self.rank) @ right.view(columns, self.rank).T).view(gradient.shape)


class TopK:
    """The entries of greatest magnitude with their places: the share `kept` of all, one at least."""

    def __init__(self, kept: float) -> None:
        self._inner = compressors.TopK(kept)

    def encode(self, gradient: Any) -> Any:
        """Places, then values, as bytes."""
        return self._inner.encode(gradient.reshape(-1))

    def empty(self, gradient: Any) -> Any:
        """As many bytes as the payload of any gradient of this shape has."""
        return torch.empty_like(self._inner.encode(torch.zeros_like(gradient).reshape(-1)))

    def decode(self, payload: Any, gradient: Any) -> Any:
        """The kept entries among zeros."""
        total = torch.zeros_like(gradient).reshape(-1)
        self._inner.add_to(total, payload, factor=1.0)
        return total.view(gradient.shape)


class Cast:
    """Every entry in a shorter type."""

    def __init__(self, dtype: Any) -> None:
        self.dtype = dtype

    def encode(self, gradient: Any) -> Any:
        """Each entry, rounded."""
        return gradient.reshape(-1).to(self.dtype)

    def empty(self, gradient: Any) -> Any:
        """Room for as many entries."""
        return torch.empty(gradient.numel(), dtype=self.dtype, device=gradient.device)

    def decode(self, payload: Any, gradient: Any) -> Any:
        """The rounded entries in the gradient's own type."""
        return payload.to(gradient.dtype).view(gradient.shape)


def _matrix(gradient: Any) -> Any:
    """All dimensions but the last as rows."""
    return gradient.reshape(-1, gradient.shape[-1])
