"""What `show` prints of a plan: each rank's region and load, and other allreduces beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gapless.checker import Report
from gapless.io.plan import SavedPlan
from gapless.text import table
from gapless.units import format_seconds

__all__ = ["render"]

MOST_LINES = 64


def render(plan: SavedPlan, report: Report) -> str:
    """A line a region, load and words beside others, and their times."""
    details = plan.details
    cuts, owners, loads = details.get("cuts"), details.get("owners"), details.get("loads")
    if not (isinstance(cuts, list) and isinstance(owners, list) and isinstance(loads, Mapping)):
        return "the plan does not say its regions"
    rows = [["region", "first entry", "entries", "owner", "receives", "averaged", "even"]]
    for region, owner in enumerate(owners[:MOST_LINES]):
        received = [f"{loads[name][owner]:,}" for name in ("plan", "averaged", "even")]
        width = cuts[region + 1] - cuts[region]
        rows.append([str(region), f"{cuts[region]:,}", f"{width:,}", str(owner), *received])
    lines = [table(rows), _ratios(details), _words(details, report)]
    if len(owners) > MOST_LINES:
        lines.insert(1, f"... and {len(owners) - MOST_LINES} regions more")
    drift = details.get("drift")
    if isinstance(drift, Mapping) and drift.get("renewal_steps"):
        lines.append(f"new boundaries every {drift['renewal_steps']} steps (`gapless advise sparse` says why)")
    return "\n\n".join(lines)


def _ratios(details: Mapping[str, Any]) -> str:
    """The busiest owner's load over the ideal."""
    recorded, later = details["recorded_ratio"], details.get("later_ratio")
    rows = [["received over k (P - 1) / P", "recorded", *(["later, mean", "later, worst"] if later else [])]]
    for name, ratio in recorded.items():
        rows.append([name, f"{ratio:.3f}", *([f"{later[name][k]:.3f}" for k in ("mean", "worst")] if later else [])])
    return table(rows)


def _words(details: Mapping[str, Any], report: Report) -> str:
    times_s = {"plan": report.makespan_s, **details["baselines_s"]}
    rows = [["", "words of the busiest rank", "time"]]
    for name, words in details["words"].items():
        rows.append([name, f"{words:,.0f}", format_seconds(times_s[name]) if name in times_s else ""])
    return table(rows)
