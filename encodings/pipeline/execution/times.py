"""How long the ops and messages of a plan take as ranks run it, and when a step of them is over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import fmean

from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.ir.schedule import EventKind, Schedule

__all__ = ["Times", "step_s", "times_of"]

_NAME = re.compile(r"(F|I|B|W|R|A|encode|decode|send .*) (\d+) (\d+)")
_MESSAGE = re.compile(r"(?:posted )?(activation|gradient|encoded gradient) (\d+) (\d+)")


@dataclass(frozen=True)
class Times:
    """Seconds of each action of a plan.

    `op_s`: how long it holds its rank, with a forward that is run again, decoding before it and encoding after it, and
    its message where sends block. `hop_s`: how long the message that it makes holds its link.
    """

    op_s: Mapping[Action, float]
    hop_s: Mapping[Action, float]

    @property
    def mean_op_s(self) -> float:
        """The mean of all actions."""
        return fmean(self.op_s.values())

    def scaled(self, factor: float) -> Times:
        """All of it times a factor."""
        columns = ({action: factor * each for action, each in column.items()} for column in (self.op_s, self.hop_s))
        return Times(*columns)

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


def times_of(schedule: Schedule, order: ActionOrder) -> Times:
    """Those of a schedule, whose ops and tensors are named as the lowering names them. Raises `InputError`."""
    known = set(order.actions)
    found = Times(dict.fromkeys(order.actions, 0.0), {each: 0.0 for each in order.actions if order.link(each)})
    op_s, hop_s = dict(found.op_s), dict(found.hop_s)
    for event in schedule.events():
        length_s = event.end_s - event.start_s
        if event.kind is EventKind.COMPUTE:
            name = schedule.graph.ops[event.op].name
            if schedule.graph.ops[event.op].kind == "update":
                continue
            match = _NAME.fullmatch(name)
            action = match and _held(match[1], int(match[2]), int(match[3]), known)
            if not action:
                raise InputError(f"graph: op {name!r} must be named as F 0 0 is, and be one of the plan's order")
            op_s[action] += length_s
        elif event.kind is EventKind.TRANSFER:
            for tensor in event.moves:
                match = _MESSAGE.fullmatch(schedule.graph.tensor_name(tensor))
                action = match and _held(f"send {match[1]}", int(match[2]), int(match[3]), known)
                if action in hop_s:
                    hop_s[action] = length_s
    return Times(op_s, hop_s)


def _held(kind: str, stage: int, micro_batch: int, known: set[Action]) -> Action | None:
    """The action to which an op belongs; what is named by the hop goes from the stage behind it."""
    if kind in ("F", "send activation"):
        letters = "F"
    else:
        letters, stage = "W" if kind == "W" else "IB", stage + (kind == "encode" or kind.startswith("send"))
    found = (Action(stage, letter, micro_batch) for letter in letters)
    return next((action for action in found if action in known), None)


def step_s(order: ActionOrder, times: Times) -> float:
    """When all ranks are done, each action and message as early as the order allows; sums among replicas left out."""
    free_s, link_free_s = [0.0] * order.ranks, dict[tuple[int, int], float]()
    ready_s: dict[tuple[str, int, int], float] = {}  # when what a forward or a backward waits for is there
    posted_s: dict[Action, float] = {}
    for action, leaving in order.posts():
        rank, stage, m = order.rank_of_stage[action.stage], action.stage, action.micro_batch
        need = ("" if action.kind == "W" else "F" if action.kind == "F" else "B", stage, m)
        end_s = max(free_s[rank], ready_s.get(need, 0.0)) + times.op_s[action]
        free_s[rank] = posted_s[action] = end_s
        if action.kind != "W" and order.link(action) is None:
            ready_s[_user(action)] = end_s
        for sent in leaving:
            link = order.link(sent)
            assert link is not None, "what leaves goes to another rank"
            link_free_s[link] = max(posted_s[sent], link_free_s.get(link, 0.0)) + times.hop_s[sent]
            ready_s[_user(sent)] = link_free_s[link]
    return max(free_s)


def _user(action: Action) -> tuple[str, int, int]:
    """What waits for the message of an action."""
    if action.kind == "F":
        return "F", action.stage + 1, action.micro_batch
    return "B", action.stage - 1, action.micro_batch
