"""Tables of nccl-tests (`sendrecv_perf -g 2`): latency and bandwidth of one kind of link, fitted to measured times."""

from __future__ import annotations

from dataclasses import dataclass
from io import StringIO

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.units import S_PER_US

__all__ = ["Measured", "read_measured"]

_FEWEST, _MOST = 4, 1000
"""Rows that a fit takes: fewer can't show a row that is off, and slopes are of pairs of rows."""


@dataclass(frozen=True)
class Measured:
    """The line alpha + beta * bytes through measured times. `spread`: the median relative distance from it."""

    alpha_s: float
    beta_s_per_byte: float
    spread: float


def read_measured(text: str, where: str) -> Measured:
    """The line through a table's sizes and out-of-place times.

    Raises `InputError` where there is no table, where it has fewer than 4 sizes, or where times don't rise with sizes.
    """
    size_bytes, time_s = _columns(text, where)
    if not (np.isfinite(size_bytes).all() and np.isfinite(time_s).all()):
        raise InputError(f"{where}: sizes and times must be finite")
    if len(size_bytes) < _FEWEST:
        raise InputError(
            f"{where}: must hold at least {_FEWEST} sizes, got {len(size_bytes)}; measure with -b 8 -e 256M -f 2"
        )
    beta = _median_slope(size_bytes, time_s)
    if not beta > 0:
        raise InputError(f"{where}: times must rise with sizes, they change by {beta:g} s a byte")
    # The latency shows where it is most of the time.
    short = size_bytes * beta <= np.maximum(time_s - size_bytes * beta, 0.0)
    alpha = float(np.median((time_s - size_bytes * beta)[short])) if short.any() else 0.0
    fitted_s = alpha + beta * size_bytes
    return Measured(alpha, beta, float(np.median(np.abs(time_s - fitted_s) / time_s)))


def _columns(text: str, where: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sizes in bytes, and the times of the first run, in seconds: the columns are named in a comment."""
    names: list[str] = []
    rows: list[tuple[float, float]] = []
    for line in StringIO(text):
        words = line.lstrip("#").split()
        if line.lstrip().startswith("#"):
            names = words if {"size", "time"} <= set(words) else names
        elif names and words and words[0].isdigit() and len(words) >= len(names) - 1:
            try:
                rows.append((float(words[names.index("size")]), float(words[names.index("time")]) * S_PER_US))
            except ValueError:
                raise InputError(f"{where}: a row must hold numbers, got {line.strip()[:60]!r}") from None
            if len(rows) > _MOST:
                raise InputError(f"{where}: must hold at most {_MOST} sizes")
    if not names:
        raise InputError(f"{where}: must be a table of nccl-tests, with a comment that names its columns (size, time)")
    kept = [row for row in rows if min(row) > 0]
    return np.array([row[0] for row in kept]), np.array([row[1] for row in kept])


def _median_slope(size_bytes: NDArray[np.float64], time_s: NDArray[np.float64]) -> float:
    """Theil and Sen's slope, each pair of points weighted with the distance of its sizes.

    Sizes are doubled from row to row: without weights, most pairs would be of small ones, whose times say nothing of
    bandwidth.
    """
    low, high = np.triu_indices(len(size_bytes), 1)
    width = np.abs(size_bytes[high] - size_bytes[low])
    apart = width > 0
    if not apart.any():
        return 0.0
    slope = (time_s[high] - time_s[low])[apart] / (size_bytes[high] - size_bytes[low])[apart]
    order = np.argsort(slope)
    weight = np.cumsum(width[apart][order])
    return float(slope[order][np.searchsorted(weight, weight[-1] / 2)])
