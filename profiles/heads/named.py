"""Head profiles by name, from files, and synthetic ones for trials.

`small-lm` is of a model trained as tests/support/small_lm.py does, on the documentation: 4 layers of 8 heads.

`synthetic:layers=32,heads=32` makes one without a model: heads in groups, fewer of them in later layers.
"""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from gapless.errors import InputError
from gapless.profiles.heads.profile import HeadProfile
from gapless.profiles.heads.profile_file import read_head_profile
from gapless.question.fields import Whole

__all__ = ["SYNTHETIC", "find_head_profile", "head_profile_names", "synthetic_profile", "synthetic_values"]

_SHIPPED = ("small-lm",)

SYNTHETIC = "synthetic:"
_DEFAULTS = {"layers": 32, "heads": 32, "key_heads": 0, "dimension": 128, "seed": 0}
_FEATURES = 48
"""Of the made-up heads' attention: more than there are heads in most groups."""


def head_profile_names() -> list[str]:
    """The profiles that gapless ships."""
    return list(_SHIPPED)


def find_head_profile(profile: str | Path | HeadProfile) -> HeadProfile:
    """The shipped profile of that name, the one that `synthetic:...` makes, that in a file, or the profile itself.

    Raises `InputError`.
    """
    if isinstance(profile, HeadProfile):
        return profile
    if str(profile).startswith(SYNTHETIC):
        return _synthetic(str(profile))
    if str(profile) in _SHIPPED:
        with as_file(files("gapless.profiles.heads") / f"{profile}.npz") as path:
            return read_head_profile(path)
    return read_head_profile(profile)


def synthetic_values(text: str) -> dict[str, int]:
    """The numbers that `synthetic:layers=32,heads=32` says; as many key heads as heads unless it says otherwise.

    Raises `InputError`.
    """
    given = [part.partition("=") for part in text.removeprefix(SYNTHETIC).split(",") if part]
    values = dict(_DEFAULTS)
    for name, _, value in given:
        if name not in values:
            raise InputError(f"profile: synthetic takes {', '.join(values)}, got {name!r}")
        try:
            values[name] = Whole(0 if name == "seed" else 1, 4096)(value)
        except InputError as error:
            raise InputError(f"profile: {name} of synthetic {error}") from None
    values["key_heads"] = values["key_heads"] or values["heads"]
    return values


def _synthetic(text: str) -> HeadProfile:
    values = synthetic_values(text)
    most = 2**27
    if values["layers"] * values["heads"] ** 2 > most:
        raise InputError(f"profile: synthetic's layers x heads x heads must be <= {most}, got {text!r}")
    return synthetic_profile(**values)


def synthetic_profile(layers: int, heads: int, key_heads: int, dimension: int, seed: int) -> HeadProfile:
    """Heads in groups that attend alike: as many as heads in the first layer, an eighth of that in the last."""
    rng = np.random.default_rng(seed)
    scores, output = np.zeros((2, layers, heads, heads))
    for layer in range(layers):
        groups = max(1, round(heads * (1 - 0.875 * layer / max(1, layers - 1))))
        centres = rng.gamma(0.5, size=(groups, _FEATURES))
        attention = centres[rng.integers(0, groups, heads)] + 0.3 * rng.gamma(0.5, size=(heads, _FEATURES))
        attention /= attention.sum(axis=1, keepdims=True)
        apart = attention[:, None] - attention[None]
        scores[layer] = (apart**2).sum(axis=2)
        values = rng.normal(size=(heads, _FEATURES, 8)) * rng.lognormal(sigma=0.7, size=(heads, 1, 1))
        output[layer] = (np.einsum("hjf,hfd->hjd", apart, values) ** 2).sum(axis=2)
    width = heads * dimension
    source = f"made up: {layers} layers of {heads} heads, seed {seed}"
    return HeadProfile("synthetic", scores, output, key_heads, dimension, 12 * layers * width**2, 1, source)
