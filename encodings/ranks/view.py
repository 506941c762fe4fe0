"""What `show` prints of a plan: how many layers have each mode in each phase, and the rules beside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gapless.checker import Report
from gapless.io.plan import SavedPlan
from gapless.text import described, table

__all__ = ["baselines_table", "render"]


def render(plan: SavedPlan, report: Report) -> str:
    """A line a phase, the ledgers, then the rules."""
    phases, baselines = plan.details.get("phases"), plan.details.get("baselines")
    parts = [_phases(phases)] if isinstance(phases, list) and phases else []
    limits = zip(plan.schedule.graph.budgets, report.spent, strict=True)
    parts.append("\n".join(f"{budget.name:<18} {spent:.6g} of {budget.limit:.6g}" for budget, spent in limits))
    if isinstance(baselines, list) and baselines:
        parts.append(baselines_table(baselines))
    return "\n\n".join(parts)


def _phases(phases: Sequence[Mapping[str, Any]]) -> str:
    rows = [["from epoch", "epochs", "layers by mode"]]
    for phase in phases:
        counts = Counter(phase["modes"])
        layers = ", ".join(f"{counts[mode]} {mode}" for mode in sorted(counts, key=lambda mode: (-counts[mode], mode)))
        rows.append([str(phase["first_epoch"]), str(phase["epochs"]), layers])
    return table(rows)


def baselines_table(baselines: Sequence[Mapping[str, Any]]) -> str:
    """What rules send and spoil, and how much more than the best choice at the same data."""
    rows = [["rule", "sends", "error", "regret"]]
    for row in baselines:
        regret = "-" if row["regret"] is None else f"{100 * row['regret']:.1f} %"
        rows.append([row["name"], described("sent_floats", row["sent_floats"]), f"{row['error']:.4g}", regret])
    return table(rows)
