"""Cache profiles by name: a file's, or one that `synthetic:layers=32,heads=32` makes up without a model."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gapless.profiles.cache.layout import FORMATS, MEASURES, PARTS, Layout, bits_of
from gapless.profiles.cache.profile import CacheProfile
from gapless.profiles.cache.profile_file import read_cache_profile
from gapless.profiles.heads.named import SYNTHETIC, synthetic_values
from gapless.profiles.heads.profile import counts_to_measure

__all__ = ["find_cache_profile", "synthetic_cache"]

_SEQUENCE = 2048


def find_cache_profile(profile: str | Path | CacheProfile) -> CacheProfile:
    """The profile that `synthetic:...` makes, that in a file, or the profile itself. Raises `InputError`."""
    if isinstance(profile, CacheProfile):
        return profile
    if str(profile).startswith(SYNTHETIC):
        return synthetic_cache(**synthetic_values(str(profile)))
    return read_cache_profile(profile)


def synthetic_cache(layers: int, heads: int, key_heads: int, dimension: int, seed: int) -> CacheProfile:
    """Layers and heads that spoil very different amounts; a format of one bit less spoils four times as much."""
    rng, measures = np.random.default_rng(seed), len(MEASURES)
    layer = 1e-4 * rng.lognormal(sigma=1.0, size=(1, layers, 1))
    bits = np.array([4.0 ** (4 - bits_of(name)) for name in FORMATS[1:]])
    part = rng.uniform(0.5, 2.0, size=(1, layers, len(PARTS)))
    formats = (layer * part)[..., None] * bits
    shares = rng.lognormal(sigma=1.0, size=(layers, len(PARTS), key_heads))
    counts = tuple(counts_to_measure(key_heads))
    windows = (256, 1024)
    window = 20 * layer * rng.lognormal(sigma=1.0, size=(1, layers, 1)) * np.array([4.0, 1.0])
    sharing = 1000 * layer * (1 - np.array(counts, dtype=np.float64) / key_heads) ** 2
    group, rows = heads // key_heads, np.zeros((layers, len(counts), heads), dtype=np.int64)
    for number in range(layers):
        order = rng.permutation(key_heads)
        for place, count in enumerate(counts):
            kept = np.sort(order[:count])
            uses = np.where(
                np.isin(np.arange(key_heads), kept), np.arange(key_heads), kept[np.arange(key_heads) % count]
            )
            rows[number, place] = (uses[:, None] * group + np.arange(group)).reshape(-1)
    width = heads * dimension
    return CacheProfile(
        "synthetic", Layout(dimension), heads, key_heads, 12 * layers * width**2, _SEQUENCE, _SEQUENCE,
        np.repeat(formats, measures, axis=0), shares, windows, np.repeat(window, measures, axis=0), counts, rows,
        np.repeat(sharing, measures, axis=0), f"made up: {layers} layers of {heads} heads, seed {seed}",
    )  # fmt: skip
