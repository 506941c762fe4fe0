"""The kinds of implementations of PyTorch's operators that are close to eager's, not equal bit by bit.

Only what is asked for is offered. Needs no PyTorch.
"""

from __future__ import annotations

__all__ = ["ATTENTION", "CLOSE", "LOSS", "NORM", "TOLERANCE"]

ATTENTION, LOSS, NORM = "attention", "loss", "norm"
CLOSE = (ATTENTION, LOSS, NORM)

TOLERANCE = 1e-4
"""The most that a whole step may be off eager's by default: above what these come to in 32 bits."""
