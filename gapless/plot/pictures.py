"""Which picture suits which plan, and the reader of what a sweep has written."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.anytime.convergence import Convergence, convergence_of
from gapless.checker.inspection import Inspection
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.io.record import Record, parse_json
from gapless.io.text_file import load_text
from gapless.ir.schedule import Schedule
from gapless.plot import measured_front
from gapless.plot.curves import plot_convergence
from gapless.plot.gantt import plot_gantt, plot_resources
from gapless.plot.lanes import taking_time
from gapless.plot.memory import plot_memory
from gapless.plot.names import device_names
from gapless.plot.network import plot_topology
from gapless.plot.style import check_plot, headline, plain
from gapless.report.headline import is_timed, question_of, verdict_of
from gapless.system import find_system, known_system, system_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Point", "convergence_in", "draw", "draw_beside", "is_sweep", "kinds", "pictures_of", "read_sweep", "tables"]

_KINDS = ("gantt", "resources", "memory", "topology", "convergence", "tradeoff")
"""The kinds of pictures that any system may have; `tradeoff` is of a sweep, the others are of a plan."""
_LONGEST_TITLE = 160
_BESIDE = ("gantt", "memory")
"""The kinds that two plans have on one axis of time."""


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
    """The kinds of pictures that suit a plan, the most telling first; none that would be empty."""
    system = known_system(plan.system)
    suiting = ("gantt",) if system is None else system.pictures
    return [kind for kind in (*suiting, "convergence") if not _lacks(plan, kind)]


def draw(
    plan: SavedPlan, kind: str = "auto", ax: Axes | None = None, seen: Inspection | None = None,
    verdict: str | None = None, until_s: float = 0.0,
) -> Axes:  # fmt: skip
    """Draw one kind of picture of a plan, the most telling one if `auto`; returns the axes.

    `seen`: what its replay has to show, where there is one already. The title is the question, its answer and the
    `verdict`, how far from optimal the plan can be. `until_s`: how far the axis of time goes at least, of `gantt` and
    `memory`. Raises `InputError` where the picture would be empty, or is none of this plan; it says what to draw
    instead.
    """
    kind = next(iter(pictures_of(plan)), "gantt") if kind == "auto" else kind
    if lack := _lacks(plan, kind):
        instead = next((f"draw --kind {other}" for other in pictures_of(plan)), "`gapless show` says what it holds")
        raise InputError(f"--kind {kind}: {lack}; {instead}")
    question = question_of(plan.system, plan.problem, plan.schedule.name or plan.system)
    titled = replace(plan, schedule=replace(plan.schedule, name=plain(question, _LONGEST_TITLE)))
    axes = _drawn(titled, kind, ax, seen, until_s)
    said = verdict or verdict_of(plan, None if seen is None else seen.report)
    headline(axes, f"{axes.get_title(loc='left')}, {said}")
    return axes


def draw_beside(plans: Sequence[SavedPlan], seen: Sequence[Inspection], kind: str = "auto") -> Figure:
    """Draw plans one above the other, by name of their methods, on one axis of time; returns the figure.

    `seen`: what their replays have to show. `kind`: `gantt`, `memory`, or `auto`, the first of these that suits the
    first plan. Raises `InputError` for another kind, and where a picture would be empty.
    """
    check_plot()
    from matplotlib.figure import Figure

    suiting = [own for own in pictures_of(plans[0]) if own in _BESIDE]
    kind = next(iter(suiting), "gantt") if kind == "auto" else kind
    if kind not in _BESIDE:
        raise InputError(f"--kind {kind}: plans stand beside each other as {' or '.join(_BESIDE)}")
    until_s = max(float(plan.schedule.end_s.max(initial=0.0)) for plan in plans)
    figure = Figure(figsize=(10.0, 2.6 * len(plans)), layout="constrained")
    for number, (plan, replay) in enumerate(zip(plans, seen, strict=True)):
        axes = figure.add_subplot(len(plans), 1, number + 1)
        draw(plan, kind, axes, replay, until_s=until_s)
        method = plan.details.get("method") or plan.claim.get("solver") or f"plan {number + 1}"
        headline(axes, f"{plain(str(method))}: {axes.get_title(loc='left')}")
    return figure


def _lacks(plan: SavedPlan, kind: str) -> str:
    """Why a picture would be empty, or is none of this plan; empty where there is something to see."""
    system, schedule = known_system(plan.system), plan.schedule
    own = () if system is None else tuple(system.drawers)
    if kind in own:
        return ""
    if kind == "convergence":
        convergence = convergence_in(plan)
        if convergence is None:
            return "the plan does not say how its solve converged"
        known = {*convergence.incumbent, *convergence.bound} - {None}
        return "" if len(known) > 1 and len(set(convergence.wall_s)) > 1 else "nothing changed while it was solved"
    if not len(taking_time(schedule)):
        return "nothing in the plan takes time"
    if kind in ("gantt", "memory") and not is_timed(plan.claim):
        return "its schedule is of time points, whose length nobody has said"
    if kind in ("resources", "topology"):
        links = _links_used(schedule)
        if not len(links):
            return "no transfer of the plan takes time on a link"
        holds = kind == "topology" or np.diff(schedule.topology.held_start)[links].any()
        return "" if holds else "no transfer of the plan holds an exclusive resource"
    if kind == "memory":
        return "" if schedule.graph.size_bytes.any() else "no tensor of the plan has a size"
    return "" if kind == "gantt" else f"is no picture of this plan; there are {', '.join([*own, *_KINDS[:-1]])}"


def _links_used(schedule: Schedule) -> NDArray[np.int64]:
    """The link of each transfer that takes time."""
    events = taking_time(schedule)
    return np.asarray(schedule.place[events[schedule.is_transfer[events]]])


def _drawn(plan: SavedPlan, kind: str, ax: Axes | None, seen: Inspection | None, until_s: float) -> Axes:
    system = known_system(plan.system)
    if system is not None and kind in system.drawers:
        return system.drawers[kind](plan, ax)
    if kind == "convergence":
        convergence = convergence_in(plan)
        assert convergence is not None
        axes = plot_convergence(convergence, ax)
        axes.set_title(f"{plan.schedule.name}: how the solve converged", loc="left")
        return axes
    if kind == "memory":
        budgets = () if system is None else system.budgets(plan)
        steps = None if seen is None else seen.memory
        return plot_memory(plan.schedule, ax, None, device_names(plan), steps, budgets, until_s)
    if kind == "gantt":
        return plot_gantt(plan.schedule, ax, device_names(plan), until_s)
    drawers = {"resources": plot_resources, "topology": plot_topology}
    return drawers[kind](plan.schedule, ax, device_names=device_names(plan))


def convergence_in(plan: SavedPlan) -> Convergence | None:
    """How incumbent and bound of the plan's solve converged, None if the plan does not say."""
    data = plan.run.get("convergence")
    return None if data is None else convergence_of(data, "run: convergence")


def tables() -> dict[str, Callable[[str, str | None], tuple[Figure | SubFigure, str]]]:
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
    data = parse_json(load_text(path), str(path))
    if not isinstance(data, list) or not data:
        raise InputError(f"{path}: must be a JSON list of at least one row, as the summary.json of a sweep is")
    return [_point(Record(row, f"{path}: row {number}")) for number, row in enumerate(data)]


def _point(row: Record) -> Point:
    ratio = row.number("memory_ratio", 0)
    overhead, bound = (None if row.raw(name) is None else row.number(name) for name in ("overhead", "overhead_bound"))
    if not all(value is None or math.isfinite(value) for value in (ratio, overhead, bound)):
        raise InputError(f"{row.where}: memory_ratio, overhead and overhead_bound must be finite")
    return Point(ratio, overhead, bound, row.text("method", default="auto"))
