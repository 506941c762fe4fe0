"""Cache profile: what modes of a cache of keys and values spoil, layer by layer while all others are in full."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.cache.layout import FORMATS, MEASURES, PARTS, Layout
from gapless.report.short_repr import Brief

__all__ = ["CacheProfile"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_PACKED = FORMATS[1:]


@dataclass(frozen=True, repr=False)
class CacheProfile(Brief):
    """The modes of a model's cache, and what each spoils.

    Errors are >= 0, float, with an axis of `MEASURES` first. `formats`: shape (measures, layers, 2, formats), of all
    heads' keys, or values, of one layer in a format other than full. `shares`: shape (layers, 2, key heads), in whose
    proportion a layer's error in any format is divided among its heads. `window`: (measures, layers, windows), of
    `windows` tokens. `sharing`: (measures, layers, counts), of `counts` key heads kept; `representatives`: int64,
    (layers, counts, heads), the head whose attention each head uses. `sequence`: tokens of a sequence. Raises
    `InputError`.
    """

    name: str
    layout: Layout
    heads: int
    key_heads: int
    parameters: int
    tokens: int
    sequence: int
    formats: Floats
    shares: Floats
    windows: tuple[int, ...]
    window: Floats
    counts: tuple[int, ...]
    representatives: Ints
    sharing: Floats
    source: str = ""

    def __post_init__(self) -> None:
        where = f"cache profile {self.name!r}"
        for name in ("heads", "key_heads", "parameters", "tokens", "sequence"):
            if getattr(self, name) < 1:
                raise InputError(f"{where}: {name} must be >= 1, got {getattr(self, name)}")
        if self.heads % self.key_heads:
            raise InputError(f"{where}: key_heads must divide the {self.heads} heads, got {self.key_heads}")
        if not self.layout.is_packable:
            rule = f"must be a multiple of 8, and of {self.layout.channels}, channels of a group"
            raise InputError(f"{where}: dimension {rule}, got {self.layout.dimension}")
        layers = self.formats.shape[1] if self.formats.ndim == 4 else 0
        if not layers:
            raise InputError(f"{where}: formats must be (measures, layers, 2, formats), got {self.formats.shape}")
        measures, parts = len(MEASURES), len(PARTS)
        shapes = {
            "formats": (measures, layers, parts, len(_PACKED)),
            "shares": (layers, parts, self.key_heads),
            "window": (measures, layers, len(self.windows)),
            "sharing": (measures, layers, len(self.counts)),
            "representatives": (layers, len(self.counts), self.heads),
        }
        for name, shape in shapes.items():
            found = getattr(self, name)
            if found.shape != shape:
                raise InputError(f"{where}: {name} must be {shape}, got {found.shape}")
            if not (np.isfinite(found) & (found >= 0)).all():
                raise InputError(f"{where}: {name} must be numbers >= 0")
        self._check_modes(where)

    def _check_modes(self, where: str) -> None:
        """Windows hold the recent tokens; the kept heads are as many as is said, and use their own attention."""
        if any(window < self.layout.recent for window in self.windows):
            rule = f"must hold the {self.layout.recent} recent tokens"
            raise InputError(f"{where}: windows {rule}, got {', '.join(map(str, self.windows))}")
        if (self.representatives >= self.heads).any():
            raise InputError(f"{where}: representatives must be below {self.heads}, the heads")
        for layer, place in np.ndindex(*self.representatives.shape[:2]):
            if not 0 < len(self.kept(layer, place)) <= self.counts[place]:
                rule = f"must keep {self.counts[place]} key heads at most"
                raise InputError(f"{where}: representatives of layer {layer} {rule}, got {self.kept(layer, place)}")

    @property
    def layers(self) -> int:
        """The number of layers."""
        return int(self.formats.shape[1])

    def kept(self, layer: int, place: int) -> tuple[int, ...]:
        """The key heads whose keys a layer keeps at `counts[place]`, ascending."""
        group = self.heads // self.key_heads
        return tuple(np.unique(self.representatives[layer, place] // group).tolist())

    def by_head(self, measure: str) -> Floats:
        """What each head's keys, or values, are charged in a format: (layers, 2, key heads, formats).

        A layer's error is divided among its heads by `shares`, evenly where all are 0.
        """
        total = self.shares.sum(axis=2, keepdims=True)
        shares = np.where(total > 0, self.shares / np.where(total > 0, total, 1.0), 1.0 / self.key_heads)
        return np.asarray(shares[..., None] * self.of("formats", measure)[:, :, None])

    def of(self, name: str, measure: str) -> Floats:
        """`formats`, `window` or `sharing` by one of `MEASURES`."""
        found: Floats = getattr(self, name)[list(MEASURES).index(measure)]
        return found
