"""The picture of a training through a pipeline's plan: losses by step, and what compressed hops lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from math import nan
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.plot.style import PALETTE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

__all__ = ["draw_training"]

_MEAN_OF = 10
"""Steps over which the losses of batches that differ are averaged."""


def draw_training(data: Mapping[str, Any]) -> Figure | SubFigure:
    """The losses of all runs, and beside them the cosines of equation 14 where errors were looked at.

    Raises `InputError` where nothing was trained.
    """
    from matplotlib.figure import Figure

    runs = data.get("runs")
    if not runs:
        raise InputError("plot: draws a training, and a single step has no curve; give --steps")
    looked = [run for run in runs if run["errors"]]
    figure = Figure(figsize=(10.0 if looked else 6.0, 3.8), layout="constrained")
    axes = figure.subplots(1, 2 if looked else 1, squeeze=False)[0]
    shown = [run for run in runs if run["hop_bytes"]]
    looks = [(colour, style) for style in ("-", "--", ":") for colour in PALETTE]
    look_of = {run["name"]: look for run, look in zip(shown, cycle(looks), strict=False)}
    _draw_losses(axes[0], shown, look_of)
    if looked:
        _draw_errors(axes[1], looked, look_of)
    for each in axes:
        each.grid(alpha=0.3)
        each.set_xlabel("step")
    return figure


def _draw_losses(axes: Axes, runs: Sequence[Mapping[str, Any]], look_of: Mapping[str, tuple[str, str]]) -> None:
    for run in runs:
        losses = run["losses"]
        means = [_mean(losses[max(0, step - _MEAN_OF + 1) : step + 1]) for step in range(len(losses))]
        colour, style = look_of[run["name"]]
        last = "diverged" if run["last_loss"] is None else f"{run['last_loss']:.3f}"
        axes.plot(means, style, label=f"{run['name']}: {last}", color=colour, linewidth=1)
    axes.set_ylabel(f"loss, mean of {_MEAN_OF} steps")
    axes.legend(fontsize=7)


def _draw_errors(axes: Axes, runs: Sequence[Mapping[str, Any]], look_of: Mapping[str, tuple[str, str]]) -> None:
    """As figure 11 of Optimus-CC: means and cosines near 0; and how far weights' gradients are off."""
    for run in runs:
        steps = sorted({each["step"] for each in run["errors"]})
        of_step = [[each for each in run["errors"] if each["step"] == step] for step in steps]
        colour, _ = look_of[run["name"]]
        for name, style in (("cosine", "-"), ("error_mean", ":"), ("change_mean", "--")):
            values = [_mean([x for each in rows for x in each[name]] or [0.0]) for rows in of_step]
            axes.plot(steps, values, style, color=colour, linewidth=1)
        axes.plot(steps, [_mean([each["off"] for each in rows]) for rows in of_step], "-", color=colour, linewidth=2)
    for label, style, width in (
        ("weights off", "-", 2), ("cos(E, dY)", "-", 1), ("mean of E", ":", 1), ("mean of dY", "--", 1),
    ):  # fmt: skip
        axes.plot([], [], style, color="black", linewidth=width, label=label)
    axes.legend(fontsize=7)


def _mean(values: Sequence[float | None]) -> float:
    """None stands for what isn't finite."""
    return sum(nan if value is None else value for value in values) / len(values)
