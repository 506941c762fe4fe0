"""How a cache of keys and values lies in memory: formats of numbers, groups with a scale, recent tokens, windows.

Of a head with n tokens in the cache, the first q(n) are in the head's format and the others in full; q(n) is a multiple
of `group`, and at least `recent` tokens are in full. A layer with a window has dropped its first start(n) tokens, but
for the `sinks` first ones of each sequence. Both move by whole groups, so that a group keeps its scale.

In a format of b bits a number is a whole number of b bits, times a scale, plus a least value, 16 bits each: one of both
for each channel of a group of tokens (keys), or for each token's group of channels (values), after KIVI (Liu et al.,
ICML 2024).
"""

from __future__ import annotations

from dataclasses import dataclass

from gapless.errors import InputError

__all__ = ["FORMATS", "FULL", "HEADS", "MEASURES", "PARTS", "Layout", "bits_of"]

FULL = "full"
"""As the model computes them."""
FORMATS = (FULL, "int8", "int6", "int5", "int4", "int3", "int2")
PARTS = ("keys", "values")
HEADS = ("measured", "output")
"""How a layer's error is divided among its heads: measured head by head, or by how much each changes the layer's output
(cheaper)."""

MEASURES = {
    "divergence": "Kullback and Leibler's divergence of the next token's distribution from the one with the full cache",
    "loss": "rise of the loss",
}
"""What a mode is charged, nats a token; a loss that falls counts as 0."""

_SCALE_BYTES = 4
"""Of a scale and a least value."""


def bits_of(name: str) -> int:
    """Of a number in one of `FORMATS` but `full`."""
    return int(name.removeprefix("int"))


@dataclass(frozen=True)
class Layout:
    """Of heads of `dimension` numbers. Raises `InputError` where one doesn't fit the others."""

    dimension: int
    group: int = 32
    recent: int = 32
    sinks: int = 4

    def __post_init__(self) -> None:
        if self.dimension < 1 or self.group < 1:
            raise InputError(f"group: must be >= 1, and so a head's dimension, got {self.group}, {self.dimension}")
        if self.recent < 1:
            raise InputError(f"recent: must be >= 1, since a token attends to itself in full, got {self.recent}")
        if not 0 <= self.sinks <= self.group:
            raise InputError(f"sinks: must be 0 .. {self.group}, a group, got {self.sinks}")

    @property
    def channels(self) -> int:
        """Channels of a token's values with one scale."""
        return min(self.group, self.dimension)

    @property
    def is_packable(self) -> bool:
        """Whether a token's numbers of any format are whole bytes, and whole groups of channels."""
        return self.dimension % 8 == 0 and self.dimension % self.channels == 0

    def quantised(self, tokens: int) -> int:
        """q(n)."""
        return self.group * (max(0, tokens - self.recent) // self.group)

    def start(self, tokens: int, window: int) -> int:
        """start(n) of a layer with a window; 0 without one (0)."""
        return self.group * (max(0, tokens - window) // self.group) if window else 0

    def head_bytes(self, part: str, name: str, tokens: int, window: int, element_bytes: int) -> int:
        """What the keys, or the values, of one head and sequence take once so many tokens are cached."""
        start = self.start(tokens, window)
        full_tokens, packed_tokens = tokens - start, 0
        if name != FULL:
            packed_tokens = self.quantised(tokens) - start
            full_tokens -= packed_tokens
        full_tokens += self.sinks if start else 0
        return full_tokens * self.dimension * element_bytes + self.packed_bytes(part, name, packed_tokens)

    def packed_bytes(self, part: str, name: str, tokens: int) -> int:
        """What whole groups of tokens take in a format other than `full`."""
        if not tokens:
            return 0
        scales = self.dimension * tokens // self.group if part == "keys" else tokens * self.dimension // self.channels
        return tokens * self.dimension * bits_of(name) // 8 + scales * _SCALE_BYTES
