"""ProgressLog: notes how incumbent and bound of a solve converge, to be kept in a plan and drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gapless.errors import InputError
from gapless.options import Progress
from gapless.units import UNITS, Unit

__all__ = ["Convergence", "ProgressLog", "convergence_of"]

MOST_POINTS = 256


@dataclass(frozen=True)
class Convergence:
    """Incumbent and bound at `wall_s` seconds of a solve, in `unit`; None while unknown. All of one length."""

    wall_s: tuple[float, ...]
    incumbent: tuple[float | None, ...]
    bound: tuple[float | None, ...]
    unit: Unit = "s"

    @property
    def data(self) -> dict[str, object]:
        """In plain values, for the plan file; `convergence_of` reads them."""
        return {
            "unit": self.unit, "wall_s": list(self.wall_s), "incumbent": list(self.incumbent), "bound": list(self.bound)
        }  # fmt: skip


class ProgressLog:
    """A callback for `SolveOptions.on_progress` that keeps every news of incumbent or bound, and passes all reports on.

    `elapsed_s`: the seconds of the whole solve, which reports are given here, since a stage counts its own from its
    start; None leaves a report's own. At most `MOST_POINTS` are kept: of more, every other one goes, but never the
    latest.
    """

    def __init__(
        self, then: Callable[[Progress], None] | None = None, elapsed_s: Callable[[], float] | None = None
    ) -> None:
        self._then, self._elapsed_s = then, elapsed_s
        self._points: list[Progress] = []

    def __call__(self, progress: Progress) -> None:
        """Note a report, and hand it on."""
        if self._elapsed_s is not None:
            progress = replace(progress, wall_s=self._elapsed_s())
        last = self._points[-1] if self._points else Progress(0.0, None, None)
        if (progress.incumbent, progress.bound) != (last.incumbent, last.bound):
            if len(self._points) >= MOST_POINTS:
                self._points = self._points[1::2]
            self._points.append(progress)
        if self._then is not None:
            self._then(progress)

    @property
    def convergence(self) -> Convergence | None:
        """What was noted, None if nothing was known at any time."""
        if not self._points:
            return None
        return Convergence(
            tuple(round(point.wall_s, 6) for point in self._points),
            tuple(point.incumbent for point in self._points),
            tuple(point.bound for point in self._points),
            self._points[-1].unit,
        )


def convergence_of(data: object, where: str) -> Convergence:
    """The convergence in plain values. Raises `InputError`, which opens with `where`."""
    if not isinstance(data, Mapping):
        raise InputError(f"{where}: must be an object, got {type(data).__name__}")
    unit = next((each for each in UNITS if each == data.get("unit")), None)
    if unit is None:
        raise InputError(f"{where}: unit must be one of {', '.join(UNITS)}, got {data.get('unit')!r}")
    wall_s = _column(data, "wall_s", where, may_be_none=False)
    incumbent, bound = (_column(data, name, where, may_be_none=True) for name in ("incumbent", "bound"))
    if not len(wall_s) == len(incumbent) == len(bound):
        raise InputError(f"{where}: wall_s, incumbent and bound must have one length")
    return Convergence(wall_s, incumbent, bound, unit)


def _column(data: Mapping[str, object], name: str, where: str, may_be_none: bool) -> tuple[Any, ...]:
    column = data.get(name)
    if not isinstance(column, list) or not all(
        (value is None and may_be_none) or (isinstance(value, (int, float)) and not isinstance(value, bool))
        for value in column
    ):
        raise InputError(f"{where}: {name} must be a list of numbers" + (" and null" if may_be_none else ""))
    return tuple(column)
