"""How close implementations are that aren't equal bit by bit."""

from __future__ import annotations

import torch

__all__ = ["CLOSE", "distance", "same"]

CLOSE = {torch.float32: 1e-6, torch.float64: 1e-14}
"""The most that an operator may be off, relative to the norm of what it should find."""


def distance(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The norm of the difference, relative to the norm of what is expected."""
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    return float((found - expected).norm() / expected.norm())


def same(mine: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal bit by bit, NaN and the sign of zero included."""
    return mine.dtype == other.dtype and torch.equal(
        mine.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
    )
