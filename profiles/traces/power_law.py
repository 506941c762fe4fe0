"""Power law: ids with p(rank) ~ (rank + shift)^-exponent, drawn fast from tables of any size.

The first ranks come from an alias table (Walker 1977), the rest from the inverse of the integral of the law over
[first tail rank - 1/2, rows + 1/2], rounded. Two constant-time steps serve three rows and ten million alike.

How exact: the probabilities of the head are met within 2^-32 each; the midpoint rule puts those of the tail off by a
factor within 1 +- exponent (exponent + 1) / (24 (HEAD + shift)^2), at most 3e-7 at exponent 5.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError

__all__ = ["HEAD", "PowerLaw"]

HEAD = 2047
"""Ranks that are drawn from the alias table; with the tail as one more outcome they fill 11 bits."""

_COLUMN_BITS = 11
_LEVEL_BITS = 32 - _COLUMN_BITS
_MOST_MASS = 1 << _LEVEL_BITS


@dataclass(frozen=True)
class PowerLaw:
    """Ids 0, 1, ..., rows - 1 by falling probability: id r has rank r + 1 and p ~ (r + 1 + shift)^-exponent.

    `atom`: a share of draws that all give id 0; the law then spreads the rest over ids 1, 2, ... (rank 1, 2, ...).
    Raises `InputError` for numbers outside their range.
    """

    rows: int
    exponent: float
    shift: float = 0.0
    atom: float = 0.0

    def __post_init__(self) -> None:
        if self.rows < 1:
            raise InputError(f"power law: rows must be >= 1, got {self.rows}")
        for title, value, least, most in (
            ("exponent", self.exponent, 0.0, 20.0),
            ("shift", self.shift, 0.0, 1e9),
            ("atom", self.atom, 0.0, 1.0),
        ):
            if not least <= value <= most:
                raise InputError(f"power law: {title} must be in {least:g}..{most:g}, got {value}")

    @property
    def _first(self) -> int:
        """The id of rank 1."""
        return 1 if self.atom and self.rows > 1 else 0

    def sampler(self) -> Sampler:
        """The tables from which ids are drawn."""
        first = self._first
        ranks = self.rows - first
        head = min(ranks, HEAD - first)
        weights = (np.arange(1, head + 1) + self.shift) ** -self.exponent
        start, stop = head + 0.5 + self.shift, ranks + 0.5 + self.shift
        tail = _integral(start, stop, self.exponent) if head < ranks else 0.0
        shares = np.zeros(HEAD + 1)
        shares[first : first + head] = weights
        shares[HEAD] = tail
        if first:
            shares *= (1 - self.atom) / shares.sum()
            shares[0] = self.atom
        levels, aliases = _alias_table(shares)
        return Sampler(self.rows, levels, aliases, self.exponent, start, stop, start - head - first)


@dataclass(frozen=True)
class Sampler:
    """The alias table of the head, and the bounds of the tail's integral."""

    rows: int
    levels: NDArray[np.uint32]
    aliases: NDArray[np.int64]
    exponent: float
    tail_start: float
    tail_stop: float
    tail_offset: float

    def draw(self, count: int, chance: np.random.Generator) -> NDArray[np.int64]:
        """So many ids."""
        words = chance.integers(0, 1 << 32, count, dtype=np.uint32)
        columns = (words >> np.uint32(_LEVEL_BITS)).astype(np.int64)
        words &= np.uint32(_MOST_MASS - 1)
        ids = np.where(words < self.levels.take(columns), columns, self.aliases.take(columns))
        tail = np.flatnonzero(ids == HEAD)
        if len(tail):
            ids[tail] = self._tail(chance.random(len(tail)))
        return ids

    def _tail(self, uniform: NDArray[np.float64]) -> NDArray[np.int64]:
        position = _inverse_integral(uniform, self.tail_start, self.tail_stop, self.exponent)
        position -= self.tail_offset
        # Rounding of the power may step over the last row by one.
        return np.minimum(position.astype(np.int64), self.rows - 1)


def _integral(start: float, stop: float, exponent: float) -> float:
    """Of x^-exponent from `start` to `stop`, without cancellation near exponent 1."""
    span, power = math.log(stop / start), 1 - exponent
    return math.exp(power * math.log(start)) * (span if abs(power * span) < 1e-12 else math.expm1(power * span) / power)


def _inverse_integral(share: NDArray[np.float64], start: float, stop: float, exponent: float) -> NDArray[np.float64]:
    """Where the integral from `start` reaches a share of the integral up to `stop`."""
    span, power = math.log(stop / start), 1 - exponent
    if abs(power * span) < 1e-9:
        return start * np.exp(share * span)
    share *= math.expm1(power * span)
    np.log1p(share, out=share)
    share *= 1 / power
    np.exp(share, out=share)
    share *= start
    return share


def _alias_table(shares: NDArray[np.float64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Levels and aliases: column k gives k below its level, else its alias (Walker 1977, Vose 1991).

    Shares are rounded to whole parts of 2^-32 first, so that the columns fill exactly. The loop is over columns, once
    for each table of a generator.
    """
    columns = len(shares)
    parts = np.floor(shares / shares.sum() * (columns * _MOST_MASS)).astype(np.int64)
    parts[int(parts.argmax())] += columns * _MOST_MASS - int(parts.sum())
    aliases, left = np.arange(columns, dtype=np.int64), parts.tolist()
    small = [k for k in range(columns) if left[k] < _MOST_MASS]
    large = [k for k in range(columns) if left[k] > _MOST_MASS]
    while small:
        low, high = small.pop(), large[-1]
        aliases[low] = high
        left[high] -= _MOST_MASS - left[low]
        if left[high] <= _MOST_MASS:
            large.pop()
            if left[high] < _MOST_MASS:
                small.append(high)
    return np.array(left, dtype=np.uint32), aliases
