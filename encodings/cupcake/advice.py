"""Whether to compress at all: the best plan of each compressor against plain buckets, and where it stops paying."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from gapless.encodings.cupcake.baselines import Baseline, buckets
from gapless.encodings.cupcake.fusion import Costs
from gapless.encodings.cupcake.problem import DEVICE
from gapless.encodings.cupcake.solve import BestFusion, best_fusion
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.devices import Device
from gapless.profiles.gradients.communication import Network, TwoLevelNetwork, find_network
from gapless.profiles.gradients.compressors import (
    NONE,
    Compressor,
    compressor_names,
    named_compressor,
    relative_speed,
)  # fmt: skip
from gapless.profiles.gradients.crossover import crossover_bytes_per_s
from gapless.profiles.gradients.named import find_fusion_profile, with_compressors
from gapless.profiles.gradients.profile import FusionProfile
from gapless.text import described, table

__all__ = ["Advice", "Option", "advise", "compression", "network_data", "pays"]

_PRECISION = 2e-3
"""Of a crossover: times that are estimated don't distinguish bandwidths more closely."""

_SEARCH_S = 60.0
"""What one search may take at most, as `solve` does by default."""

_ROUNDING = 1e-9
"""Sums in another order differ by less than this share."""


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

    @property
    def data(self) -> dict[str, Any]:
        """A row of the answer, in plain values."""
        crossover, compressor = self.crossover_bytes_per_s, self.compressor
        return {
            "compressor": compressor.name, "plan": "best fusion", "ratio": compressor.ratio,
            "collective": "all-reduce" if compressor.all_reducible else "all-gather",
            "iteration_s": self.iteration_s, "bound_s": self.bound_s, "scaling": self.scaling,
            "time_saved": self.time_saved, **pays(crossover), "groups": [list(group) for group in self.groups],
        }  # fmt: skip


@dataclass(frozen=True)
class Advice:
    """Options in the order asked for, and what they compete with: no compression, the best size of buckets.

    `left_out`: the names of the compressors that there was no time for, empty where there are none.
    """

    profile: FusionProfile
    network: Network
    device: str
    plain: Baseline
    options: tuple[Option, ...]
    left_out: str = ""

    @property
    def plain_scaling(self) -> float:
        """Step time of one worker alone over that without compression."""
        return self.profile.compute_s / self.plain.iteration_s

    @property
    def best(self) -> Option | None:
        """The fastest option, None where plain buckets are as fast."""
        option = min(self.options, key=lambda option: option.iteration_s, default=None)
        return option if option is not None and option.time_saved > _ROUNDING else None

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """Plain buckets and all options, in plain values."""
        plain = {
            "compressor": "none", "plan": f"buckets of {self.plain.setting}", "ratio": 1.0, "collective": "all-reduce",
            "iteration_s": self.plain.iteration_s, "bound_s": None, "scaling": self.plain_scaling, "time_saved": 0.0,
            **pays(None), "groups": [list(group) for group in self.plain.fusion.groups],
        }  # fmt: skip
        return [plain, *(option.data for option in self.options)]

    @property
    def data(self) -> dict[str, Any]:
        """The answer in plain values."""
        best = min(self.rows, key=lambda row: row["iteration_s"])  # the plain buckets, where nothing is faster
        return {
            "problem": "cupcake", "profile": self.profile.name, "device": self.device, **network_data(self.network),
            "compute_s": self.profile.compute_s,
            "best": {key: best[key] for key in ("compressor", "plan", "iteration_s", "time_saved")}, "rows": self.rows,
        }  # fmt: skip

    @property
    def text(self) -> str:
        """The answer as a table, and in a line."""
        lines = [["compressor", "plan", "groups", "iteration", "scaling", "time saved", "pays below"]]
        for row in self.rows:
            limit = described("crossover_bytes_per_s", row["crossover_bytes_per_s"])
            limit = {"below": limit, None: "-"}.get(row["pays"], row["pays"])
            lines.append([
                row["compressor"], row["plan"], str(len(row["groups"])), described("iteration_s", row["iteration_s"]),
                f"{row['scaling']:.3f}", f"{100 * row['time_saved']:.1f} %", limit,
            ])  # fmt: skip
        best = self.best
        if best is None:
            return f"{table(lines)}\nbest: no compression, plain buckets"
        saved = f"saves {100 * best.time_saved:.1f} % of a step"
        return f"{table(lines)}\nbest: {best.compressor.name} in its best fusion, {saved}"


def compression(
    profile: str | Path | FusionProfile,
    *,
    compressor: Sequence[str | Compressor] = ("all",),
    device: str | Device = DEVICE,
    options: SolveOptions | None = None,
    **network: Any,
) -> Advice:
    """Whether compressing the gradients of a profile pays on a network, and with which of the compressors.

    `all` among the compressors stands for all of them. `options`: of the searches; their time limit is that of all of
    them together. `network`: as for `find_network`.
    Raises `InputError` as `find_network` and `advise` do.
    """
    ring = find_network(**network)
    asked = list(dict.fromkeys([compressor] if isinstance(compressor, str) else compressor))
    chosen = [named_compressor(name) for name in (compressor_names() if "all" in asked else asked)]
    return advise(find_fusion_profile(profile), ring, chosen, device, options)


def advise(
    profile: FusionProfile,
    network: Network,
    compressors: Sequence[Compressor],
    device: str | Device = DEVICE,
    options: SolveOptions | None = None,
) -> Advice:
    """Compare compressors on a profile's gradients; its own costs are replaced by theirs on the network.

    `none` among the compressors stands for the best fusion without compression. A compressor whose fusion and
    crossover aren't found in time is left out. Raises `InputError` for a network of one rank, and for a step that takes
    no time.
    """
    if network.ranks < 2:
        raise InputError(f"ranks: must be >= 2 for there to be something to communicate, got {network.ranks}")
    if profile.compute_s <= 0:
        raise InputError(
            f"profile {profile.name!r}: forward_s and backward_s must not all be 0: nothing to scale against"
        )
    deadline = Deadline(options or SolveOptions())
    case = _Case(profile, network, relative_speed(device), deadline)
    plain = case.plain()
    name = device if isinstance(device, str) else device.name
    found: list[Option] = []
    for compressor in compressors:
        option = None if deadline.over else _option(case, compressor, plain)
        if option is None or deadline.over:  # whatever was cut short is not its best fusion
            break
        found.append(option)
    left_out = ", ".join(compressor.name for compressor in compressors[len(found) :])
    return Advice(profile, network, name, plain, tuple(found), left_out)


def network_data(network: Network) -> dict[str, Any]:
    """A network in plain values; an unlimited bandwidth is None. In two levels, bandwidth and latency are of nodes."""
    data = {
        "ranks": network.ranks, "bandwidth_bytes_per_s": _finite(network.bytes_per_s), "latency_s": network.alpha_s,
        "aggregation": network.aggregation, "ranks_per_node": network.ranks_per_node,
    }  # fmt: skip
    if isinstance(network, TwoLevelNetwork):
        data |= {
            "inner_bandwidth_bytes_per_s": _finite(network.inner.bytes_per_s),
            "inner_latency_s": network.inner.alpha_s,
        }
    return data


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def pays(crossover_bytes_per_s: float | None) -> dict[str, Any]:
    """Whether compression pays always, never or below a crossover, in plain values; None for what isn't compressed."""
    words = {None: None, 0.0: "never", math.inf: "always"}.get(crossover_bytes_per_s, "below")
    return {"pays": words, "crossover_bytes_per_s": crossover_bytes_per_s if words == "below" else None}


@dataclass(frozen=True)
class _Case:
    """Gradients on a network. `speed`: how much faster than a V100 the device encodes and decodes."""

    profile: FusionProfile
    network: Network
    speed: float
    deadline: Deadline

    def at_bandwidth(self, bytes_per_s: float) -> _Case:
        return replace(self, network=self.network.with_outer(bytes_per_s=bytes_per_s))

    def under(self, compressor: Compressor) -> FusionProfile:
        return with_compressors(self.profile, [compressor], self.network, self.speed)

    def plain(self) -> Baseline:
        """No compression, the best of several sizes of buckets."""
        return buckets(Costs.of(self.under(NONE)))

    def best(self, compressor: Compressor) -> BestFusion:
        return best_fusion(self.under(compressor), replace(self.deadline.stage(_SEARCH_S), on_progress=None))

    def saved_s(self, compressor: Compressor) -> float:
        """What compression saves of the plain step; where its sign shows without a search, some number of that sign."""
        plain_s = self.plain().iteration_s
        costs = Costs.of(self.under(compressor))
        # A compressor's cost is flat, then proportional: no split of the gradients compresses faster than one group.
        least_s = self.profile.compute_s + float(costs.modes[0].compress_s(0, costs.count))
        if least_s >= plain_s:
            return plain_s - least_s
        bucketed_s = buckets(costs).iteration_s
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
