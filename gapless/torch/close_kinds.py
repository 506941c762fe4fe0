"""The kinds of implementations of PyTorch's operators that are close to eager's, not equal bit by bit.

Only what is asked for is offered. Needs no PyTorch.
"""

from __future__ import annotations

__all__ = ["ATTENTION", "CLOSE", "LOSS", "NORM"]

ATTENTION, LOSS, NORM = "attention", "loss", "norm"
CLOSE = (ATTENTION, LOSS, NORM)
