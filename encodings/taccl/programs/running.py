"""A plan between real processes, beside the library's own collective: `gapless run taccl`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gapless.errors import InputError
from gapless.plans_to_run import not_run, plan_to_run
from gapless.system import Answer, Session
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.torch.collectives.run import CollectiveRun

__all__ = ["execute"]


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """What the processes found: whether the result is right, and how long both took. Needs the extra `torch`."""
    path = values["plan"]
    plan, report = plan_to_run(path, "taccl")
    if not report.valid:
        return not_run(report)
    from gapless.torch.collectives.rank import Task
    from gapless.torch.collectives.run import run_collective

    sizes = set(plan.schedule.graph.size_bytes.tolist())
    if len(sizes) > 1:
        raise InputError(f"{path}: run takes a plan whose chunks are of one size, got {len(sizes)} sizes")
    ranks = plan.schedule.topology.device_count
    task = Task(
        ranks, sizes.pop(), values["repeats"], not values["without_turns"], session.options.seed, values["wait"]
    )
    session.say(f"running {ranks} processes ...")
    found = run_collective(path, task, session.options.stop, session.ranks)
    return _answer(plan.schedule.topology.name, report.makespan_s, found)


def _answer(machine: str, predicted_s: float, found: CollectiveRun) -> Answer:
    measured_s = float(np.median(found.plan_s))
    library_s = float(np.median(found.library_s)) if len(found.library_s) else None
    data = {
        "wrong": found.wrong,
        "predicted_s": predicted_s,
        "measured_s": measured_s,
        "measured_times_s": found.plan_s.tolist(),
        "library_s": library_s,
        "library_times_s": found.library_s.tolist(),
        "sent_bytes": list(found.sent_bytes),
    }
    lines = [
        ("result", "as the collective is defined" if not found.wrong else f"{found.wrong} numbers are wrong"),
        ("sent", f"{format_bytes(sum(found.sent_bytes))} by all ranks together"),
        ("predicted", f"{format_seconds(predicted_s)} on {machine}"),
        ("measured", _times(found.plan_s)),
        ("library", _times(found.library_s) if library_s is not None else "gloo has no such collective"),
    ]
    if library_s is not None:
        lines.append(("ratio", f"{library_s / measured_s:.2f} times as fast as the library"))
    return Answer(data, "\n".join(f"{title:<10} {text}" for title, text in lines), is_valid=not found.wrong)


def _times(times_s: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    low, median, high = np.percentile(times_s, [25, 50, 75])
    return f"{format_seconds(median)} (half of {len(times_s)} in {format_seconds(low)} to {format_seconds(high)})"
