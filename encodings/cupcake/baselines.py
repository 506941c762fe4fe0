"""What people do without an optimiser: layer-wise, one group, buckets, even splits, selective compression."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from gapless.encodings.cupcake.fusion import Fusion, timeline
from gapless.encodings.cupcake.parameters import DEFAULTS, Parameters
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["BASELINES", "Baseline", "all_baselines", "buckets", "even_split", "layer_wise", "one_group", "selective"]


@dataclass(frozen=True)
class Baseline:
    """The best fusion of one kind: its step time, and in words what it is."""

    name: str
    fusion: Fusion
    iteration_s: float
    setting: str = ""


def layer_wise(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> Baseline:
    """Every gradient on its own."""
    return _best("layer-wise", profile, [(Fusion(tuple(range(1, profile.tensor_count + 1))), "")])


def one_group(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> Baseline:
    """All gradients together, after the backward pass."""
    return _best("one-group", profile, [(Fusion((profile.tensor_count,)), "")])


def buckets(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> Baseline:
    """A group is closed once it holds at least so many bytes; the best of the bucket sizes."""
    sizes_mb = parameters.bucket_sizes_mb
    return _best("buckets", profile, ((_filled(profile, 10**6 * size), f"{size} MB") for size in sizes_mb))


def even_split(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> Baseline:
    """Groups of as equal numbers of gradients as can be; the best of 2 groups and more."""
    count = profile.tensor_count
    parts = range(min(2, count), min(parameters.most_parts, count) + 1)
    return _best("even-split", profile, ((_split(count, part), f"{part} groups") for part in parts))


def selective(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> Baseline | None:
    """Every gradient on its own, compressed only from a size on, as HiPress does; the best of some sizes.

    None where the profile doesn't say what sending without compression costs.
    """
    if profile.uncompressed_communication is None:
        return None
    sizes = np.unique(profile.size_bytes)
    if len(sizes) > parameters.most_thresholds:
        sizes = sizes[np.linspace(0, len(sizes) - 1, parameters.most_thresholds).astype(np.int64)]
    ends = tuple(range(1, profile.tensor_count + 1))
    candidates = [
        (Fusion(ends, frozenset(np.flatnonzero(profile.size_bytes < size).tolist())), f"from {size} B")
        for size in (*sizes.tolist(), int(sizes[-1]) + 1)
    ]
    return _best("selective", profile, candidates)


BASELINES: dict[str, Callable[[FusionProfile, Parameters], Baseline | None]] = {
    "layer-wise": layer_wise,
    "one-group": one_group,
    "buckets": buckets,
    "even-split": even_split,
    "selective": selective,
}
"""By name; `selective` may have no answer."""


def all_baselines(profile: FusionProfile, parameters: Parameters = DEFAULTS) -> list[Baseline]:
    """Every baseline that the profile allows."""
    found = (build(profile, parameters) for build in BASELINES.values())
    return [baseline for baseline in found if baseline is not None]


def _best(name: str, profile: FusionProfile, candidates: Iterable[tuple[Fusion, str]]) -> Baseline:
    scored = [
        Baseline(name, fusion, profile.forward_s + timeline(profile, fusion).end_s, setting)
        for fusion, setting in candidates
    ]
    return min(scored, key=lambda baseline: baseline.iteration_s)


def _filled(profile: FusionProfile, threshold_bytes: int) -> Fusion:
    ends, held = [], 0
    for number, size in enumerate(profile.size_bytes.tolist()):
        held += size
        if held >= threshold_bytes or number == profile.tensor_count - 1:
            ends.append(number + 1)
            held = 0
    return Fusion(tuple(ends))


def _split(count: int, parts: int) -> Fusion:
    return Fusion(tuple(count * (part + 1) // parts for part in range(parts)))
