"""Which picture suits which plan, and the reader of what a sweep has written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gapless.checker.replay import Replay
from gapless.checker.usage import known_events
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.plot import measured_front
from gapless.plot.curves import plot_convergence
from gapless.plot.gantt import plot_gantt, plot_resources
from gapless.plot.memory import plot_memory
from gapless.plot.names import device_names
from gapless.plot.network import plot_topology
from gapless.plot.style import headline
from gapless.progress_log import Convergence, convergence_of
from gapless.solution import Status
from gapless.system import find_system, known_system, system_names
from gapless.text import described

__all__ = ["Point", "convergence_in", "draw", "is_sweep", "kinds", "pictures_of", "read_sweep", "tables", "verdict_of"]

_KINDS = ("gantt", "resources", "memory", "topology", "convergence", "tradeoff")
"""The kinds of pictures that any system may have; `tradeoff` is of a sweep, the others are of a plan."""


@dataclass(frozen=True)
class Point:
    """One row of a sweep's table, as far as `plot_tradeoff` needs it."""

    memory_ratio: float
    overhead: float | None
    overhead_bound: float | None
    method: str = "auto"


def kinds() -> tuple[str, ...]:
    """The kinds of pictures that there are, those of the systems too."""
    own = [kind for name in system_names() for kind in find_system(name).drawers]
    return (*_KINDS, *sorted(set(own)))


def pictures_of(plan: SavedPlan) -> list[str]:
    """The kinds of pictures that suit a plan, the most telling first."""
    system = known_system(plan.system)
    suiting = ("gantt",) if system is None else system.pictures
    kinds = [kind for kind in suiting if kind != "resources" or _holds_resources(plan)]
    return kinds + (["convergence"] if convergence_in(plan) is not None else [])


def draw(plan: SavedPlan, kind: str, ax: Any = None, replay: Replay | None = None) -> Any:
    """Draw one kind of picture of a plan; returns the axes. `replay`: the plan's, where there is one already.

    Its title says what is drawn and how far from optimal the plan can be. Raises `InputError` where the plan has
    nothing to draw.
    """
    axes = _drawn(plan, kind, ax, replay)
    if kind != "convergence" and (title := axes.get_title(loc="left")):
        headline(axes, f"{title}, {verdict_of(plan)}")
    return axes


def verdict_of(plan: SavedPlan) -> str:
    """How far from optimal the plan can be."""
    if plan.claim.get("status") == Status.OPTIMAL.value:
        return "optimal"
    gap = plan.claim.get("gap")
    return "no bound" if gap is None else f"gap {described('gap', gap)}"


def _drawn(plan: SavedPlan, kind: str, ax: Any, replay: Replay | None) -> Any:
    system = known_system(plan.system)
    if system is not None and kind in system.drawers:
        return system.drawers[kind](plan, ax)
    if kind == "convergence":
        convergence = convergence_in(plan)
        if convergence is None:
            raise InputError("--kind convergence: the plan does not say how its solve converged; solve it again")
        return plot_convergence(convergence, ax)
    if kind == "resources" and not _holds_resources(plan):
        raise InputError("--kind resources: no transfer of the plan holds an exclusive resource; draw the gantt")
    drawers: dict[str, Callable[..., Any]] = {
        "gantt": plot_gantt, "resources": plot_resources, "memory": partial(plot_memory, replay=replay),
        "topology": plot_topology,
    }  # fmt: skip
    if kind not in drawers:
        raise InputError(f"--kind {kind}: must be one of {', '.join([*drawers, 'convergence'])} for this plan")
    return drawers[kind](plan.schedule, ax, device_names=device_names(plan))


def _holds_resources(plan: SavedPlan) -> bool:
    """Whether any transfer goes over a link with exclusive resources."""
    schedule = plan.schedule
    events = known_events(schedule)
    links = schedule.place[events[schedule.is_transfer[events]]]
    return bool(np.diff(schedule.topology.held_start)[links].any())


def convergence_in(plan: SavedPlan) -> Convergence | None:
    """How incumbent and bound of the plan's solve converged, None if the plan does not say."""
    data = plan.run.get("convergence")
    return None if data is None else convergence_of(data, "run: convergence")


def tables() -> dict[str, Callable[[str, str | None], tuple[Any, str]]]:
    """What draws the tables of the systems' own sweeps, by format."""
    return {format_: draws for name in system_names() for format_, draws in find_system(name).tables.items()}


def is_sweep(path: str) -> str:
    """Whether a file looks like the table of a sweep: of `budgets`, a JSON list; of a `file`'s instances; of `measured`
    configurations; or a system's own, by the name of its format. Empty for none.

    Raises `InputError` where it can't be read.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(64).lstrip()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if start[:1] == b"[":
        return "budgets"
    if b"gapless.sweep-summary" in start:
        return "file"
    if measured_front.FORMAT.encode() in start:
        return "measured"
    return next((format_ for format_ in tables() if f'"{format_}"'.encode() in start), "")


def read_sweep(path: str | Path) -> list[Point]:
    """The rows of a sweep's `summary.json`. Raises `InputError` for a file that is none."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}") from None
    if not isinstance(data, list) or not data:
        raise InputError(f"{path}: must be a JSON list of at least one row, as the summary.json of a sweep is")
    return [_point(Record(row, f"{path}: row {number}")) for number, row in enumerate(data)]


def _point(row: Record) -> Point:
    ratio = row.number("memory_ratio", 0)
    overhead, bound = (None if row.raw(name) is None else row.number(name) for name in ("overhead", "overhead_bound"))
    if not all(value is None or math.isfinite(value) for value in (ratio, overhead, bound)):
        raise InputError(f"{row.where}: memory_ratio, overhead and overhead_bound must be finite")
    return Point(ratio, overhead, bound, row.text("method", default="auto"))
