"""Layers at random: whole seconds and bytes, some with an embedding that both ends of the model share."""

from __future__ import annotations

import numpy as np

from gapless.profiles.pipelines.profile import PipelineProfile

__all__ = ["random_layers"]


def random_layers(rng: np.random.Generator, layers: int) -> PipelineProfile:
    """So many of them."""
    times = [rng.integers(1, 9, layers).astype(float) for _ in range(3)]
    parameters = rng.integers(4, 9, layers)
    return PipelineProfile(
        "random", tuple(map(str, range(layers))), *times, parameters, 2 * parameters, rng.integers(5, 20, layers),
        rng.integers(1, 4, layers), embedding_bytes=int(rng.integers(0, 2)) * 3,
    )  # fmt: skip
