"""What a plan copies to hosts and back as ranks run it: which op waits for which copy, and what ranks keep meanwhile.

A plan says it by the times of its schedule. An op waits for the copies out that are over when it starts there; a copy
back begins once the ops that are over when it starts there are. So a rank that is late never holds more than the plan.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gapless.checker.timeline import RELATIVE_TOLERANCE
from gapless.encodings.pipeline.execution.events import held_events
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.ir.schedule import Event, EventKind, Schedule

__all__ = ["NO_COPIES", "Copies", "Kept", "copies_of", "kept_of"]

_KEPT = re.compile(r"(kept|stash|deferred|recomputed) (\d+) (\d+)")


@dataclass(frozen=True)
class Copies:
    """The copies of a plan, by the forwards of which what is kept travels.

    `gone`: of an op, whose copies out it waits for, in the order in which they begin. `back`: of an op, whose copies
    back begin when the op before it has ended, and what it waits for is gone. `copy_s`: how long one takes each way.
    `s_per_byte`: of a link.
    """

    gone: Mapping[Action, tuple[Action, ...]] = field(default_factory=dict)
    back: Mapping[Action, tuple[Action, ...]] = field(default_factory=dict)
    copy_s: Mapping[Action, float] = field(default_factory=dict)
    s_per_byte: float = 0.0

    def rows(self, order: ActionOrder) -> tuple[tuple[str, str, str], ...]:
        """Every op, rank by rank: the op, what is to be gone, what begins to come back; none where nothing travels."""
        if not self.copy_s:
            return ()
        ops = (action for rank in range(order.ranks) for action in order.of_rank(rank))
        names = ((op, self.gone.get(op, ()), self.back.get(op, ())) for op in ops)
        return tuple((str(op), " ".join(map(str, gone)), " ".join(map(str, back))) for op, gone, back in names)


NO_COPIES = Copies()


def copies_of(schedule: Schedule, order: ActionOrder, offloaded: Sequence[Action]) -> Copies:
    """Those of a schedule. `offloaded`: the forwards that the plan says travel. Raises `InputError` for others."""
    out, back = _trips(schedule, order.ranks)
    if not set(out) == set(back) == set(offloaded):
        odd = sorted((set(out) | set(back)) ^ set(offloaded) or set(out) ^ set(back))[0]
        raise InputError(f"decision: offloaded: must be what goes to a host and comes back in the schedule, got {odd}")
    if not out:
        return NO_COPIES
    start_s, end_s = _spans_s(schedule, order)
    some_s = RELATIVE_TOLERANCE * max(end_s.values())
    gone, come = dict[Action, list[Action]](), dict[Action, list[Action]]()
    for rank in range(order.ranks):
        ops = order.of_rank(rank)
        starts_s, ends_s = [start_s[op] for op in ops], [end_s[op] for op in ops]
        place = {op: number for number, op in enumerate(ops)}
        used = {Action(op.stage, "F", op.micro_batch): place[op] for op in ops if op.kind in "IB"}
        for forward in sorted((each for each in out if each in place), key=lambda each: out[each].start_s):
            until = bisect_left(starts_s, out[forward].end_s - some_s, place[forward] + 1)
            gone.setdefault(ops[min(until, used[forward])], []).append(forward)
        for forward in sorted((each for each in back if each in place), key=lambda each: back[each].start_s):
            first = bisect_left(starts_s, out[forward].end_s - some_s, place[forward] + 1)
            after = sum(each <= back[forward].start_s + some_s for each in ends_s)
            come.setdefault(ops[min(max(first, after), used[forward])], []).append(forward)
    lengths_s = {forward: event.end_s - event.start_s for forward, event in out.items()}
    gone_by_op, back_by_op = ({op: tuple(row) for op, row in column.items()} for column in (gone, come))
    link = schedule.topology.links[next(iter(out.values())).place]
    return Copies(gone_by_op, back_by_op, lengths_s, link.beta_s_per_byte)


def _trips(schedule: Schedule, ranks: int) -> tuple[dict[Action, Event], dict[Action, Event]]:
    """To hosts, which are the devices after the ranks, and back; by the forward."""
    out, back = dict[Action, Event](), dict[Action, Event]()
    for event in schedule.events():
        if event.kind is not EventKind.TRANSFER:
            continue
        link = schedule.topology.links[event.place]
        match = _KEPT.fullmatch(schedule.graph.tensor_name(event.moves[0]))
        if match and max(link.source, link.target) >= ranks:
            (out if link.target >= ranks else back)[Action(int(match[2]), "F", int(match[3]))] = event
    return out, back


def _spans_s(schedule: Schedule, order: ActionOrder) -> tuple[dict[Action, float], dict[Action, float]]:
    """When each action starts, with what is decoded and run again before it, and when it ends."""
    start_s, end_s = dict[Action, float](), dict[Action, float]()
    for action, event in held_events(schedule, set(order.actions)):
        start_s[action] = min(event.start_s, start_s.get(action, event.start_s))
        end_s[action] = max(event.end_s, end_s.get(action, event.end_s))
    return start_s, end_s


@dataclass(frozen=True)
class Kept:
    """What ranks keep of micro-batches besides messages.

    `takes`, `leaves`: bytes that an action takes when it begins, and leaves when it ends. `moved`: of a forward, those
    that travel. `peak_bytes[r]`: the most that rank r keeps at once in the plan.
    """

    takes: Mapping[Action, int]
    leaves: Mapping[Action, int]
    moved: Mapping[Action, int]
    peak_bytes: tuple[int, ...]


def kept_of(schedule: Schedule, order: ActionOrder) -> Kept:
    """By a schedule. What ends at an instant is gone before anything comes."""
    graph, sizes = schedule.graph, schedule.graph.size_bytes.tolist()
    kept = {tensor for tensor in range(graph.tensor_count) if _KEPT.fullmatch(graph.tensor_name(tensor))}
    takes, leaves = (dict.fromkeys(order.actions, 0) for _ in range(2))
    changes = list[tuple[float, int, int]]()  # when, of how many bytes, on which rank
    for action, event in held_events(schedule, set(order.actions)):
        made = sum(sizes[each] for each in kept.intersection(graph.ops[event.op].outputs))
        left = sum(sizes[each] for each, _ in event.frees if each in kept)
        takes[action], leaves[action] = takes[action] + made, leaves[action] + left
        rank = order.rank_of_stage[action.stage]
        changes += [(event.start_s, made, rank), (event.end_s, -left, rank)]
    out, back = _trips(schedule, order.ranks)
    moved = {forward: sum(sizes[each] for each in event.moves) for forward, event in out.items()}
    changes += [(event.end_s, -moved[each], order.rank_of_stage[each.stage]) for each, event in out.items()]
    changes += [(event.start_s, moved[each], order.rank_of_stage[each.stage]) for each, event in back.items()]
    live, most = ([0] * order.ranks for _ in range(2))
    for _, change, rank in sorted(changes):
        live[rank] += change
        most[rank] = max(most[rank], live[rank])
    return Kept(takes, leaves, moved, tuple(most))
