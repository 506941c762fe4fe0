"""The plan's core: the mode of each layer's cache, and the layout that all share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from gapless.decision import Decision
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.io.typed import Stored
from gapless.profiles.cache.layout import FORMATS, Layout
from gapless.profiles.cache.modes import SHARED, LayerModes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["CacheDecision"]


@dataclass(frozen=True)
class CacheDecision(Decision):
    """The modes of each layer, and of `Layout`: tokens of a `group`, `recent` tokens in full, and `sinks`.

    Raises `InputError` for a layer whose formats, windows or shared keys can't be.
    """

    dimension: Annotated[int, Stored(1)]
    group: Annotated[int, Stored(1)]
    recent: Annotated[int, Stored(1)]
    sinks: Annotated[int, Stored(0)]
    layers: Annotated[tuple[LayerModes, ...], Stored(is_filled=True)]

    def __post_init__(self) -> None:
        for number, layer in enumerate(self.layers):
            where = f"layers[{number}]"
            self._check_layer(where, layer)

    def _check_layer(self, where: str, layer: LayerModes) -> None:
        heads, key_heads = len(layer.representatives), len(layer.keys)
        if not key_heads or heads % key_heads or len(layer.values) != key_heads:
            rule = f"must be of as many key heads, a divisor of {heads} heads"
            raise InputError(f"{where}: keys and values {rule}, got {key_heads} and {len(layer.values)}")
        for name in layer.keys:
            check_known(f"{where}: keys", name, (*FORMATS, SHARED))
        for name in layer.values:
            check_known(f"{where}: values", name, FORMATS)
        if layer.window and layer.window < self.recent:
            raise InputError(f"{where}: window: must be 0 or hold the {self.recent} recent tokens, got {layer.window}")
        group = heads // key_heads
        for head in layer.representatives:
            if head >= heads or layer.keys[head // group] == SHARED:
                raise InputError(f"{where}: representatives: head {head} is used, but its keys are not kept")

    @classmethod
    def made_of(cls, layers: Sequence[LayerModes], layout: Layout) -> CacheDecision:
        """Of the layers' modes."""
        return cls(layout.dimension, layout.group, layout.recent, layout.sinks, tuple(layers))

    @property
    def layout(self) -> Layout:
        """How the cache lies in memory."""
        return Layout(self.dimension, self.group, self.recent, self.sinks)
