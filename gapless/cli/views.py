"""What pictures, traces and reports need to know of a system beside its plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["busiest", "device_names", "read_any_plan"]


def read_any_plan(path: str) -> SavedPlan:
    """The plan in a file of ours, whatever its format."""
    if path.endswith(".npz"):
        from gapless.encodings.bagpipe.run_file import read_run

        return read_run(path)
    from gapless.io.plan import read_plan

    return read_plan(path)


def device_names(plan: SavedPlan) -> tuple[str, ...]:
    """What the plan's system calls its devices; empty where they go by number."""
    if plan.system == "bagpipe":
        from gapless.encodings.bagpipe.device_names import device_names as names

        return names(plan.schedule.topology)
    return ()


def busiest(plan: SavedPlan, report: Report) -> list[tuple[str, float]]:
    """Links, engines and named resources that are in use, with their share of the makespan, the busiest first."""
    topology, busy = plan.schedule.topology, report.busy_s
    named = [(f"link {topology.link_name(number)}", busy_s) for number, busy_s in enumerate(busy.links)]
    named += [
        (f"engine {name} of {device}", busy_s)
        for (device, name), busy_s in zip(topology.engines, busy.engines, strict=True)
    ]
    named += list(zip(topology.resources, busy.resources, strict=True))
    shares = [(name, busy_s / report.makespan_s) for name, busy_s in named if busy_s > 0]
    return sorted(shares, key=lambda entry: (-entry[1], entry[0]))
