"""What people do without an optimiser: layer-wise, one group, buckets, even splits, selective compression.

Where modes that compress are offered, a baseline compresses every group in the best of them; `plain` ones compress
nothing, and `selective` ones what is large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gapless.encodings.cupcake.parameters import DEFAULTS, Parameters
from gapless.profiles.gradients.fusion import Costs, Fusion, timeline
from gapless.profiles.gradients.modes import PLAIN

__all__ = ["BASELINES", "Baseline", "all_baselines", "buckets", "even_split", "layer_wise", "one_group", "selective"]


@dataclass(frozen=True)
class Baseline:
    """The best fusion of one kind: its step time, and in words what it is."""

    name: str
    fusion: Fusion
    iteration_s: float
    setting: str = ""


def layer_wise(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline:
    """Every gradient on its own."""
    return _uniform("layer-wise", costs, [(range(1, costs.count + 1), "")])


def one_group(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline:
    """All gradients together, after the backward pass."""
    return _uniform("one-group", costs, [((costs.count,), "")])


def buckets(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline:
    """A group is closed once it holds at least so many bytes; the best of the bucket sizes."""
    return _uniform("buckets", costs, list(_buckets(costs, parameters)))


def even_split(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline:
    """Groups of as equal numbers of gradients as can be; the best of 2 groups and more."""
    count = costs.count
    parts = range(min(2, count), min(parameters.most_parts, count) + 1)
    return _uniform("even-split", costs, [(_split(count, part), f"{part} groups") for part in parts])


def selective(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline | None:
    """Every gradient on its own, compressed only from a size on, as HiPress does; the best of some sizes.

    None unless both plain and compressed groups are offered.
    """
    return _selective("selective", costs, [(range(1, costs.count + 1), "")], parameters)


def selective_buckets(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline | None:
    """As `selective`, but for buckets, of the best of their sizes."""
    return _selective("selective-buckets", costs, list(_buckets(costs, parameters)), parameters)


def plain_buckets(costs: Costs, parameters: Parameters = DEFAULTS) -> Baseline | None:
    """Buckets of the best size without compression, None where they aren't offered."""
    if PLAIN not in costs.names:
        return None
    only = replace(costs, modes=tuple(mode for mode in costs.modes if mode.name == PLAIN))
    return replace(buckets(only, parameters), name="plain-buckets")


BASELINES: dict[str, Callable[[Costs, Parameters], Baseline | None]] = {
    "layer-wise": layer_wise,
    "one-group": one_group,
    "buckets": buckets,
    "even-split": even_split,
    "selective": selective,
    "selective-buckets": selective_buckets,
    "plain-buckets": plain_buckets,
}
"""By name; the last three may have no answer."""

_Ends = Sequence[int]


def all_baselines(costs: Costs, parameters: Parameters = DEFAULTS) -> list[Baseline]:
    """Every baseline that the modes offered allow."""
    found = (build(costs, parameters) for build in BASELINES.values())
    return [baseline for baseline in found if baseline is not None]


def _compressing(costs: Costs) -> list[str]:
    return [name for name in costs.names if name != PLAIN]


def _uniform(name: str, costs: Costs, candidates: list[tuple[_Ends, str]]) -> Baseline:
    """The best of the candidates with all groups in one mode: one that compresses, where there is any."""
    modes = _compressing(costs) or [PLAIN]
    return _best(name, costs, (
        (Fusion.uniform(ends, mode), ", ".join(filter(None, (setting, mode if len(modes) > 1 else ""))))
        for mode in modes for ends, setting in candidates
    ))  # fmt: skip


def _selective(name: str, costs: Costs, candidates: list[tuple[_Ends, str]], parameters: Parameters) -> Baseline | None:
    if PLAIN not in costs.names or not _compressing(costs):
        return None
    return _best(name, costs, (
        (fusion, ", ".join(filter(None, (setting, f"from {size} B", mode if len(costs.modes) > 2 else ""))))
        for mode in _compressing(costs) for ends, setting in candidates
        for fusion, size in _from_size(costs, ends, mode, parameters)
    ))  # fmt: skip


def _from_size(costs: Costs, ends: _Ends, mode: str, parameters: Parameters) -> Iterator[tuple[Fusion, int]]:
    """Groups of at least so many bytes in a mode, others plain, for some sizes."""
    prefix = np.append(0, np.cumsum(costs.size_bytes))
    held = np.diff(prefix[list(ends)], prepend=0)
    sizes = np.unique(held)
    if len(sizes) > parameters.most_thresholds:
        sizes = sizes[np.linspace(0, len(sizes) - 1, parameters.most_thresholds).astype(np.int64)]
    for size in (*sizes.tolist(), int(sizes[-1]) + 1):
        yield Fusion(tuple(ends), tuple(mode if large else PLAIN for large in (held >= size).tolist())), size


def _best(name: str, costs: Costs, candidates: Iterable[tuple[Fusion, str]]) -> Baseline:
    scored = (
        Baseline(name, fusion, costs.forward_s + timeline(costs, fusion).end_s, setting)
        for fusion, setting in candidates
    )
    return min(scored, key=lambda baseline: baseline.iteration_s)


def _buckets(costs: Costs, parameters: Parameters) -> Iterator[tuple[_Ends, str]]:
    for size_mb in parameters.bucket_sizes_mb:
        yield _filled(costs, 10**6 * size_mb), f"{size_mb} MB"


def _filled(costs: Costs, threshold_bytes: int) -> tuple[int, ...]:
    ends, held = [], 0
    for number, size in enumerate(costs.size_bytes.tolist()):
        held += size
        if held >= threshold_bytes or number == costs.count - 1:
            ends.append(number + 1)
            held = 0
    return tuple(ends)


def _split(count: int, parts: int) -> tuple[int, ...]:
    return tuple(count * (part + 1) // parts for part in range(parts))
