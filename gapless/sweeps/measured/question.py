"""What is wanted of measured configurations: `max:throughput` subject to `memory<=1GiB`, `recall>=0.9`."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import suggestion
from gapless.sweeps.measured.measure_file import Metric
from gapless.units import parse_bytes, parse_seconds

__all__ = ["Limit", "Question", "read_question"]

_AIM = re.compile(r"(max|min):(\w+)")
_LIMIT = re.compile(r"\s*(\w+)\s*(<=|>=)\s*(.+?)\s*")
_PARSED: dict[str, Callable[[str, str], float]] = {"bytes": parse_bytes, "s": parse_seconds}


@dataclass(frozen=True)
class Limit:
    """A metric, by its place among the metrics, times `sign` is at most `sign` times `value`."""

    metric: int
    sign: int
    value: float
    text: str


@dataclass(frozen=True)
class Question:
    """The metric (by place) that `sign` times is to be large, and the limits of others. `choose`: as it was typed."""

    metric: int
    sign: int
    limits: tuple[Limit, ...]
    choose: str

    @property
    def axes(self) -> list[tuple[int, int]]:
        """The metrics that trade off, each with 1 where more is better, -1 where less is; what is chosen by first."""
        found = {self.metric: self.sign}
        for limit in self.limits:
            found.setdefault(limit.metric, -limit.sign)
        return list(found.items())

    def values(self, worlds: NDArray[np.float64]) -> NDArray[np.float64]:
        """How good each configuration is, minus infinity where it breaks a limit, of shape (worlds, configurations).

        `worlds`: true means, of shape (worlds, configurations, metrics).
        """
        keeps = np.ones(worlds.shape[:2], dtype=bool)
        for limit in self.limits:
            keeps &= limit.sign * worlds[:, :, limit.metric] <= limit.sign * limit.value
        return np.where(keeps, self.sign * worlds[:, :, self.metric], -np.inf)


def read_question(metrics: Sequence[Metric], choose: str, subject_to: Sequence[str] = ()) -> Question:
    """The question of `--choose` and `--subject-to`. Raises `InputError` that names the option."""
    aim = _AIM.fullmatch(choose)
    if aim is None:
        raise InputError(f"--choose: must be max:METRIC or min:METRIC, got {choose!r}")
    place = _place(metrics, aim[2], "--choose")
    return Question(place, 1 if aim[1] == "max" else -1, tuple(_limit(metrics, text) for text in subject_to), choose)


def _limit(metrics: Sequence[Metric], text: str) -> Limit:
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise InputError(f"--subject-to: must be METRIC<=VALUE or METRIC>=VALUE, got {text!r}")
    place = _place(metrics, found[1], "--subject-to")
    unit = metrics[place].unit
    try:
        value = _PARSED[unit](found[3], "") if unit in _PARSED else float(found[3])
    except InputError as error:
        raise InputError(f"--subject-to: {found[1]}{error}") from None
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"--subject-to: {found[1]}: must be a finite number, got {found[3]!r}")
    return Limit(place, 1 if found[2] == "<=" else -1, float(value), f"{found[1]}{found[2]}{found[3]}")


def _place(metrics: Sequence[Metric], name: str, option: str) -> int:
    names = [metric.name for metric in metrics]
    if name not in names:
        hint = suggestion(name, names)
        rule = f"must name a metric of the file, one of {', '.join(names)}, got {name!r}"
        raise InputError(f"{option}: {rule}; {hint}" if hint else f"{option}: {rule}")
    return names.index(name)
