"""The mode of a layer's cache: a window of tokens, a format for each head's keys and values, keys that heads share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from gapless.io.typed import Stored
from gapless.profiles.cache.layout import FULL, Layout

__all__ = ["SHARED", "LayerModes"]

SHARED = "shared"
"""Of keys that aren't cached, since heads use the attention of others."""


@dataclass(frozen=True)
class LayerModes:
    """Of one layer. `window`: so many recent tokens stay at least, 0 for all. `keys[g]`, `values[g]`: a format of key
    head g, or `shared`. `representatives[h]`: the query head whose attention head h uses; its keys are there.
    """

    window: Annotated[int, Stored(0)]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    representatives: Annotated[tuple[int, ...], Stored(each="whole numbers >= 0", is_filled=True)]

    @classmethod
    def full(cls, heads: int, key_heads: int) -> LayerModes:
        """All tokens as the model computes them."""
        return cls(0, (FULL,) * key_heads, (FULL,) * key_heads, tuple(range(heads)))

    def sharing(self, kept: tuple[int, ...], representatives: tuple[int, ...]) -> LayerModes:
        """The same with these key heads' keys alone."""
        keys = tuple(name if head in kept else SHARED for head, name in enumerate(self.keys))
        return replace(self, keys=keys, representatives=representatives)

    @property
    def kept(self) -> tuple[int, ...]:
        """The key heads whose keys are cached."""
        return tuple(head for head, name in enumerate(self.keys) if name != SHARED)

    def cache_bytes(self, layout: Layout, tokens: int, element_bytes: int) -> int:
        """Of one sequence of so many tokens."""
        keys = [("keys", name) for name in self.keys if name != SHARED]
        parts = [*keys, *(("values", name) for name in self.values)]
        return sum(layout.head_bytes(part, name, tokens, self.window, element_bytes) for part, name in parts)
