"""Rows: what a sweep returns, a list that notebooks show as a table, and that can be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gapless.report.short_repr import card_html, one_line, table_of
from gapless.report.text import described
from gapless.sweeps.results import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Rows"]

_MOST_SHOWN = 50


class Rows(list[Row]):
    """The rows of a sweep, in the order of its instances."""

    def __repr__(self) -> str:
        answers = sum(row.is_answer for row in self)
        return f"<sweep: {len(self)} instances, {answers} of them answered>"

    def _repr_html_(self) -> str:
        fields = list(dict.fromkeys(name for row in self for name in row.swept))
        said = [name for name in ("narrower", "wider") if any(name in row.details for row in self)]
        titles = ["system", *fields, "status", "answer", "bound", "gap", *said, "makespan", "peak"]
        lines = [
            [
                row.system,
                *(one_line(str(row.fields.get(name, "")), 40) for name in fields),
                row.status,
                described(f"objective_{row.unit}", row.objective),
                described(f"bound_{row.unit}", row.bound),
                described("gap", row.gap),
                *(str(row.details.get(name, "-")) for name in said),
                *(described(name, getattr(row, name)) for name in ("makespan_s", "peak_bytes")),
            ]
            for row in self[:_MOST_SHOWN]
        ]
        more = f"<div><i>and {len(self) - _MOST_SHOWN} more</i></div>" if len(self) > _MOST_SHOWN else ""
        is_good = all(row.is_answer for row in self)
        return card_html(f"{len(self)} instances", (), is_good, table_of(lines, titles) + more)

    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """Draw a column over a swept field, as `gapless plot --x --y` does; returns the figure.

        Raises `InputError` where there is nothing to draw.
        """
        from gapless.plot.sweep_curves import draw_sweep
        from gapless.report.notebook import shown_in_notebooks

        return shown_in_notebooks(draw_sweep(self, x, y), "the sweep")
