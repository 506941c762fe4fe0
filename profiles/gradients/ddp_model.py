"""The analytic model of data-parallel training of *Utility of gradient compression* (section 4.2.4).

Without compression, gradients go in buckets while the backward pass runs on, slowed down by gamma; the last bucket goes
alone. With k buckets, all of size b but the last:

    max(gamma T_comp, (k - 1) T_comm(b)) + T_comm(last)

with T_comm an all-reduce (equation 4.1 for a ring). With compression, which competes with the backward pass for the
device, nothing overlaps (section 4.2.1): T_comp, encode and decode of all gradients, one collective. Beside the
backward pass (Figure 4.3), buckets are compressed as they fill and sent while the next is; whatever the device does
takes `contention` times as long:

    max(contention (T_comp + sum of encode and decode), (k - 1) T_comm(b)) + T_comm(last)

Forward isn't counted. The text's latency of 0.5 to 1 ms a step contradicts its own figures, which need about 10 us or
less: none is assumed unless the network has one. Since only the uncompressed step is slowed down by gamma, a compressor
that takes less time than that costs pays at any bandwidth.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.profiles.compressors.compressor import Compressor
from gapless.profiles.gradients.communication import (
    Network,
    all_reduce_cost,
    buffer_bytes,
    communication_cost,
    compression_cost,
    gathered_bytes,
)
from gapless.profiles.gradients.cost_functions import CostFunction
from gapless.profiles.gradients.network_question import AGGREGATION, RING_OR_TREE, TOGETHER
from gapless.profiles.gradients.profile import FusionProfile
from gapless.units import format_bytes

__all__ = ["BUCKET_BYTES", "SLOWDOWN", "DdpModel", "crossover_bytes_per_s", "ddp_model"]


_DECADES = tuple(10.0**exponent / 8 for exponent in range(6, 14))
"""1 Mb/s to 10 Tb/s."""


def crossover_bytes_per_s(saved_s: Callable[[float], float], precision: float = 1e-6) -> float:
    """The highest bandwidth up to which `saved_s(bytes_per_s)` is positive, to a relative `precision`.

    inf: it still is at 10 Tb/s; 0: it is at no power of ten from 1 Mb/s on. What is saved may rise again:
    the search starts at the highest decade where it is positive.
    """
    paying = [decade for decade in _DECADES if saved_s(decade) > 0]
    if not paying:
        return 0.0
    if paying[-1] == _DECADES[-1]:
        return math.inf
    low, high = paying[-1], 10 * paying[-1]
    while high / low > 1 + precision:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if saved_s(middle) > 0 else (low, middle)
    return math.sqrt(low * high)


BUCKET_BYTES = 25_000_000
"""Size of a bucket in PyTorch, "25 MB by default"."""

SLOWDOWN = 1.07
"""gamma: the middle of the 1.04 to 1.1 that were observed for a backward pass that overlaps with communication."""


@dataclass(frozen=True)
class DdpModel:
    """A training step with data parallelism: bytes of all gradients, time of the backward pass alone, and the network.

    `slowdown`: gamma. `speed`: how much faster than a V100 the device encodes and decodes. `contention`: what
    compression beside the backward pass costs the device. Raises `InputError` for numbers that make no sense.
    """

    gradient_bytes: float
    backward_s: float
    network: Network
    bucket_bytes: float = BUCKET_BYTES
    slowdown: float = SLOWDOWN
    speed: float = 1.0
    contention: float = 1.0

    def __post_init__(self) -> None:
        for title, least, strict in (
            ("gradient_bytes", 0, True), ("backward_s", 0, True), ("bucket_bytes", 0, True), ("slowdown", 1, False),
            ("speed", 0, True), ("contention", 1, False),
        ):  # fmt: skip
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= least) or (strict and value == least):
                raise InputError(f"{title}: must be finite and {'>' if strict else '>='} {least}, got {value}")

    @property
    def bucket_count(self) -> int:
        """k: full buckets and the last one, which is full too where sizes divide."""
        return math.ceil(self.gradient_bytes / self.bucket_bytes * (1 - 1e-12))  # 40 + 1e-14 by rounding is 40

    @property
    def last_bytes(self) -> float:
        """Of the last bucket."""
        return self.gradient_bytes - (self.bucket_count - 1) * self.bucket_bytes

    def uncompressed_s(self) -> float:
        """T_obs of synchronous SGD: backward pass and synchronisation."""
        return self._overlapped_s(self.slowdown * self.backward_s, all_reduce_cost(self.network))

    def serial_s(self) -> float:
        """The same without overlap (Figure 4.1): nothing is sent before the backward pass is through."""
        return self.backward_s + math.fsum(self._sent_s(all_reduce_cost(self.network)))

    def compressed_s(self, compressor: Compressor) -> float:
        """Backward pass, then encode and decode, then one collective."""
        compression_s = float(compression_cost(self.network, compressor, self.speed)(self.gradient_bytes))
        collective_s = float(communication_cost(self.network, compressor)(self.gradient_bytes))
        return self.backward_s + compression_s + collective_s

    def beside_s(self, compressor: Compressor) -> float:
        """Buckets that are encoded and decoded beside the backward pass, and sent while it runs on."""
        cost = compression_cost(self.network, compressor, self.speed)
        compression_s = (self.bucket_count - 1) * float(cost(self.bucket_bytes)) + float(cost(self.last_bytes))
        device_s = self.contention * (self.backward_s + compression_s)
        return self._overlapped_s(device_s, communication_cost(self.network, compressor))

    def _overlapped_s(self, device_s: float, collective: CostFunction) -> float:
        full_s, last_s = self._sent_s(collective)
        return max(device_s, full_s) + last_s

    def _sent_s(self, collective: CostFunction) -> tuple[float, float]:
        """All full buckets, and the last one."""
        return (self.bucket_count - 1) * float(collective(self.bucket_bytes)), float(collective(self.last_bytes))

    def gathered_bytes(self, compressor: Compressor) -> float:
        """What a rank holds of the messages of all, where all gradients are compressed at once."""
        return gathered_bytes(self.network, compressor, self.gradient_bytes)

    def buffer_bytes(self, compressor: Compressor, decoded: str = TOGETHER) -> float:
        """With what is decoded of them, where all gradients are compressed at once; `decoded`: one of `DECODED`."""
        return buffer_bytes(self.network, compressor, self.gradient_bytes, decoded)

    def refusal(self, compressor: Compressor, memory_bytes: float, decoded: str = TOGETHER) -> str:
        """Why the buffers don't fit where all gradients are compressed at once, in a line; empty where they do."""
        needed = self.buffer_bytes(compressor, decoded)
        if needed <= memory_bytes:
            return ""
        sizes = f"{format_bytes(round(needed))} of buffers at {self.network.ranks} ranks"
        way_out = "compress in groups" + (", or decode one by one as our hook does" if decoded == TOGETHER else "")
        limit = format_bytes(round(memory_bytes))
        return f"{compressor.name}: all gradients at once need {sizes}, more than {limit}; {way_out}"

    def at_bandwidth(self, bytes_per_s: float) -> DdpModel:
        """The same step on a network of another bandwidth."""
        return replace(self, network=self.network.with_outer(bytes_per_s=bytes_per_s))

    def at_batch(self, factor: float) -> DdpModel:
        """The same step with `factor` times the batch, and the backward time in proportion."""
        return replace(self, backward_s=factor * self.backward_s)

    def at_speed(self, factor: float) -> DdpModel:
        """The same step on a device so many times as fast, for the backward pass and for encode and decode alike."""
        return replace(self, backward_s=self.backward_s / factor, speed=factor * self.speed)

    def at_backward_speed(self, factor: float) -> DdpModel:
        """The same step with a backward pass so many times as fast, and encode and decode as before."""
        return self.at_batch(1 / factor)

    def at_ratio(self, ratio: float) -> DdpModel:
        """The same step with smaller gradients in as many, smaller buckets, at no cost to compress."""
        return replace(self, gradient_bytes=self.gradient_bytes / ratio, bucket_bytes=self.bucket_bytes / ratio)

    def crossover_bytes_per_s(self, compressor: Compressor, precision: float = 1e-6) -> float:
        """The bandwidth above which a compressor doesn't pay, to a relative `precision`; 0: never, inf: always."""

        def saved_s(bytes_per_s: float) -> float:
            model = self.at_bandwidth(bytes_per_s)
            return model.uncompressed_s() - model.compressed_s(compressor)

        return crossover_bytes_per_s(saved_s, precision)

    def required_ratio(self) -> float:
        """The least ratio at which all buckets but the last hide behind the backward pass.

        The buckets keep their number and get smaller; encode and decode are free. inf: latency alone is too long.
        """
        full = self.bucket_count - 1
        if not full:
            return 1.0
        if self.network.outer.aggregation == RING_OR_TREE:
            either = [self.network.with_outer(aggregation=name) for name in (AGGREGATION, "tree")]
            return min(replace(self, network=network).required_ratio() for network in either)
        cost = all_reduce_cost(self.network)
        alpha_s = float(cost(0.0))
        left_s = self.slowdown * self.backward_s / full - alpha_s
        return max(1.0, (float(cost(self.bucket_bytes)) - alpha_s) / left_s) if left_s > 0 else math.inf


def ddp_model(profile: FusionProfile, network: Network) -> DdpModel:
    """The model of a profile's gradients and backward pass, with the usual buckets and slow-down."""
    return DdpModel(profile.total_bytes, float(profile.backward_s.sum()), network)
