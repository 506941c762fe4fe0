"""Head profile: what it spoils when an attention head takes over the attention of another one.

`synthetic:layers=32,heads=32` makes one without a model, for trials: heads in groups, fewer of them in later layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.fields import Whole

__all__ = ["DISTANCES", "HeadProfile", "find_head_profile", "synthetic_profile"]

Floats = NDArray[np.float64]

DISTANCES = {
    "output": "||(A_j - A_h) V_h O_h||^2: by how much the layer's output changes",
    "scores": "||A_j - A_h||^2: by how much the attention itself changes",
}
"""What a head h that takes over the attention A of head j is charged, means over tokens."""

_SYNTHETIC = "synthetic:"
_DEFAULTS = {"layers": 32, "heads": 32, "key_heads": 0, "dimension": 128, "seed": 0}
_FEATURES = 48
"""Of the made-up heads' attention: more than there are heads in most groups."""


@dataclass(frozen=True)
class HeadProfile:
    """The heads of a model, and how far they are from each other.

    `scores[l, h, j]`, `output[l, h, j]`: float, shape (layers, heads, heads), >= 0, the distances of `DISTANCES` of
    head h in layer l that takes over the attention of head j; 0 for itself. `key_heads`: heads that have keys and
    values of their own, as many query heads to each in turn. `dimension`: of a head. `parameters`: of the whole model.
    `tokens`: how many the means are over. Raises `InputError` where one doesn't fit the others.
    """

    name: str
    scores: Floats
    output: Floats
    key_heads: int
    dimension: int
    parameters: int
    tokens: int
    source: str = ""

    def __post_init__(self) -> None:
        shape = self.scores.shape
        if len(shape) != 3 or 0 in shape or shape[1] != shape[2]:
            raise InputError(f"head profile {self.name!r}: scores must be (layers, heads, heads), got {shape}")
        if self.output.shape != shape:
            rule = f"output must be {shape}, as scores is"
            raise InputError(f"head profile {self.name!r}: {rule}, got {self.output.shape}")
        for name in DISTANCES:
            _check_distances(f"head profile {self.name!r}: {name}", getattr(self, name))
        for name in ("key_heads", "dimension", "parameters", "tokens"):
            if getattr(self, name) < 1:
                raise InputError(f"head profile {self.name!r}: {name} must be >= 1, got {getattr(self, name)}")
        if shape[1] % self.key_heads:
            rule = f"must divide the {shape[1]} heads"
            raise InputError(f"head profile {self.name!r}: key_heads {rule}, got {self.key_heads}")

    @property
    def layers(self) -> int:
        """The number of layers."""
        return len(self.scores)

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return int(self.scores.shape[1])

    @property
    def group(self) -> int:
        """Query heads that share one key head."""
        return self.heads // self.key_heads

    def distance(self, name: str) -> Floats:
        """The distances of one name of `DISTANCES`."""
        found: Floats = getattr(self, name)
        return found


def _check_distances(where: str, distance: Floats) -> None:
    bad = ~(np.isfinite(distance) & (distance >= 0))
    bad |= np.eye(distance.shape[1], dtype=np.bool_) & (distance != 0)
    if bad.any():
        layer, head, other = np.argwhere(bad)[0].tolist()
        rule = "of a head from itself must be 0" if head == other else "must be numbers >= 0"
        value = distance[layer, head, other]
        raise InputError(f"{where} distances {rule}, got {value} in layer {layer}, heads {head} and {other}")


def find_head_profile(profile: str | Path | HeadProfile) -> HeadProfile:
    """The profile in a file, the one that `synthetic:...` makes, or the profile itself. Raises `InputError`."""
    if isinstance(profile, HeadProfile):
        return profile
    if str(profile).startswith(_SYNTHETIC):
        return _synthetic(str(profile))
    from gapless.profiles.heads.profile_file import read_head_profile

    return read_head_profile(profile)


def _synthetic(text: str) -> HeadProfile:
    given = [part.partition("=") for part in text.removeprefix(_SYNTHETIC).split(",") if part]
    values = dict(_DEFAULTS)
    for name, _, value in given:
        if name not in values:
            raise InputError(f"profile: synthetic takes {', '.join(values)}, got {name!r}")
        try:
            values[name] = Whole(0 if name == "seed" else 1, 4096)(value)
        except InputError as error:
            raise InputError(f"profile: {name} of synthetic {error}") from None
    values["key_heads"] = values["key_heads"] or values["heads"]
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
