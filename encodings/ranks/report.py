"""What people see: what `show` prints of a plan, pictures, and the advice, what data buys.

Advice: the front of what is sent and what is spoiled, static and by epoch, beside the rules.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.checker import Report
from gapless.encodings.ranks.baselines import BaselineRow, baseline_rows, best_at
from gapless.encodings.ranks.decision import ModeDecision, Phase
from gapless.encodings.ranks.parameters import DEFAULTS
from gapless.encodings.ranks.problem import Problem, problem
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.model.knapsack import Choice
from gapless.plot.style import BLUE, GREY, ORANGE, PALETTE, amounts, check_plot, finish, new_axes, plain
from gapless.profiles.compression.trace import CompressionTrace
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.question.fields import Share
from gapless.report.short_repr import BriefText
from gapless.report.text import described, table
from gapless.units import format_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["Advice", "advise", "baselines_table", "draw_front", "draw_modes", "render"]

_MANY = 10_000


def render(plan: SavedPlan, report: Report) -> str:
    """A line a phase, the ledgers, then the rules."""
    says_phases, baselines = plan.decision or "phases" in plan.details, plan.details.get("baselines")
    parts = [_phases(ModeDecision.of(plan).phases)] if says_phases else []
    limits = zip(plan.schedule.graph.budgets, report.spent, strict=True)
    parts.append(
        "\n".join(f"{budget.name:<18} {_amount(spent)} of {_amount(budget.limit)}" for budget, spent in limits)
    )
    if isinstance(baselines, list) and baselines:
        parts.append(baselines_table(baselines))
    return "\n\n".join(parts)


def _amount(spent: float) -> str:
    """Floats are many, errors are small."""
    return format_count(round(spent)) if spent >= _MANY else f"{spent:.6g}"


def _phases(phases: Sequence[Phase]) -> str:
    rows = [["from epoch", "epochs", "layers by mode"]]
    for phase in phases:
        counts = Counter(phase.modes)
        layers = ", ".join(f"{counts[mode]} {mode}" for mode in sorted(counts, key=lambda mode: (-counts[mode], mode)))
        rows.append([str(phase.first_epoch), str(phase.epochs), layers])
    return table(rows)


def baselines_table(baselines: Sequence[BaselineRow]) -> str:
    """What rules send and spoil, and how much more than the best choice at the same data."""
    rows = [["rule", "sends", "error", "regret"]]
    for row in baselines:
        regret = "-" if row["regret"] is None else f"{100 * row['regret']:.1f} %"
        rows.append([row["name"], described("sent_floats", row["sent_floats"]), f"{row['error']:.4g}", regret])
    return table(rows)


_MOST_NAMES = 60
_MILLION = 1e6


def draw_modes(plan: SavedPlan, ax: Axes | None = None) -> Axes:
    """Draw the mode of each layer in each epoch, the darker the more is sent; returns the axes."""
    by_epoch, layers, modes = ModeDecision.of(plan).by_epoch, plan.problem.get("layers"), plan.problem.get("modes")
    if not (isinstance(layers, list) and isinstance(modes, list)):
        raise InputError("modes: the plan doesn't say its layers and modes")
    strays = sorted({mode for row in by_epoch for mode in row if mode not in modes})
    if strays:
        raise InputError(f"modes: must be of the plan's problem, got {strays[0]!r}")
    from matplotlib.ticker import MaxNLocator

    grid = np.array([[modes.index(mode) for mode in row] for row in by_epoch]).T
    ax = ax or new_axes(7.0, 1.4 + 0.16 * min(len(layers), _MOST_NAMES))
    colours = amounts().resampled(max(len(modes), 2))
    drawn = ax.imshow(grid, aspect="auto", cmap=colours, vmin=-0.5, vmax=max(len(modes), 2) - 0.5, interpolation="none")
    bar = ax.figure.colorbar(drawn, ax=ax, ticks=range(len(modes)))
    bar.ax.set_yticklabels([plain(str(mode)) for mode in modes], fontsize=8)
    if len(layers) <= _MOST_NAMES:
        ax.set_yticks(range(len(layers)), [plain(str(layer)) for layer in layers], fontsize=6)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    ax.set_xlabel("epoch; layers stand in the order in which their gradients are ready")
    ax.set_ylabel("layer")
    error = described("objective_error", plan.claim.get("objective_error"))
    ax.set_title(f"{plan.schedule.name}: error {error}", loc="left", fontsize=10)
    return ax


def draw_front(data: Mapping[str, Any]) -> Figure | SubFigure:
    """Draw both fronts and a point for each rule; returns the figure."""
    check_plot()
    ax = new_axes(6.5, 4.2)
    for name, title, colour in (("static", "by layer", BLUE), ("epoch", "by layer and epoch", ORANGE)):
        points = data[name]
        ax.plot([row["sent_floats"] / _MILLION for row in points], [row["error"] for row in points], "-o",
                color=colour, markersize=3, label=title)  # fmt: skip
    rest = [colour for colour in PALETTE if colour not in (BLUE, ORANGE)]
    for number, row in enumerate(data["baselines"]):
        is_constant = row["name"].startswith("constant")
        colour = GREY if is_constant else rest[number % len(rest)]
        ax.plot(row["sent_floats"] / _MILLION, row["error"], "s" if is_constant else "D", color=colour, markersize=5,
                label=row["name"])  # fmt: skip
    ax.set(xlabel="sent by a worker (million floats)", ylabel="error")
    ax.set_title(str(data["trace"]), loc="left", fontsize=9)
    return finish(ax, grid=True, legend="beside").figure


_HALF = Share(0.5)
"""The data at which rules that keep a budget are compared, of what the costliest mode sends."""


@dataclass(frozen=True, repr=False)
class Advice(BriefText):
    """Points (floats, error, bound) of both fronts, and the rules with their regret."""

    problem: Problem
    static: tuple[tuple[float, float, float], ...]
    epoch: tuple[tuple[float, float, float], ...]
    baselines: tuple[BaselineRow, ...]

    @property
    def data(self) -> dict[str, object]:
        """The answer in plain values."""
        titles = ("sent_floats", "error", "bound_error")
        fronts = {name: [dict(zip(titles, point, strict=True)) for point in points]
                  for name, points in (("static", self.static), ("epoch", self.epoch))}  # fmt: skip
        return {"problem": "ranks", "trace": self.problem.trace.name, **fronts, "baselines": list(self.baselines)}

    @property
    def text(self) -> str:
        """Both fronts at the same data, and the rules."""
        rows = [["data", "static error", "by epoch", "gain"]]
        for (floats, error, _), (_, by_epoch, _) in zip(self.static, self.epoch, strict=True):
            gain = f"{100 * (1 - by_epoch / error):.1f} %" if error else "-"
            rows.append([described("sent_floats", floats), f"{error:.4g}", f"{by_epoch:.4g}", gain])
        return f"{table(rows)}\n\n{baselines_table(self.baselines)}"


def advise(trace: str | Path | CompressionTrace, *, modes: Sequence[str] | None = None, points: int = 12) -> Advice:
    """The fronts at budgets that are evenly apart, between all in the cheapest and all in the costliest mode."""
    asked = problem(trace, data=_HALF, modes=modes, phases="epoch")
    static, by_epoch = (best_at(asked.items(starts), DEFAULTS.most_work) for starts in ((0,), asked.starts))
    least, most = int(asked.cost.min(axis=2).sum()), int(asked.cost.max(axis=2).sum())
    budgets = [float(budget) for budget in np.linspace(least, most, points)]
    assert asked.data_bytes is not None
    rows = baseline_rows(asked, max(asked.data_bytes, least), DEFAULTS, 0)
    return Advice(asked, _points(static, budgets), _points(by_epoch, budgets), tuple(rows))


def _points(at: Callable[[float], Choice | None], budgets: Sequence[float]) -> tuple[tuple[float, float, float], ...]:
    """At each budget; what more data can't be worse than is never worse, however the dynamic programme rounds."""
    found, best = [], math.inf
    for budget in budgets:
        choice = at(budget)
        assert choice is not None
        best = min(best, choice.error)
        found.append((budget / FLOAT_BYTES, best, min(choice.bound, best)))
    return tuple(found)
