"""What people see of a model's plan: how its parameters are laid out, and published layouts beside it."""

from __future__ import annotations

import re
from collections import Counter

from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.profiles.layouts.layouts import MeshLayouts
from gapless.report.text import table
from gapless.units import format_bytes, format_seconds

__all__ = ["render_model"]

_NUMBER = re.compile(r"(?<![^.])\d+(?=\.)")
"""Of a layer, in the name of a parameter."""


def render_model(plan: SavedPlan, layouts: MeshLayouts) -> list[str]:
    """Tables of parameters by module, and of baselines with their step and peak."""
    counts = Counter((_without_first_number(name), layout) for name, layout in layouts.parameters.items())
    rows = [["parameter", "layout", "times"]]
    rows += [[name, layout, str(count)] for (name, layout), count in counts.items()]
    return [table(rows), *_baselines(plan)]


def _without_first_number(name: str) -> str:
    return _NUMBER.sub("*", name, count=1)


def _baselines(plan: SavedPlan) -> list[str]:
    """A line each; those that need more memory than there is say so."""
    details, limit = Record(dict(plan.details), "details"), Record(dict(plan.problem), "problem")
    rows, most = [["beside it", "step", "peak", ""]], limit.integer("usage_limit_bytes", 0)
    for each in details.records("baselines", default=[]):
        peak = each.integer("peak_bytes", 0)
        fits = "" if peak <= most else "above the memory"
        rows.append([each.text("name"), format_seconds(each.number("step_s")), format_bytes(peak), fits])
    return [table(rows)] if len(rows) > 1 else []
