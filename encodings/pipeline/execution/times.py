"""How long the ops, messages and copies of a plan take as ranks run it, and when a step of them is over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

from gapless.encodings.pipeline.execution.copies import NO_COPIES, Copies
from gapless.encodings.pipeline.execution.events import action_of, held_events
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.ir.schedule import EventKind, Schedule

__all__ = ["Times", "step_s", "times_of"]

_MESSAGE = re.compile(r"(?:posted )?(activation|gradient|encoded gradient) (\d+) (\d+)")


@dataclass(frozen=True)
class Times:
    """Seconds of each action of a plan.

    `op_s`: how long it holds its rank, with a forward that is run again, decoding before it and encoding after it, and
    its message where sends block. `hop_s`: how long the message that it makes holds its link. `copy_s`: of a forward,
    how long a copy of what is kept takes to the host and back, where it travels.
    """

    op_s: Mapping[Action, float]
    hop_s: Mapping[Action, float]
    copy_s: Mapping[Action, float] = field(default_factory=dict)

    @property
    def mean_op_s(self) -> float:
        """The mean of all actions."""
        return fmean(self.op_s.values())

    def scaled(self, factor: float) -> Times:
        """All of it times a factor."""
        columns = self.op_s, self.hop_s, self.copy_s
        return Times(*({action: factor * each for action, each in column.items()} for column in columns))

    def first_stage_whole(self) -> Times:
        """As a first stage of one layer is run: nothing in I, since its input has no gradient, all of it in W."""
        op_s = dict(self.op_s)
        for action in op_s:
            if action.stage == 0 and action.kind == "W":
                before = Action(0, "I", action.micro_batch)
                op_s[action], op_s[before] = op_s[before] + op_s[action], 0.0
        return replace(self, op_s=op_s)

    def without_hops(self) -> Times:
        """With messages that take no time."""
        return replace(self, hop_s=dict.fromkeys(self.hop_s, 0.0))


def times_of(schedule: Schedule, order: ActionOrder, copies: Copies = NO_COPIES) -> Times:
    """Those of a schedule, whose ops and tensors are named as the lowering names them. Raises `InputError`."""
    known = set(order.actions)
    op_s, hop_s = dict.fromkeys(order.actions, 0.0), {each: 0.0 for each in order.actions if order.link(each)}
    for action, event in held_events(schedule, known):
        op_s[action] += event.end_s - event.start_s
    for event in schedule.events():
        if event.kind is EventKind.TRANSFER:
            for tensor in event.moves:
                match = _MESSAGE.fullmatch(schedule.graph.tensor_name(tensor))
                sent = match and action_of(f"send {match[1]}", int(match[2]), int(match[3]), known)
                if sent in hop_s:
                    hop_s[sent] = event.end_s - event.start_s
    return Times(op_s, hop_s, copies.copy_s)


def step_s(order: ActionOrder, times: Times, copies: Copies = NO_COPIES) -> float:
    """When all ranks are done, each action, message and copy as early as the order allows; sums among replicas left
    out. `copies`: to hosts and back."""
    free_s, link_free_s = [0.0] * order.ranks, dict[tuple[int, int], float]()
    ready_s: dict[tuple[str, int, int], float] = {}  # when what a forward or a backward waits for is there
    posted_s: dict[Action, float] = {}
    engine = _Engine(order, times, copies)
    for action, leaving in order.posts():
        rank, stage, m = order.rank_of_stage[action.stage], action.stage, action.micro_batch
        need = ("" if action.kind == "W" else "F" if action.kind == "F" else "B", stage, m)
        begin_s = max(engine.begin_s(action, free_s[rank], posted_s), ready_s.get(need, 0.0))
        end_s = begin_s + times.op_s[action]
        free_s[rank] = posted_s[action] = end_s
        if action.kind != "W" and order.link(action) is None:
            ready_s[_user(action)] = end_s
        for sent in leaving:
            link = order.link(sent)
            assert link is not None, "what leaves goes to another rank"
            link_free_s[link] = max(posted_s[sent], link_free_s.get(link, 0.0)) + times.hop_s[sent]
            ready_s[_user(sent)] = link_free_s[link]
    return max(free_s)


class _Engine:
    """The copies of all ranks, one each way at a time: when ops may begin for them."""

    def __init__(self, order: ActionOrder, times: Times, copies: Copies) -> None:
        self._order, self._times, self._copies = order, times, copies
        self._free_s = dict[tuple[int, str], float]()
        self._gone_s, self._there_s = dict[Action, float](), dict[Action, float]()

    def begin_s(self, action: Action, now_s: float, ends_s: Mapping[Action, float]) -> float:
        """`now_s`: when its rank is done with the op before; `ends_s`: of all ops before."""
        for forward in self._copies.gone.get(action, ()):
            self._gone_s[forward] = self._copied_s("out", forward, ends_s[forward])
            now_s = max(now_s, self._gone_s[forward])
        for forward in self._copies.back.get(action, ()):
            self._there_s[forward] = self._copied_s("back", forward, now_s)
        own = Action(action.stage, "F", action.micro_batch)
        return now_s if action.kind == "F" else max(now_s, self._there_s.get(own, 0.0))

    def _copied_s(self, direction: str, forward: Action, from_s: float) -> float:
        engine = self._order.rank_of_stage[forward.stage], direction
        self._free_s[engine] = max(from_s, self._free_s.get(engine, 0.0)) + self._times.copy_s[forward]
        return self._free_s[engine]


def _user(action: Action) -> tuple[str, int, int]:
    """What waits for the message of an action."""
    if action.kind == "F":
        return "F", action.stage + 1, action.micro_batch
    return "B", action.stage - 1, action.micro_batch
