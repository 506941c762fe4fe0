"""Sizes, times and energies in the spelling that people use. Inside, everything is bytes, seconds and joules."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Literal, get_args

from gapless.errors import InputError

__all__ = [
    "BYTES_PER_MB",
    "MOST_BYTES",
    "S_PER_US",
    "UNITS",
    "Unit",
    "format_bandwidth",
    "format_bytes",
    "format_count",
    "format_floats",
    "format_joules",
    "format_seconds",
    "parse_bandwidth",
    "parse_bytes",
    "parse_plain_seconds",
    "parse_seconds",
]

Unit = Literal["s", "span_s", "j", "error", "cost"]
"""What an objective is counted in, as names of fields end in it: seconds until all is done, or of the longest span of a
device or a link, joules, an error that has no unit, or a cost in whole numbers, which stay exact."""

UNITS: tuple[Unit, ...] = get_args(Unit)

S_PER_US = 1e-6
BYTES_PER_MB = 1e6
MOST_BYTES = 10**15
"""The largest size that is taken, 1 PB: thousands of them can still be added up in 64 bits."""

_LEAST_APART = 10_000

_BYTES = {
    "": 1, "B": 1,
    "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9, "T": 10**12, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SECONDS = {"s": 1.0, "ms": 1e-3, "us": S_PER_US, "µs": S_PER_US, "ns": 1e-9}
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_NUMBER = r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*"
_SIZE = re.compile(_NUMBER + r"([A-Za-z]*)\s*")
_TIME = re.compile(_NUMBER + r"([a-zµ]*)\s*")
# The case of the b distinguishes bits from bytes; that of the prefix means nothing.
_BANDWIDTH = re.compile(_NUMBER + r"([KkMmGgTt]?)(b|bit|B)(?:ps|/s)\s*")


def parse_bytes(text: str, what: str = "size") -> int:
    """Bytes of "1MB" (10^6), "1 MiB" (2^20), "32K", "4096"; a fraction is rounded down to whole bytes.

    >>> parse_bytes("1.5MB"), parse_bytes("2KiB"), parse_bytes("5.3GiB")
    (1500000, 2048, 5690831667)
    """
    match = _SIZE.fullmatch(text)
    unit = match.group(2).upper() if match else ""
    if match is None or unit not in _BYTES:
        raise InputError(f"{what}: must be a number and a unit such as 1MB (10^6) or 1MiB (2^20), got {text!r}")
    if not 1 <= float(match.group(1)) * _BYTES[unit] <= MOST_BYTES:
        raise InputError(f"{what}: must be at least 1 byte and at most 1PB (10^15), got {text!r}")
    return int(Fraction(match.group(1)) * _BYTES[unit])


def parse_seconds(text: str, what: str = "time") -> float:
    """Seconds of "10us", "1.5 ms", "2s"; zero may stand without a unit.

    >>> parse_seconds("1.5 ms"), parse_seconds("0")
    (0.0015, 0.0)
    """
    match = _TIME.fullmatch(text)
    value, unit = (float(match.group(1)), match.group(2)) if match else (math.nan, "")
    if value == 0 and not unit:
        return 0.0
    if unit not in _SECONDS or not math.isfinite(value):
        raise InputError(f"{what}: must be a number and a unit such as 10us, 1.5ms or 2s, got {text!r}")
    return value * _SECONDS[unit]


def parse_plain_seconds(text: str, what: str = "time") -> float:
    """Seconds of a time with a unit, or of a number by itself, as profiles for trials have them.

    >>> parse_plain_seconds("10ms"), parse_plain_seconds("2")
    (0.01, 2.0)
    """
    try:
        return float(text)
    except ValueError:
        return parse_seconds(text, what)


def parse_bandwidth(text: str, what: str = "bandwidth") -> float:
    """Bytes per second of "10Gbps", "25Gb/s" (bits), "12.5GB/s" (bytes); prefixes are powers of 1000.

    >>> parse_bandwidth("10Gbps"), parse_bandwidth("12.5 GB/s")
    (1250000000.0, 12500000000.0)
    """
    match = _BANDWIDTH.fullmatch(text)
    if match is None:
        raise InputError(f"{what}: must be a number and a unit such as 10Gbps (bits) or 1.25GB/s (bytes), got {text!r}")
    value, prefix, unit = match.groups()
    bytes_per_s = float(value) * _PREFIXES[prefix.lower()] / (1 if unit == "B" else 8)
    if not (math.isfinite(bytes_per_s) and bytes_per_s > 0):
        raise InputError(f"{what}: must be finite and > 0, got {text!r}")
    return bytes_per_s


def format_bandwidth(bytes_per_s: float) -> str:
    """A bandwidth in bits, as networks are sold: "10 Gb/s", "800 Mb/s"."""
    bits_per_s = 8 * bytes_per_s
    for scale, unit in ((1e12, "Tb/s"), (1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "Kb/s")):
        if bits_per_s >= scale:
            return f"{bits_per_s / scale:.4g} {unit}"
    return f"{bits_per_s:.4g} b/s"


def format_bytes(size_bytes: float) -> str:
    """A size with a scale that fits: "5 GB", "1.5 MB", "512 B"."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes:.4g} B"


def format_count(count: float) -> str:
    """A number of things: thousands apart from five digits on, and one digit of a fraction.

    >>> format_count(9999), format_count(31622), format_count(1154.5)
    ('9999', '31,622', '1154.5')
    """
    digits = 0 if isinstance(count, int) or count.is_integer() else 1
    return f"{count:,.{digits}f}" if abs(count) >= _LEAST_APART else f"{count:.{digits}f}"


def format_floats(count: float) -> str:
    """A number of floats with a scale that fits: "1571.8 M floats", "512 floats"."""
    for scale, unit in ((1e6, "M "), (1e3, "K ")):
        if count >= scale:
            return f"{count / scale:.6g} {unit}floats"
    return f"{count:.6g} floats"


def format_seconds(duration_s: float) -> str:
    """A time with a scale that fits: "3.2 ms", "917 us", "1.5 s"."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if abs(duration_s) >= scale:
            return f"{duration_s / scale:.4g} {unit}"
    return f"{duration_s * 1e9:.4g} ns" if duration_s else "0 s"


def format_joules(energy_j: float) -> str:
    """An energy with a scale that fits: "1.2 kJ", "350 J", "2.5 mJ"."""
    for scale, unit in ((1e6, "MJ"), (1e3, "kJ"), (1.0, "J"), (1e-3, "mJ")):
        if abs(energy_j) >= scale:
            return f"{energy_j / scale:.4g} {unit}"
    return f"{energy_j * 1e6:.4g} uJ" if energy_j else "0 J"
