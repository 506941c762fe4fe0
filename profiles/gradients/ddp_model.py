"""The analytic model of data-parallel training of *Utility of gradient compression* (section 4.2.4), and its what-ifs.

Without compression, gradients go in buckets while the backward pass runs on, slowed down by gamma; the last bucket goes
alone. With k buckets, all of size b but the last:

    max(gamma T_comp, (k - 1) T_comm(b)) + T_comm(last)

with T_comm a ring all-reduce (equation 4.1). With compression, which competes with the backward pass for the device,
nothing overlaps (section 4.2.1): T_comp, encode and decode of all gradients, one collective. Forward isn't counted.

The text's latency of 0.5 to 1 ms a step contradicts its own figures, which need about 10 us or less: none is assumed
unless the network has one. Since only the uncompressed step is slowed down by gamma, a compressor that takes less time
than that costs pays at any bandwidth.

Every what-if is a table: a list of rows with the same keys, whose names end in their units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

from gapless.errors import InputError
from gapless.profiles.gradients.communication import Network, all_reduce_cost, communication_cost
from gapless.profiles.gradients.compressors import Compressor
from gapless.profiles.gradients.crossover import crossover_bytes_per_s
from gapless.profiles.gradients.profile import FusionProfile

__all__ = [
    "BUCKET_BYTES",
    "SLOWDOWN",
    "DdpModel",
    "Table",
    "bandwidth_table",
    "batch_table",
    "compute_table",
    "ddp_model",
    "ratio_table",
    "tradeoff_table",
]

BUCKET_BYTES = 25_000_000
"""Size of a bucket in PyTorch, "25 MB by default"."""

SLOWDOWN = 1.07
"""gamma: the middle of the 1.04 to 1.1 that were observed for a backward pass that overlaps with communication."""

_LARGEST_RATIO = 1e9

Table: TypeAlias = list[dict[str, float]]


@dataclass(frozen=True)
class DdpModel:
    """A training step with data parallelism: bytes of all gradients, time of the backward pass alone, and the network.

    `slowdown`: gamma. Raises `InputError` for numbers that make no sense.
    """

    gradient_bytes: float
    backward_s: float
    network: Network
    bucket_bytes: float = BUCKET_BYTES
    slowdown: float = SLOWDOWN

    def __post_init__(self) -> None:
        for title, least, strict in (
            ("gradient_bytes", 0, True), ("backward_s", 0, True), ("bucket_bytes", 0, True), ("slowdown", 1, False),
        ):  # fmt: skip
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= least) or (strict and value == least):
                raise InputError(f"{title}: must be finite and {'>' if strict else '>='} {least}, got {value}")

    @property
    def bucket_count(self) -> int:
        """k: full buckets and the last one, which is full too where sizes divide."""
        return math.ceil(self.gradient_bytes / self.bucket_bytes * (1 - 1e-12))  # 40 + 1e-14 by rounding is 40

    def uncompressed_s(self) -> float:
        """T_obs of synchronous SGD: backward pass and synchronisation."""
        full = self.bucket_count - 1
        cost = all_reduce_cost(self.network)
        hidden_s = full * float(cost(self.bucket_bytes))
        return max(self.slowdown * self.backward_s, hidden_s) + float(
            cost(self.gradient_bytes - full * self.bucket_bytes)
        )

    def compressed_s(self, compressor: Compressor, speed: float = 1.0) -> float:
        """Backward pass, then encode and decode at `speed`, then one collective."""
        compression_s = float(compressor.cost(self.network.ranks, speed)(self.gradient_bytes))
        return (
            self.backward_s + compression_s + float(communication_cost(self.network, compressor)(self.gradient_bytes))
        )

    def at_bandwidth(self, bytes_per_s: float) -> DdpModel:
        """The same step on a network of another bandwidth."""
        return replace(self, network=self.network.with_outer(bytes_per_s=bytes_per_s))

    def at_batch(self, factor: float) -> DdpModel:
        """The same step with `factor` times the batch, and the backward time in proportion."""
        return replace(self, backward_s=factor * self.backward_s)

    def at_ratio(self, ratio: float) -> DdpModel:
        """The same step with smaller gradients in as many, smaller buckets, at no cost to compress."""
        return replace(self, gradient_bytes=self.gradient_bytes / ratio, bucket_bytes=self.bucket_bytes / ratio)

    def crossover_bytes_per_s(self, compressor: Compressor) -> float:
        """The bandwidth above which a compressor doesn't pay; 0: it never does, inf: it always does."""

        def saved_s(bytes_per_s: float) -> float:
            model = self.at_bandwidth(bytes_per_s)
            return model.uncompressed_s() - model.compressed_s(compressor)

        return crossover_bytes_per_s(saved_s)

    def required_ratio(self) -> float:
        """The least ratio at which all buckets but the last hide behind the backward pass.

        The buckets keep their number and get smaller; encode and decode are free. inf: latency alone is too long.
        """
        full = self.bucket_count - 1
        if not full:
            return 1.0
        cost = all_reduce_cost(self.network)
        left_s = self.slowdown * self.backward_s / full - cost.alpha_s
        return max(1.0, cost.beta_s_per_byte * self.bucket_bytes / left_s) if left_s > 0 else math.inf


def ddp_model(profile: FusionProfile, network: Network) -> DdpModel:
    """The model of a profile's gradients and backward pass, with the usual buckets and slow-down."""
    return DdpModel(profile.total_bytes, float(profile.backward_s.sum()), network)


def bandwidth_table(model: DdpModel, compressor: Compressor, bandwidths_bytes_per_s: Iterable[float]) -> Table:
    """Figures 4.10 and 4.12: other bandwidths."""
    return [
        {"bandwidth_bytes_per_s": bandwidth, **_compared(model.at_bandwidth(bandwidth), compressor)}
        for bandwidth in bandwidths_bytes_per_s
    ]


def batch_table(model: DdpModel, compressor: Compressor, factors: Iterable[float]) -> Table:
    """Figure 4.7: other batch sizes, as factors of the model's own."""
    return [{"batch_factor": factor, **_compared(model.at_batch(factor), compressor)} for factor in factors]


def compute_table(model: DdpModel, compressor: Compressor, speeds: Iterable[float]) -> Table:
    """Figure 4.13: a device so many times as fast, for the backward pass and for encode and decode alike."""
    return [{"speed": speed, **_compared(model.at_batch(1 / speed), compressor, speed)} for speed in speeds]


def tradeoff_table(
    model: DdpModel, compressor: Compressor, speeds: Iterable[float], penalties: Iterable[float]
) -> Table:
    """Figure 4.14: encode and decode k times as fast at l k times the bytes; k of `speeds`, l of `penalties`."""
    penalties = tuple(penalties)
    rows: Table = []
    for k in speeds:
        for penalty in penalties:
            # More than the raw gradient is never sent.
            other = replace(compressor, ratio=max(1.0, compressor.ratio / (penalty * k)))
            rows.append({"speed": k, "penalty": penalty, "ratio": other.ratio, **_compared(model, other, k)})
    return rows


def ratio_table(model: DdpModel, factors: Iterable[float], bandwidths_bytes_per_s: Iterable[float]) -> Table:
    """Figures 4.8 and 4.11: the compression ratio that is enough for close to linear scaling, at no cost to compress.

    `scaling`: the backward pass alone over the step at that ratio. The slow-down and the last bucket keep it below 1.
    Where latency alone is too long, the ratio is inf, and `scaling` that of next to nothing sent.
    """
    bandwidths_bytes_per_s = tuple(bandwidths_bytes_per_s)
    rows: Table = []
    for factor in factors:
        for bandwidth in bandwidths_bytes_per_s:
            other = model.at_batch(factor).at_bandwidth(bandwidth)
            ratio = other.required_ratio()
            smaller = other.at_ratio(min(ratio, _LARGEST_RATIO))
            rows.append({
                "batch_factor": factor, "bandwidth_bytes_per_s": bandwidth, "required_ratio": ratio,
                "scaling": other.backward_s / smaller.uncompressed_s(),
            })  # fmt: skip
    return rows


def _compared(model: DdpModel, compressor: Compressor, speed: float = 1.0) -> dict[str, float]:
    before_s, after_s = model.uncompressed_s(), model.compressed_s(compressor, speed)
    return {"uncompressed_s": before_s, "compressed_s": after_s, "time_saved": 1 - after_s / before_s}
