"""Head profile: what it spoils when an attention head takes over the attention of another one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.brief import Brief
from gapless.errors import InputError
from gapless.profiles.heads.rises import Rises

__all__ = ["DISTANCES", "HeadProfile"]

Floats = NDArray[np.float64]

DISTANCES = {
    "output": "||(A_j - A_h) V_h O_h||^2: by how much the layer's output changes",
    "scores": "||A_j - A_h||^2: by how much the attention itself changes",
}
"""What a head h that takes over the attention A of head j is charged, means over tokens."""


@dataclass(frozen=True, repr=False)
class HeadProfile(Brief):
    """The heads of a model, and how far they are from each other.

    `scores[l, h, j]`, `output[l, h, j]`: float, shape (layers, heads, heads), >= 0, the distances of `DISTANCES` of
    head h in layer l that takes over the attention of head j; 0 for itself. `key_heads`: heads that have keys and
    values of their own, as many query heads to each in turn. `dimension`: of a head. `parameters`: of the whole model.
    `tokens`: how many the means are over. `rises`: of the loss, where they are measured. Raises
    `InputError` where one doesn't fit the others.
    """

    name: str
    scores: Floats
    output: Floats
    key_heads: int
    dimension: int
    parameters: int
    tokens: int
    source: str = ""
    rises: Rises | None = None

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
        if self.rises is not None and self.rises.loss.shape != (shape[0], self.key_heads):
            rule = f"rise must be {(shape[0], self.key_heads)}, layers and key heads"
            raise InputError(f"head profile {self.name!r}: {rule}, got {self.rises.loss.shape}")

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
