"""What pictures, traces and reports call the parts of a plan, and which of them are busy."""

from __future__ import annotations

from gapless.checker import Report
from gapless.io.plan import SavedPlan
from gapless.plot.lanes import place_names
from gapless.system import known_system

__all__ = ["busiest", "device_names"]


def device_names(plan: SavedPlan) -> tuple[str, ...]:
    """What the plan's system calls its devices; empty where they go by number."""
    system = known_system(plan.system)
    return () if system is None or system.device_names is None else system.device_names(plan)


def busiest(plan: SavedPlan, report: Report) -> list[tuple[str, float]]:
    """Links, engines and named resources that are in use, with their share of the makespan, the busiest first."""
    topology, busy = plan.schedule.topology, report.busy_s
    named = list(zip(place_names(plan.schedule, device_names(plan)), (*busy.engines, *busy.links), strict=True))
    named += list(zip(topology.resources, busy.resources, strict=True))
    shares = [(name, busy_s / report.makespan_s) for name, busy_s in named if busy_s > 0]
    return sorted(shares, key=lambda entry: (-entry[1], entry[0]))
