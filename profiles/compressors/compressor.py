"""Gradient compressors: how much smaller a gradient gets, which collective takes it, what encode and decode cost.

All costs are of a V100 and have one shape (FUSION, section 3.2 and Figure 2): constant up to a group of 4 MiB, since
launching kernels dominates, and in proportion to the bytes above. One number each for encode and decode says it all.
FUSION is *A compression scheduler for scalable communication-efficient distributed training*. The numbers come from
two publications:

- FIGURE 2: encode and decode latency of up to 2^20 elements as the Espresso repository publishes them, the numbers
  behind Figure 2 of FUSION. An iteration of ResNet-50 on a server of 8 GPUs confirms them: 161 layer-wise
  compressions then take 68 ms (DGC) and 66 ms (EF-SignSGD), "both larger than 60 ms" in section 3.1.
- TABLE 4.1: encode plus decode of ResNet-50's 97 MB on 64 GPUs (*Utility of gradient compression*, Table 4.1), divided
  down to 4 MiB. 1 MB is read as 10^6 bytes throughout.

Where the two disagree (DGC 221 ms in TABLE 4.1, 15 ms by FIGURE 2; implementations differ), FIGURE 2 is taken, since it
was measured by group size and holds encode and decode apart.

**Decode.** What is all-reduced is decoded once. What is all-gathered arrives as one message per rank, so decode grows
with the ranks ("linearly increasing decode time", Figure 4.6). FIGURE 2's decode is that of 8 messages: read as that of
one, the 8 GPUs of section 3.1 would spend 224 ms on EF-SignSGD, not "larger than 60". TABLE 4.1 doesn't split its sums;
decode of the gathered ones is taken to be FIGURE 2's of the same kind (DGC's scatter for top-k, EF-SignSGD's unpacking
for quantised gradients), grown to 64 ranks, and the rest is encode; SignSGD's 16 ms are less than such a decode, so its
encode is EF-SignSGD's and the rest is decode.

**Other devices.** Compressors read and write much and compute little: on another device their time is divided by the
ratio of memory bandwidths (`relative_speed`). The what-if of Figure 4.13 divides by its speed-up of compute instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gapless.errors import InputError
from gapless.profiles.compressors.method import Method
from gapless.profiles.devices import Device, named_device
from gapless.profiles.gradients.cost_functions import FREE, CostFunction, PointsCost

__all__ = [
    "BITS",
    "ERRORS",
    "FLAT_BYTES",
    "RANK",
    "SHARE",
    "Compressor",
    "Kind",
    "Setting",
    "by_figure_2",
    "by_table",
    "measured_compressor",
    "relative_speed",
    "table_flat_s",
    "table_source",
]

ERRORS = {
    "exact": "the mean of the gradients itself",
    "rounded": "each number to fewer bits; trains as single precision does, but for overflow",
    "unbiased": "right on average; converges, slower by the variance that it adds",
    "feedback": "biased, and what was left out is added the next time; converges at the rate of SGD in the end",
    "unknown": "biased, and nothing is made up for; need not converge",
}
"""Classes of error, with what is known of convergence; from nothing lost to nothing known."""

FLAT_BYTES = 2**22
"""Up to this group size encode and decode take constant time: "4 MB in our testbed", 2^20 elements."""

_MEASURED_ON = "v100"
_FIGURE_2_RANKS = 8
_TABLE_RANKS = 64
_TABLE_BYTES = 97e6


@dataclass(frozen=True)
class Compressor:
    """A method to compress gradients.

    `ratio`: bytes before over bytes on the wire. `all_reducible`: messages can be added up as they pass.
    `encode_s`, `decode_s`: on a V100, of a group of up to `FLAT_BYTES`. `decoded_ranks`: from how many ranks the
    messages are that `decode_s` decodes; it counts for all-gathered ones only. `source`: where the times are from.
    `error`: its class, of `ERRORS`. `rank`: of a low-rank approximation, 0 for none.
    """

    name: str
    what: str
    ratio: float
    all_reducible: bool
    encode_s: float
    decode_s: float
    decoded_ranks: int
    source: str
    error: str = "unknown"
    rank: int = 0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.ratio) and self.ratio > 0):
            raise InputError(f"compressor {self.name!r}: ratio must be finite and > 0, got {self.ratio}")
        for title in ("encode_s", "decode_s"):
            value = getattr(self, title)
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"compressor {self.name!r}: {title} must be finite and >= 0, got {value}")
        if self.decoded_ranks < 1:
            raise InputError(f"compressor {self.name!r}: decoded_ranks must be >= 1, got {self.decoded_ranks}")

    def encode_cost(self, speed: float = 1.0) -> CostFunction:
        """Encoding a group, as a function of its bytes before compression; `speed`: how many times a V100's."""
        return self._cost(self.encode_s, speed)

    def decode_cost(self, ranks: int, speed: float = 1.0) -> CostFunction:
        """Decoding what `ranks` ranks sent of a group, as a function of its bytes before compression."""
        if ranks < 1:
            raise InputError(f"ranks: must be >= 1, got {ranks}")
        return self._cost((1.0 if self.all_reducible else ranks / self.decoded_ranks) * self.decode_s, speed)

    def cost(self, ranks: int, speed: float = 1.0) -> CostFunction:
        """Encode plus decode of a group, as a function of its bytes before compression.

        `speed`: how much faster than a V100 the device runs them.
        """
        at = (float(FLAT_BYTES), 2.0 * FLAT_BYTES)
        both_s = self.encode_cost(speed)(at) + self.decode_cost(ranks, speed)(at)
        return PointsCost(tuple(zip(at, both_s.tolist(), strict=True))) if both_s.any() else FREE

    def _cost(self, flat_s: float, speed: float) -> CostFunction:
        if not (math.isfinite(speed) and speed > 0):
            raise InputError(f"speed: must be finite and > 0, got {speed}")
        at = float(FLAT_BYTES)
        return PointsCost(((at, flat_s / speed), (2 * at, 2 * flat_s / speed))) if flat_s else FREE


def measured_compressor(
    name: str, method: Method, size_bytes: float, sent_bytes: float, encode_s: float, decode_s: float, ranks: int
) -> Compressor:
    """A compressor at what encoding `size_bytes` and decoding the messages of `ranks` took on one's own machine."""
    flat = min(1.0, FLAT_BYTES / size_bytes)  # what takes less is as short as this was
    return Compressor(
        name, "as measured", size_bytes / sent_bytes, method.collective == "all_reduce", flat * encode_s,
        flat * decode_s, ranks, "measured", method.error, method.rank,
    )  # fmt: skip


def relative_speed(device: str | Device) -> float:
    """How much faster than the V100 of the measurements a device encodes and decodes: by its memory bandwidth."""
    device = named_device(device) if isinstance(device, str) else device
    return device.bytes_per_s / named_device(_MEASURED_ON).bytes_per_s


# -- what is said of a name --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """The number behind a compressor's name and a colon. `rule`: of what `pattern` and `most` take."""

    default: float
    rule: str
    pattern: str
    most: float
    has_zero: bool = False

    def read(self, text: str) -> float | None:
        """The number, None for what is none."""
        number = float(text) if re.fullmatch(self.pattern, text, re.ASCII) else -1.0
        return number if 0 < number <= self.most or (self.has_zero and number == 0) else None


SHARE = Setting(
    0.01, "a share must be a number above 0, at most 1", r"(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", 1.0
)  # fmt: skip
"""Of the entries that are kept."""
BITS = Setting(2, "bits must be 2, 4 or 8", r"2|4|8", 8)
"""Of an entry, its sign with it."""
RANK = Setting(4, "a rank must be a whole number in 1..999999", r"\d{1,6}", 999_999)


@dataclass(frozen=True)
class Kind:
    """A compressor at any setting.

    `name`: as it is written, with `aliases`; `also`: patterns of name and number in one, with what the number is
    divided by. `priced`: the published compressor at a setting, under a name. `method`: how it is sent at a setting and
    `options`, which are given by their names.
    """

    name: str
    priced: Callable[[float, str], Compressor]
    method: Callable[..., Method]
    setting: Setting | None = None
    aliases: tuple[str, ...] = ()
    also: tuple[tuple[str, int], ...] = ()
    options: Mapping[str, Setting] = field(default_factory=dict)

    @classmethod
    def of(cls, priced: Compressor, method: Callable[[], Method], aliases: tuple[str, ...] = ()) -> Kind:
        """One without a setting."""
        return cls(priced.name, lambda _, name: priced, lambda _: method(), None, aliases)


# -- what is published -------------------------------------------------------------------------------------------------


def by_figure_2(
    name: str, what: str, ratio: float, encode_us: float, decode_us: float, error: str = "feedback",
    all_reducible: bool = False,
) -> Compressor:  # fmt: skip
    """A compressor at the latencies of FIGURE 2."""
    source = f"latencies in the Espresso repository: encode {encode_us:g} us, decode {decode_us:g} us of 4 MiB"
    encode_s, decode_s = 1e-6 * encode_us, 1e-6 * decode_us
    return Compressor(name, what, ratio, all_reducible, encode_s, decode_s, _FIGURE_2_RANKS, source, error)


def by_table(
    name: str, what: str, ratio: float, total_ms: float, decoded_like: Compressor, error: str = "feedback"
) -> Compressor:
    """A compressor at the sums of TABLE 4.1. `decoded_like`: the gathered compressor whose decode it shares."""
    source = f"{table_source(total_ms)}, decode as {decoded_like.name}'s"
    decode_s = decoded_like.decode_s * _TABLE_RANKS / decoded_like.decoded_ranks
    encode_s = table_flat_s(total_ms) - decode_s
    return Compressor(name, what, ratio, False, encode_s, decode_s, _TABLE_RANKS, source, error)


def table_flat_s(total_ms: float) -> float:
    """Of a group of `FLAT_BYTES` or less, by a sum of TABLE 4.1."""
    return 1e-3 * total_ms * FLAT_BYTES / _TABLE_BYTES


def table_source(total_ms: float) -> str:
    """Where a sum is from."""
    return f"Utility of gradient compression, Table 4.1: encode and decode {total_ms:g} ms of 97 MB on 64 GPUs"
