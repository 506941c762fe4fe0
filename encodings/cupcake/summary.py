"""A fusion plan as text: its groups with their times, from the schedule, and the step times of the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.units import format_bytes, format_seconds

__all__ = ["render_baselines", "render_groups"]

MOST_LINES = 40
NAME_WIDTH = 28


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
