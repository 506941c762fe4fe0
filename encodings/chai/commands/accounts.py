"""What requests came to with one choice of heads: loss, tokens and words that are right, errors, bytes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.units import format_bytes

__all__ = ["HEADS", "Account", "words_right"]

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

HEADS = ("heads", "loss", "next token", "next word", "error of scores", "cache", "equal tokens")
"""Of a line of accounts."""
_SPACES = np.array([byte for byte in range(256) if chr(byte).isspace()])


@dataclass
class Account:
    """Of one choice of heads over all requests, sums: nats, tokens and words that count, those that are right, errors
    of scores (nan where heads are dropped), bytes, and generated tokens that are the full model's.
    """

    loss: float = 0.0
    count: int = 0
    right: int = 0
    words: int = 0
    right_words: int = 0
    error: float = 0.0
    cache_bytes: int = 0
    equal_tokens: int = 0

    @property
    def data(self) -> dict[str, float | None]:
        """In plain values, a token or a word each."""
        return {
            "loss": self.loss / self.count,
            "token_accuracy": self.right / self.count,
            "word_accuracy": self.right_words / self.words if self.words else None,
            "error": None if math.isnan(self.error) else self.error / self.count,
            "cache_bytes": self.cache_bytes,
            "equal_tokens": self.equal_tokens,
        }

    def line(self, name: str) -> list[str]:
        """As `HEADS` say."""
        each = self.data
        words, error = each["word_accuracy"], each["error"]
        return [
            name, f"{each['loss']:.4f}", f"{each['token_accuracy']:.1%}", "-" if words is None else f"{words:.1%}",
            "-" if error is None else f"{error:.4g}", format_bytes(self.cache_bytes), str(self.equal_tokens),
        ]  # fmt: skip


def words_right(tokens: Ints, right: Bools) -> tuple[int, int]:
    """How many words of texts there are, and how many have all their bytes right; those that are cut don't count.

    `tokens`: bytes, (requests, tokens); `right`: whether each is what the model finds most likely there.
    """
    words = right_words = 0
    for row, here in zip(np.isin(tokens, _SPACES), right, strict=True):
        spaces = np.flatnonzero(row)
        starts, ends = spaces[:-1] + 1, spaces[1:]
        whole = starts < ends
        hits = np.concatenate([[0], np.cumsum(here)])
        words += int(whole.sum())
        right_words += int((hits[ends] - hits[starts] == ends - starts)[whole].sum())
    return words, right_words
