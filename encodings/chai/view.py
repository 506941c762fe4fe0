"""What `show` prints of a plan: each layer's heads, and the baselines beside."""

from __future__ import annotations

import numpy as np

from gapless.checker import Report
from gapless.encodings.chai.head_map import HeadMap, read_head_map
from gapless.io.plan import SavedPlan
from gapless.io.record import Record
from gapless.text import table
from gapless.units import format_seconds

__all__ = ["map_of", "render"]


def map_of(plan: SavedPlan, where: str = "details") -> HeadMap:
    """The head map of a plan. Raises `InputError` where its details hold none."""
    asked = Record(dict(plan.problem), "problem")
    layers, heads, key_heads = (asked.integer(name, 1) for name in ("layers", "heads", "key_heads"))
    return read_head_map(dict(plan.details), layers, heads, key_heads, where)


def render(plan: SavedPlan, report: Report) -> str:
    """A line a layer, then the baselines."""
    chosen = map_of(plan)
    rows = [["layer", "keys kept", "largest group", "of heads"]]
    details = Record(dict(plan.details), "details")
    rises = details.array("rises", default=None)
    if rises is not None:
        rows[0].append("rise of the loss")
        if len(rises) != len(chosen.kept):
            raise details.fail("rises", f"of {len(chosen.kept)} layers", len(rises))
    for layer, kept in enumerate(chosen.kept):
        _, sizes = np.unique(chosen.representative[layer], return_counts=True)
        shown = ",".join(map(str, kept[:12])) + (",..." if len(kept) > 12 else "")
        rows.append([str(layer), str(len(kept)), str(int(sizes.max())), shown])
        if rises is not None:
            rows[-1].append(f"{details.real(f'rises[{layer}]', rises[layer], 0.0):.4f}")
    lines = [["map", "error", "keys kept", "step"]]
    name = details.text("method")
    error = Record(plan.claim, "claim").number("objective_error")
    lines.append([name, f"{error:.4g}", str(int(chosen.counts.sum())), format_seconds(report.makespan_s)])
    for other in details.record("baselines").names():
        row = details.record("baselines").record(other)
        kept_heads, step_s = row.integer("kept_heads", 1), row.number("step_s", 0)
        lines.append([other, f"{row.number('error', 0):.4g}", str(kept_heads), format_seconds(step_s)])
    return f"{table(rows)}\n\n{table(lines)}"
