"""Random fusion profiles of one mode or several, and the optimum by brute force over groups and modes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction, PointsCost
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile

KINDS = ("affine", "thresholded", "points", "superadditive")
MB = 1e6


def known_instance() -> FusionProfile:
    """h(x) = 0.5 max(1, x / 2), g(x) = 0.01 + 0.4 x in ms and MB: Algorithm 1 finds 4.4215, the optimum is 4.2615."""
    sizes_mb, backward_ms = [0.94, 0.85, 1.79, 1.01, 0.83, 2.23, 0.38], [0.08, 0.23, 0.01, 0, 0.44, 0.38, 0.27]
    return _profile(
        [round(size * MB) for size in sizes_mb],
        [1e-3 * duration for duration in backward_ms],
        PointsCost(((2 * MB, 0.5e-3), (4 * MB, 1e-3))),
        AffineCost(0.01e-3, 0.4e-3 / MB),
        forward_s=0.0,
    )


def random_instance(rng: np.random.Generator, kind: str, most: int = 14, least: int = 1) -> FusionProfile:
    """A profile of `least` to `most` gradients whose backward, compression and communication weigh about the same."""
    count = int(rng.integers(least, most + 1))
    size_bytes = rng.integers(1, int(10 ** rng.uniform(3, 7)), count)
    total_s = 1e-2
    backward_s = rng.dirichlet(np.ones(count)) * total_s * rng.uniform(0, 2)
    backward_s[rng.random(count) < 0.2] = 0.0
    scale_s = total_s * 10 ** rng.uniform(-1, 0.5, 2)
    compression, communication = (_cost(rng, kind, float(size_bytes.sum()), float(s), count) for s in scale_s)
    return _profile(size_bytes.tolist(), backward_s.tolist(), compression, communication, float(rng.uniform(0, 1e-2)))


def mixed_instance(rng: np.random.Generator, kind: str, most: int = 10, least: int = 1) -> FusionProfile:
    """As `random_instance`, with `plain` and two modes that compress, one of them priced by vectors of its own."""
    profile = random_instance(rng, kind, most, least)
    count, total, scale_s = profile.tensor_count, float(profile.total_bytes), 2e-2 * 10 ** rng.uniform(-1, 0.5)
    plain = AffineCost(scale_s * rng.uniform(0, 0.5) / count, scale_s * rng.uniform(0, 1) / total)
    scales_s = 1e-2 * 10 ** rng.uniform(-1, 0.5, 4)
    decode, *others = (_cost(rng, kind, total, float(each_s), count) for each_s in scales_s)
    encoded, sent = rng.uniform(0, 2, (2, count)) * profile.size_bytes
    low_rank = Mode("low-rank", others[0], others[1], others[2], "feedback", tuple(encoded), tuple(sent))
    return replace(profile, modes=(plain_mode(plain), replace(profile.modes[0], decode=decode), low_rank))


def without(profile: FusionProfile, name: str) -> FusionProfile:
    """The profile without a mode."""
    return replace(profile, modes=tuple(mode for mode in profile.modes if mode.name != name))


def with_cores(rng: np.random.Generator, profile: FusionProfile) -> FusionProfile:
    """The profile of a rank with one or two cores, whose collectives are work for up to all of their time."""
    total = float(profile.total_bytes)
    alphas_s = [rng.uniform() * float(mode.communication(0)) for mode in profile.modes]
    rates_s = [rng.uniform() * float(mode.communication(total)) / total for mode in profile.modes]
    works = map(AffineCost, alphas_s, rates_s)
    modes = tuple(replace(mode, communication_work=work) for mode, work in zip(profile.modes, works, strict=True))
    return replace(profile, modes=modes, cores=float(rng.choice([1.0, 1.0, 1.2, 2.0])))


def scaled_instance(profile: FusionProfile, duration: float, size: float) -> FusionProfile:
    """The same question with times and sizes so many times as large, but for the rounding of bytes."""
    mode = profile.modes[0]
    costs = (PointsCost(tuple((size * at, duration * cost_s) for at, cost_s in _points(cost)))
             for cost in (mode.encode, mode.communication))  # fmt: skip
    sizes = np.maximum(np.rint(size * profile.size_bytes), 1).astype(np.int64).tolist()
    return _profile(sizes, (duration * profile.backward_s).tolist(), *costs, duration * profile.forward_s)


def _points(cost: CostFunction) -> tuple[tuple[float, float], ...]:
    return cost.points if isinstance(cost, PointsCost) else ((0.0, float(cost(0))), (1e9, float(cost(1e9))))


def brute_force_s(profile: FusionProfile, modes: Sequence[str] | None = None, decode: str = "after") -> float:
    """The least step time over all groups and modes, of which there are M (M + 1)^(N - 1), all of them side by side."""
    count, ready_s = profile.tensor_count, np.append(0.0, np.cumsum(profile.backward_s))
    start, (compress_s, sent_s, decoded_s, work_s) = np.zeros(1, dtype=np.int64), np.zeros((4, 1))
    offered = [profile.mode(name) for name in modes or profile.mode_names]
    prefixes = [[np.append(0.0, np.cumsum(column(profile.size_bytes))) for column in (mode.encoded, mode.sent)]
                for mode in offered]  # fmt: skip
    for j in range(1, count + 1):
        found = []
        for mode, (encoded, sent) in zip(offered, prefixes, strict=True):
            encoded_bytes, sent_bytes = encoded[j] - encoded[start], sent[j] - sent[start]
            total_s, after_s = compress_s + mode.encode(encoded_bytes), mode.decode(encoded_bytes)
            if decode == "before":
                total_s, after_s = total_s + after_s, np.zeros_like(after_s)
            end_s = np.maximum(sent_s, ready_s[j] + total_s) + mode.communication(sent_bytes)
            all_s = work_s + total_s - compress_s + mode.communication_work(sent_bytes) + after_s
            found.append(np.stack([total_s, end_s, np.maximum(decoded_s, end_s) + after_s, all_s]))
        here = np.concatenate(found, axis=1)
        if j == count:
            cores_s = (ready_s[-1] + here[3]) / (profile.cores or np.inf)
            return profile.forward_s + float(np.maximum(here[2], cores_s).min())
        start = np.concatenate([start, np.full(here.shape[1], j)])
        before = np.stack([compress_s, sent_s, decoded_s, work_s])
        compress_s, sent_s, decoded_s, work_s = np.concatenate([before, here], axis=1)
    raise AssertionError("a profile has gradients")


def _cost(rng: np.random.Generator, kind: str, total_bytes: float, scale_s: float, count: int) -> CostFunction:
    fixed_s, per_byte = scale_s * rng.uniform(0, 1) / count, scale_s * rng.uniform(0, 1) / total_bytes
    if kind == "affine":
        return AffineCost(fixed_s, per_byte)
    if kind == "proportional":
        return AffineCost(0.0, per_byte)
    if kind == "free":
        return FREE
    if kind == "thresholded":
        threshold = total_bytes * rng.uniform(0.02, 0.6)
        return PointsCost(((threshold, fixed_s), (2 * threshold, fixed_s + per_byte * threshold)))
    points = int(rng.integers(2, 7))
    at = np.sort(rng.choice(np.arange(1, 1000), points, replace=False)) * total_bytes / 1000
    if kind == "points":  # anything measured: not even monotone
        times = rng.uniform(0, 1, points) * scale_s / 3
        times[-1] = max(times[-1], times[-2])
    else:  # slopes that rise: two halves cost less than the whole
        slopes = np.sort(rng.uniform(0, 1, points))
        times = np.cumsum(slopes * np.diff(at, prepend=0.0)) * scale_s / total_bytes
    return PointsCost(tuple(zip(at.tolist(), times.tolist(), strict=True)))


def _profile(
    sizes: list[int], backward_s: list[float], compression: CostFunction, communication: CostFunction, forward_s: float
) -> FusionProfile:
    names = tuple(f"t{number}" for number in range(len(sizes)))
    modes = (Mode("compressed", communication, compression),)
    return FusionProfile("random", forward_s, names, np.array(sizes, dtype=np.int64), np.array(backward_s), modes)
