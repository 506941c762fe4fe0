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
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.devices import Device, named_device
from gapless.profiles.gradients.cost_functions import FREE, CostFunction, PointsCost

__all__ = ["FLAT_BYTES", "NONE", "Compressor", "compressor_names", "named_compressor", "relative_speed"]

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
    `error`: its class, of `gapless.profiles.gradients.modes.ERRORS`. `rank`: of a low-rank approximation, 0 for none.
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


def relative_speed(device: str | Device) -> float:
    """How much faster than the V100 of the measurements a device encodes and decodes: by its memory bandwidth."""
    device = named_device(device) if isinstance(device, str) else device
    return device.bytes_per_s / named_device(_MEASURED_ON).bytes_per_s


def _by_figure_2(
    name: str, what: str, ratio: float, encode_us: float, decode_us: float, error: str = "feedback"
) -> Compressor:
    source = f"latencies in the Espresso repository: encode {encode_us:g} us, decode {decode_us:g} us of 4 MiB"
    encode_s, decode_s, is_reduced = 1e-6 * encode_us, 1e-6 * decode_us, name in _REDUCED
    return Compressor(name, what, ratio, is_reduced, encode_s, decode_s, _FIGURE_2_RANKS, source, error)


def _by_table(
    name: str, what: str, ratio: float, total_ms: float, decoded_like: Compressor, error: str = "feedback"
) -> Compressor:
    """`decoded_like`: the gathered compressor whose decode it shares."""
    source = f"{_table_source(total_ms)}, decode as {decoded_like.name}'s"
    decode_s = decoded_like.decode_s * _TABLE_RANKS / decoded_like.decoded_ranks
    encode_s = _table_flat_s(total_ms) - decode_s
    return Compressor(name, what, ratio, False, encode_s, decode_s, _TABLE_RANKS, source, error)


def _table_flat_s(total_ms: float) -> float:
    return 1e-3 * total_ms * FLAT_BYTES / _TABLE_BYTES


def _table_source(total_ms: float) -> str:
    return f"Utility of gradient compression, Table 4.1: encode and decode {total_ms:g} ms of 97 MB on 64 GPUs"


def _powersgd(rank: int, name: str) -> Compressor:
    """Three products of about the same work, two to encode and one to decode; TABLE 4.1 has the sum at rank 4.

    Columns are made orthogonal one after the other, so that a higher rank takes in proportion; a lower one reads the
    gradient as often as rank 4.
    """
    flat_s = _table_flat_s(_POWERSGD_MS) * max(1.0, rank / _POWERSGD_RANK)
    what, ratio = f"rank {rank}; matrices as two factors, vectors as they are", _POWERSGD_RATIO * _POWERSGD_RANK / rank
    source = _table_source(_POWERSGD_MS)
    return Compressor(name, what, ratio, True, 2 / 3 * flat_s, 1 / 3 * flat_s, 1, source, "feedback", rank)


_SIGNSGD_MS = 16.0
_POWERSGD_MS, _POWERSGD_RANK, _POWERSGD_RATIO = 45.0, 4, 100.0
_REDUCED = ("fp16", "bf16", "rand-k")
"""By FIGURE 2, and their messages can be added up."""

NONE = Compressor("none", "single precision as it is", 1.0, True, 0.0, 0.0, 1, "nothing to do", "exact")

_FP16 = _by_figure_2("fp16", "half precision", 2.0, 26, 22, "rounded")
_BF16 = _by_figure_2("bf16", "half the bits, all of the range", 2.0, 26, 22, "rounded")
_RAND_K = _by_figure_2("rand-k", "1 % at random, indices from a shared seed", 100.0, 88, 34)
_RAND_K_GATHERED = _by_figure_2(
    "rand-k-gathered", "1 % at random, each rank its own, with 32-bit indices", 50.0, 88, 34
)
_DGC = _by_figure_2("dgc", "the largest 1 % by a sampled threshold, with 32-bit indices", 50.0, 390, 34)
_EF_SIGNSGD = _by_figure_2("ef-signsgd", "signs and a mean, with error feedback", 32.0, 270, 140)
_ONEBIT = _by_figure_2("onebit", "signs and two means, with error feedback", 32.0, 620, 170)
_TOP_K = _by_table("topk", "the largest 1 %, with 32-bit indices", 50.0, 273, _DGC)
_MS_TOP_K = _by_table("ms-topk", "about the largest 1 % by bisection, with 32-bit indices", 50.0, 103, _DGC)
_QSGD = _by_table("qsgd", "2-bit stochastic quantisation", 16.0, 39, _EF_SIGNSGD, "unbiased")
_TERNGRAD = _by_table("terngrad", "three levels in 2 bits", 16.0, 94, _EF_SIGNSGD, "unbiased")

_SIGNSGD = Compressor(
    "signsgd", "signs, and the majority's vote; nothing is made up for", 32.0, False, _EF_SIGNSGD.encode_s,
    _table_flat_s(_SIGNSGD_MS) - _EF_SIGNSGD.encode_s, _TABLE_RANKS,
    f"{_table_source(_SIGNSGD_MS)}, encode as ef-signsgd's", "unknown",
)  # fmt: skip

_COMPRESSORS = {
    compressor.name: compressor
    for compressor in (
        NONE, _FP16, _BF16, _RAND_K, _RAND_K_GATHERED, _TOP_K, _MS_TOP_K, _DGC, _EF_SIGNSGD, _ONEBIT, _SIGNSGD, _QSGD,
        _TERNGRAD, _powersgd(_POWERSGD_RANK, "powersgd"),
    )
}  # fmt: skip
_LOW_RANK = re.compile(r"powersgd:([1-9][0-9]{0,5})")
_SPARSE = re.compile(r"([a-z-]+):([0-9]*\.?[0-9]+)")
_SPARSE_NAMES = tuple(each.name for each in (_RAND_K, _RAND_K_GATHERED, _TOP_K, _MS_TOP_K, _DGC))
"""Those that keep 1 % of the entries."""


def compressor_names() -> list[str]:
    """The compressors that gapless knows, `none` first."""
    return list(_COMPRESSORS)


def named_compressor(name: str | Compressor) -> Compressor:
    """A compressor by name, `powersgd:8` of another rank than 4, `topk:0.001` of another share than 0.01.

    One that isn't a name is itself. Dashes don't matter: `top-k` is `topk`. Raises `InputError` for an unknown name.
    """
    if isinstance(name, Compressor):
        return name
    low_rank = _LOW_RANK.fullmatch(name)
    if low_rank:
        return _powersgd(int(low_rank[1]), name)
    known = {other.replace("-", ""): other for other in _COMPRESSORS}
    name = known.get(name.replace("-", ""), name)
    sparse = _SPARSE.fullmatch(name)
    if sparse and known.get(sparse[1].replace("-", "")) in _SPARSE_NAMES:
        return _keeping(_COMPRESSORS[known[sparse[1].replace("-", "")]], float(sparse[2]))
    check_known("compressor", name, _COMPRESSORS)
    return _COMPRESSORS[name]


def _keeping(compressor: Compressor, share: float) -> Compressor:
    """One that keeps another share than 0.01: it takes as long to find, since all entries are read."""
    if not 0 < share <= 1 or 100 * share > compressor.ratio:
        rule = f"must keep a share > 0 and send no more than the gradient, got {share:g}"
        raise InputError(f"compressor {compressor.name}: {rule}")
    name, what = f"{compressor.name}:{share:g}", compressor.what.replace("1 %", f"{100 * share:g} %")
    return replace(compressor, name=name, what=what, ratio=compressor.ratio / (100 * share))
