"""Slices of a micro-batch along its sequence: how many tokens each has, and what it costs.

The share of a forward, and of a gradient of inputs, that is causal attention grows with the square of the tokens up to
there: a token attends to all before it. The rest, and the gradient of weights, goes by tokens (Sun et al., "Seq1F1B:
Efficient sequence-level pipeline parallelism for large language model training", 2024).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints

__all__ = ["Shares", "shares_of"]


@dataclass(frozen=True)
class Shares:
    """Of a whole micro-batch's, by slice, float of shape (K,) each: `tokens`, and with them bytes and what weights
    cost; `work`, of forwards and gradients of inputs.
    """

    tokens: Floats
    work: Floats

    @property
    def least(self) -> float:
        """No op of the first slice has a lower share."""
        return float(min(self.tokens[0], self.work[0]))

    @property
    def most(self) -> float:
        """Of some slice no op has a lower share."""
        return float(np.minimum(self.tokens, self.work).max())

    def cut(self, sizes: Ints) -> Ints:
        """Bytes of each slice and stage, whole numbers that add up to those of the stage; int64 of shape (K, S)."""
        ends = np.rint(np.outer(np.append(0.0, np.cumsum(self.tokens)), sizes)).astype(np.int64)
        ends[-1] = sizes
        return np.diff(ends, axis=0)


def shares_of(slices: int, attention: float, lengths: Sequence[float]) -> Shares:
    """`attention`: the share of causal attention in work. `lengths`: relative numbers of tokens; where there are none,
    slices have equal work, later ones fewer tokens.
    """
    linear = 1 - attention
    if lengths:
        ends = np.cumsum(lengths) / math.fsum(lengths)
        return Shares(np.diff(ends, prepend=0.0), np.diff(linear * ends + attention * ends**2, prepend=0.0))
    parts = np.arange(1, slices + 1) / slices
    ends = 2 * parts / (linear + np.sqrt(linear**2 + 4 * attention * parts))  # whose work is that part
    return Shares(np.diff(ends, prepend=0.0), np.full(slices, 1 / slices))
