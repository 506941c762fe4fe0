"""Sizes, times and energies in the spelling that people use. Inside, everything is bytes, seconds and joules."""

from __future__ import annotations

import math
import re
from typing import Literal

from planwright.errors import InputError

__all__ = ["BYTES_PER_MB", "S_PER_US", "Unit", "format_bytes", "format_joules", "format_seconds", "parse_bytes"]

Unit = Literal["s", "j"]
"""What an objective is counted in, as names of fields end in it: seconds, or joules."""

S_PER_US = 1e-6
BYTES_PER_MB = 1e6

_BYTES = {
    "": 1, "B": 1,
    "K": 10**3, "KB": 10**3, "M": 10**6, "MB": 10**6, "G": 10**9, "GB": 10**9, "T": 10**12, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str, what: str = "size") -> int:
    """Bytes of "1MB" (10^6), "1 MiB" (2^20), "32K", "4096"; at least one byte.

    >>> parse_bytes("1.5MB"), parse_bytes("2KiB")
    (1500000, 2048)
    """
    match = _SIZE.fullmatch(text)
    unit = match.group(2).upper() if match else ""
    if match is None or unit not in _BYTES:
        raise InputError(f"{what}: must be a number and a unit such as 1MB (10^6) or 1MiB (2^20), got {text!r}")
    size = float(match.group(1)) * _BYTES[unit]
    if not (math.isfinite(size) and size >= 1 and size == int(size)):
        raise InputError(f"{what}: must be a whole number of bytes, at least 1, got {text!r}")
    return int(size)


def format_bytes(size_bytes: float) -> str:
    """A size with a scale that fits: "5 GB", "1.5 MB", "512 B"."""
    for scale, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if abs(size_bytes) >= scale:
            return f"{size_bytes / scale:.4g} {unit}"
    return f"{size_bytes:.4g} B"


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
