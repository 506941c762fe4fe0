"""A fusion plan as people and frameworks take it: as text, and as buckets of PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.errors import InputError
from gapless.io.ddp_buckets import DdpBuckets, write_ddp_buckets
from gapless.io.record import Record
from gapless.ir.schedule import Schedule
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["export_ddp_buckets", "render", "render_baselines", "render_groups", "to_ddp_buckets", "write_buckets"]

MOST_LINES = 40
NAME_WIDTH = 28


def render(plan: SavedPlan, report: Report) -> str:
    """The groups with their times, and the baselines beside them."""
    baselines_s = plan.details.get("baselines_s")
    modes = plan.details.get("modes")
    lines = [render_groups(plan.schedule, modes if isinstance(modes, list) else ())]
    if isinstance(baselines_s, dict) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        lines.append(render_baselines(baselines_s, report.makespan_s))
    return "\n".join(lines)


def render_groups(schedule: Schedule, modes: Sequence[str] = ()) -> str:
    """One line a group: its gradients, bytes, mode, when it is encoded, its collective runs, and it is decoded.

    `modes`: the names of the groups' modes, none where they aren't known.
    Raises `InputError` for a schedule that isn't a fusion plan's.
    """
    ops = schedule.graph.ops
    encode = [k for k, op in enumerate(schedule.graph.ops) if op.kind == "encode"]
    event_of = {int(op): number for number, op in enumerate(schedule.op.tolist())}
    if not encode or any({op, op + 1, op + 2} - event_of.keys() or not ops[op].inputs for op in encode):
        raise InputError("schedule: must be a fusion plan's: encode, collective and decode for each group")
    titles = "".join(f" {title:>11}" for title in ("mode", "encoded at", "sent from", "to", "decoded at"))
    lines = [f"{'group':>5} {'tensors':>7} {'size':>9}{titles}  first .. last"]
    for number, op in enumerate(encode[:MOST_LINES]):
        group = schedule.graph.ops[op].inputs
        encoded, sent, decoded = (event_of[op + step] for step in range(3))
        size = format_bytes(int(schedule.graph.size_bytes[list(group)].sum()))
        times = (schedule.end_s[encoded], schedule.start_s[sent], schedule.end_s[sent], schedule.end_s[decoded])
        first, last = (_shortened(schedule.graph.tensor_name(group[k])) for k in (0, -1))
        shown = " ".join(f"{format_seconds(time):>11}" for time in times)
        mode = modes[number] if number < len(modes) else ""
        lines.append(f"{number:>5} {len(group):>7} {size:>9} {mode!s:>11} {shown}  {first} .. {last}")
    if len(encode) > MOST_LINES:
        lines.append(f"      ... and {len(encode) - MOST_LINES} groups more")
    return "\n".join(lines)


def render_baselines(baselines_s: Mapping[str, float], iteration_s: float) -> str:
    """One line a baseline: its step time, and how much longer it is than the plan's."""
    lines = [f"{'fusion':<17} {'step':>10} {'slower by':>10}", f"{'this plan':<17} {format_seconds(iteration_s):>10}"]
    for name, duration_s in sorted(baselines_s.items(), key=lambda item: item[1]):
        longer = 100 * (duration_s / iteration_s - 1) if iteration_s else 0.0
        lines.append(f"{name:<17} {format_seconds(duration_s):>10} {longer:>8.2f} %")
    return "\n".join(lines)


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else "..." + name[3 - NAME_WIDTH :]


def to_ddp_buckets(problem: Mapping[str, Any], details: Mapping[str, Any], where: str = "plan") -> DdpBuckets:
    """The buckets of a fusion plan, from its `problem` and `details` sections.

    Raises `InputError` naming `where` and the field, also where DDP can't reproduce the plan's groups.
    """
    asked, found = Record(dict(problem), f"{where}: problem"), Record(dict(details), f"{where}: details")
    if asked.integer("pieces_bytes", 1, default=None) is not None:
        raise InputError(f"{where}: problem: pieces_bytes: DDP keeps every gradient whole; solve without pieces")
    profile = asked.text("profile")
    names = tuple(_name(asked, number, name) for number, name in enumerate(asked.array("tensor_names")))
    sizes = asked.integers("tensor_bytes", 0)
    groups = tuple(_group(found, number, group) for number, group in enumerate(found.array("groups")))
    modes = tuple(_mode(found, number, mode) for number, mode in enumerate(found.array("modes", default=[])))
    try:
        return DdpBuckets(profile, names, sizes, groups, modes)
    except InputError as error:  # the buckets name the field, not the file
        raise InputError(f"{where}: {error}") from None


def _name(record: Record, number: int, name: Any) -> str:
    if not isinstance(name, str):
        raise record.fail(f"tensor_names[{number}]", "a string", name)
    return name


def _mode(record: Record, number: int, mode: Any) -> str:
    if not isinstance(mode, str):
        raise record.fail(f"modes[{number}]", "the name of a mode", mode)
    return mode


def _group(record: Record, number: int, group: Any) -> tuple[int, int]:
    if not isinstance(group, list) or len(group) != 2 or any(type(end) is not int for end in group):
        raise record.fail(f"groups[{number}]", "[first, last] in whole numbers", group)
    return group[0], group[1]


def export_ddp_buckets(
    path: str | Path, problem: Mapping[str, Any], details: Mapping[str, Any], where: str = "plan"
) -> DdpBuckets:
    """Write the buckets of a fusion plan, whole or not at all; returns them."""
    buckets = to_ddp_buckets(problem, details, where)
    write_ddp_buckets(path, buckets)
    return buckets


def write_buckets(path: str, plan: SavedPlan, values: Mapping[str, Any]) -> str:
    """Write the buckets of a plan; returns what they hold."""
    buckets = export_ddp_buckets(path, plan.problem, plan.details, where="details")
    held = f"{len(buckets.parameter_names)} gradients of {buckets.profile}, {format_bytes(sum(buckets.bucket_bytes))}"
    return f"{len(buckets.groups)} buckets for {held}"
