"""What `show` prints of a plan: each rank's layers, times and memory, and the schedules of the field beside."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gapless.checker import Report
from gapless.io.plan import SavedPlan
from gapless.text import table
from gapless.units import format_bytes, format_seconds

__all__ = ["render"]


def render(plan: SavedPlan, report: Report) -> str:
    """A line a rank, then the schedules of the field."""
    lines = [_ranks(plan, report)]
    baselines_s = plan.details.get("baselines_s")
    if isinstance(baselines_s, Mapping) and baselines_s:
        lines.append(_baselines(baselines_s, report.makespan_s))
    return "\n\n".join(lines)


def _ranks(plan: SavedPlan, report: Report) -> str:
    """Each rank: its layers, how long it computes and when it is done, its memory."""
    schedule = plan.schedule
    ranks = schedule.topology.device_count
    engine_rank = np.array([device for device, _ in schedule.topology.engines], dtype=np.int64)
    is_op = schedule.op >= 0
    done_s, of_rank = np.zeros(ranks), engine_rank[schedule.place[is_op]]
    np.maximum.at(done_s, of_rank, schedule.end_s[is_op])
    layers = _layers(plan.details, plan.problem, ranks)
    rows = [["rank", "layers", "computes", "done at", "peak memory"]]
    for rank in range(ranks):
        busy_s = sum(busy for busy, (device, name) in zip(report.busy_s.engines, schedule.topology.engines, strict=True)
                     if device == rank and name == "compute")  # fmt: skip
        peak = format_bytes(report.peak_bytes[rank])
        rows.append([str(rank), layers[rank], format_seconds(busy_s), format_seconds(float(done_s[rank])), peak])
    return table(rows)


def _layers(details: Mapping[str, Any], description: Mapping[str, Any], ranks: int) -> list[str]:
    """The layers of each rank's stages, such as `0-5, 18-23`; nothing where the plan doesn't say."""
    from gapless.encodings.pipeline.placement import PLACEMENTS, rank_of_stages

    cut, count = details.get("cut"), description.get("layers")
    placement, chunks = description.get("placement"), description.get("chunks")
    if not (isinstance(cut, list) and isinstance(count, int) and placement in PLACEMENTS and isinstance(chunks, int)):
        return [""] * ranks
    ends, found = [0, *cut, count], list[list[str]]([[] for _ in range(ranks)])
    for stage, rank in enumerate(rank_of_stages(str(placement), ranks, chunks).tolist()):
        first, last = ends[stage], ends[stage + 1] - 1
        found[rank].append(str(first) if first == last else f"{first}-{last}")
    return [", ".join(parts) for parts in found]


def _baselines(baselines_s: Mapping[str, Any], step_s: float) -> str:
    rows = [["schedule", "step", "of this plan's"]]
    for name, seconds in sorted(baselines_s.items(), key=lambda item: float(item[1])):
        rows.append([name, format_seconds(float(seconds)), f"{float(seconds) / step_s:.3f}" if step_s else "-"])
    return table(rows)
