"""Small compression traces: random ones, and one that is the same in every run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.profiles.compression.trace import CompressionTrace

SHAPES = ((10, 32), (32,), (32, 48), (16,), (16, 3, 3, 3))
RANKS = ("powersgd:1", "powersgd:2", "powersgd:4")


def random_trace(seed: int, epochs: int = 3, layers: int = 3, modes: int = 3) -> CompressionTrace:
    """Random shapes, of which some are factored, and errors that fall from mode to mode."""
    generator = np.random.default_rng(seed)
    shapes = tuple(
        (int(generator.integers(8, 40)), int(generator.integers(8, 40))) if generator.random() < 0.8 else (5,)
        for _ in range(layers)
    )
    error = -np.sort(-generator.random((epochs, layers, modes)), axis=2)
    learning_rate = np.where(np.arange(epochs) < 2 * epochs / 3, 0.1, 0.01)
    return CompressionTrace(
        name=f"random {seed}", layer_names=tuple(f"layer{k}" for k in range(layers)), shapes=shapes,
        modes=tuple(f"powersgd:{2**k}" for k in range(modes)), steps=np.full(epochs, 5), learning_rate=learning_rate,
        error=error, norm=generator.random((epochs, layers)), deviation_ratio=generator.random((epochs, layers)),
        forward_s=1e-3, backward_s=generator.random(layers) * 1e-3, compress_s=generator.random((layers, modes)) * 1e-4,
        source="random",
    )  # fmt: skip


def small_trace(epochs: int = 6) -> CompressionTrace:
    """Five layers in three ranks; of the last epochs the learning rate is a tenth."""
    layers = len(SHAPES)
    scale = np.array([3.0, 0.1, 5.0, 0.1, 1.0])[None, :, None] * np.linspace(1.0, 0.3, epochs)[:, None, None]
    error = scale * np.array([1.0, 0.6, 0.2]) * np.array([0.7, 0.0, 1.0, 0.0, 0.4])[None, :, None]
    trace = random_trace(1, epochs, layers)
    return replace(
        trace, name="small", layer_names=("head", "bias", "middle", "norm", "first"), shapes=SHAPES, modes=RANKS,
        error=error, norm=np.sqrt(error[:, :, 0] + 1.0), source="made up",
    )  # fmt: skip
