"""A fusion plan as people and frameworks take it: as text, and as buckets of PyTorch's DistributedDataParallel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gapless.encodings.cupcake.decision import FusionDecision, to_ddp_buckets
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import write_ddp_buckets
from gapless.ir.schedule import Schedule
from gapless.report.baselines import render_baselines
from gapless.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["render", "render_groups", "write_buckets"]

MOST_LINES = 40
NAME_WIDTH = 28


def render(plan: SavedPlan, report: Report) -> str:
    """The groups with their times, and the baselines beside them."""
    baselines_s = plan.details.get("baselines_s")
    lines = [render_groups(plan.schedule, FusionDecision.of(plan).modes)]
    if isinstance(baselines_s, dict) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        lines.append(render_baselines("fusion", baselines_s, report.makespan_s))
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


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else "..." + name[3 - NAME_WIDTH :]


def write_buckets(path: str, plan: SavedPlan, values: Mapping[str, object]) -> str:
    """Write the buckets of a plan; returns what they hold."""
    buckets = to_ddp_buckets(plan)
    write_ddp_buckets(path, buckets)
    held = f"{len(buckets.parameter_names)} gradients of {buckets.profile}, {format_bytes(sum(buckets.bucket_bytes))}"
    return f"{len(buckets.groups)} buckets for {held}"
