"""Small questions of pipelines under several limits of memory, at random."""

from __future__ import annotations

from typing import Any

import numpy as np

from gapless.encodings.pipeline.parameters import Parameters
from gapless.profiles.pipelines.profile import PipelineProfile

FEW = Parameters(
    heuristic_ops=2000, quick_ops=500, exact_steps=30, rounds=3, window_steps=20, partial_cuts=300, ordered_cuts=6,
    refined_cuts=2, bound_points=32, bound_ranks=1, policy_steps=3,
)  # fmt: skip
"""Little work for each: what is found depends much on where a search begins."""


def random_sweep(seed: int) -> tuple[dict[str, Any], str, list[int]]:
    """The fields of a question, which limit is swept, and over what, in no order. The first ten are the smallest."""
    random, is_small = np.random.default_rng(seed), seed < 10
    placement = "linear" if is_small else str(random.choice(["linear", "linear", "v", "looped"]))
    chunks = 1 if placement == "linear" else 2
    ranks = 2 if is_small or chunks > 1 else int(random.integers(2, 5))
    micro_batches = 2 * ranks if placement == "looped" else 3 if is_small else int(random.integers(3, 6))
    layers = ranks * chunks + (1 if is_small else int(random.integers(0, 3)))
    asked: dict[str, Any] = {
        "profile": random_profile(random, layers), "ranks": ranks, "micro_batches": micro_batches,
        "placement": placement, "hop": int(random.integers(0, 4)),
    }  # fmt: skip
    if chunks > 1:
        asked["chunks"] = chunks
    if not is_small and random.random() < 0.3:
        asked["recomputation"] = "auto"
    if random.random() < 0.5:
        limits = random.permutation(np.arange(1, micro_batches + 1))[: 2 if is_small else 3]
        return asked, "in_flight", [int(one) for one in limits]
    stash = int(asked["profile"].stash_bytes.sum()) // ranks + 40
    shares = random.uniform(1.0, micro_batches, size=2 if is_small else 3)
    return asked, "memory", [int(share * stash) + 40 for share in shares]


def random_profile(random: np.random.Generator, layers: int) -> PipelineProfile:
    """Layers that take from one to nine seconds, and tens of bytes."""
    times = random.integers(1, 10, size=(3, layers)).astype(float)
    stash, boundary = random.integers(20, 60, size=layers), random.integers(1, 8, size=layers)
    weights = np.full(layers, 4, dtype=np.int64)
    return PipelineProfile("at random", tuple(f"layer{k}" for k in range(layers)), *times, weights, weights,
                           stash.astype(np.int64), boundary.astype(np.int64))  # fmt: skip
