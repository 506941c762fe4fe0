"""Whether to compress at all: the best plan of each compressor against plain buckets, and where it stops paying."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from gapless.encodings.cupcake.baselines import Baseline, buckets
from gapless.encodings.cupcake.solve import BestFusion, best_fusion
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.gradients.communication import RingNetwork
from gapless.profiles.gradients.compressors import NONE, Compressor
from gapless.profiles.gradients.crossover import crossover_bytes_per_s
from gapless.profiles.gradients.named import with_compressor
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["Advice", "Option", "advise"]

_PRECISION = 2e-3
"""Of a crossover: times that are estimated don't tell bandwidths apart more closely."""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Option:
    """A compressor with its best fusion. `bound_s`: proven for all its fusions, None where nothing is.

    `scaling`: step time of one worker alone over that of this one. `time_saved`: share of the plain step's time.
    `crossover_bytes_per_s`: the bandwidth from which plain buckets are as fast; 0 where it never pays, inf where it
    always does, None for `none`.
    """

    compressor: Compressor
    groups: tuple[tuple[int, int], ...]
    iteration_s: float
    bound_s: float | None
    scaling: float
    time_saved: float
    crossover_bytes_per_s: float | None


@dataclass(frozen=True)
class Advice:
    """Options in the order asked for, and what they compete with: no compression, the best size of buckets."""

    plain: Baseline
    plain_scaling: float
    options: tuple[Option, ...]

    @property
    def best(self) -> Option | None:
        """The fastest option, None where plain buckets are as fast."""
        option = min(self.options, key=lambda option: option.iteration_s, default=None)
        return option if option is not None and option.time_saved > _ROUNDING else None


def advise(
    profile: FusionProfile,
    network: RingNetwork,
    compressors: Iterable[Compressor],
    speed: float = 1.0,
    options: SolveOptions | None = None,
) -> Advice:
    """Compare compressors on a profile's gradients; its own costs are replaced by theirs on the network.

    `speed`: how much faster than a V100 the device encodes and decodes. `none` among the compressors stands for the
    best fusion without compression. Raises `InputError` for a network of one rank, and for a step that takes no time.
    """
    if network.ranks < 2:
        raise InputError(f"ranks: must be >= 2 for there to be something to communicate, got {network.ranks}")
    if profile.compute_s <= 0:
        raise InputError(
            f"profile {profile.name!r}: forward_s and backward_s must not all be 0: nothing to scale against"
        )
    case = _Case(profile, network, speed, options)
    plain = case.plain()
    return Advice(
        plain=plain,
        plain_scaling=profile.compute_s / plain.iteration_s,
        options=tuple(_option(case, compressor, plain) for compressor in compressors),
    )


@dataclass(frozen=True)
class _Case:
    """Gradients on a network."""

    profile: FusionProfile
    network: RingNetwork
    speed: float
    options: SolveOptions | None

    def at_bandwidth(self, bytes_per_s: float) -> _Case:
        return replace(self, network=replace(self.network, bytes_per_s=bytes_per_s))

    def under(self, compressor: Compressor) -> FusionProfile:
        return with_compressor(self.profile, compressor, self.network, self.speed)

    def plain(self) -> Baseline:
        """No compression, the best of several sizes of buckets."""
        return buckets(self.under(NONE))

    def best(self, compressor: Compressor) -> BestFusion:
        found = best_fusion(self.under(compressor), self.options)
        assert found is not None, "exact methods start from a fusion"
        return found

    def saved_s(self, compressor: Compressor) -> float:
        """What compression saves of the plain step; where its sign shows without a search, some number of that sign."""
        plain_s = self.plain().iteration_s
        profile = self.under(compressor)
        # A compressor's cost is flat, then proportional: no split of the gradients compresses faster than one group.
        least_s = profile.compute_s + float(profile.compression(profile.total_bytes))
        if least_s >= plain_s:
            return plain_s - least_s
        bucketed_s = buckets(profile).iteration_s
        if bucketed_s < plain_s * (1 - _ROUNDING):
            return plain_s - bucketed_s
        return plain_s * (1 - _ROUNDING) - self.best(compressor).iteration_s


def _option(case: _Case, compressor: Compressor, plain: Baseline) -> Option:
    found = case.best(compressor)
    crossover = None
    if compressor is not NONE:
        crossover = crossover_bytes_per_s(
            lambda bandwidth: case.at_bandwidth(bandwidth).saved_s(compressor), _PRECISION
        )
    return Option(
        compressor=compressor,
        groups=found.groups,
        iteration_s=found.iteration_s,
        bound_s=found.bound_s,
        scaling=case.profile.compute_s / found.iteration_s,
        time_saved=1 - found.iteration_s / plain.iteration_s,
        crossover_bytes_per_s=crossover,
    )
