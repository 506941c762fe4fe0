"""A fusion plan as text: its groups with their times, from the schedule, and the step times of the baselines."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gapless.errors import InputError
from gapless.schedule import Schedule
from gapless.units import format_bytes, format_seconds

__all__ = ["render_baselines", "render_groups"]

MOST_LINES = 40
NAME_WIDTH = 28


def render_groups(schedule: Schedule, sent_plain: Collection[int] = ()) -> str:
    """One line a group: its gradients, bytes, when it is encoded, and when its collective runs.

    `sent_plain`: the groups that aren't compressed, which are marked.
    Raises `InputError` for a schedule that isn't a fusion plan's.
    """
    encode = [k for k, op in enumerate(schedule.graph.ops) if op.kind == "encode"]
    event_of = {int(op): number for number, op in enumerate(schedule.op.tolist())}
    ops = schedule.graph.ops
    if not encode or any(op + 1 not in event_of or op not in event_of or not ops[op].inputs for op in encode):
        raise InputError("schedule: must be a fusion plan's, with an encode and a collective for each group")
    lines = [f"{'group':>5} {'tensors':>7} {'size':>9} {'encoded at':>11} {'sent from':>11} {'to':>11}  first .. last"]
    for number, op in enumerate(encode[:MOST_LINES]):
        group = schedule.graph.ops[op].inputs
        encoded, sent = event_of[op], event_of[op + 1]
        size = format_bytes(int(schedule.graph.size_bytes[list(group)].sum()))
        times = (schedule.end_s[encoded], schedule.start_s[sent], schedule.end_s[sent])
        first, last = (_shortened(schedule.graph.tensor_name(group[k])) for k in (0, -1))
        shown = " ".join(f"{format_seconds(time):>11}" for time in times)
        mark = " (plain)" if number in sent_plain else ""
        lines.append(f"{number:>5} {len(group):>7} {size:>9} {shown}  {first} .. {last}{mark}")
    if len(encode) > MOST_LINES:
        lines.append(f"      ... and {len(encode) - MOST_LINES} groups more")
    return "\n".join(lines)


def render_baselines(baselines_s: Mapping[str, float], iteration_s: float) -> str:
    """One line a baseline: its step time, and how much longer it is than the plan's."""
    lines = [f"{'fusion':<12} {'step':>10} {'slower by':>10}", f"{'this plan':<12} {format_seconds(iteration_s):>10}"]
    for name, duration_s in sorted(baselines_s.items(), key=lambda item: item[1]):
        longer = 100 * (duration_s / iteration_s - 1) if iteration_s else 0.0
        lines.append(f"{name:<12} {format_seconds(duration_s):>10} {longer:>8.2f} %")
    return "\n".join(lines)


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else "..." + name[3 - NAME_WIDTH :]
