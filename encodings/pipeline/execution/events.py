"""To which action of a plan's order the events of its schedule belong, by the names that the lowering gives ops."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action
from gapless.ir.schedule import Event, EventKind, Schedule

__all__ = ["action_of", "held_events"]

_NAME = re.compile(r"(F|I|B|W|R|A|encode|decode|send .*) (\d+) (\d+)")


def held_events(schedule: Schedule, known: set[Action]) -> Iterator[tuple[Action, Event]]:
    """What is computed, by the action of the plan's order to which it belongs. Raises `InputError` for what is none's.

    Ops are named as the lowering names them; updates of weights belong to no action.
    """
    for event in schedule.events():
        if event.kind is not EventKind.COMPUTE or schedule.graph.ops[event.op].kind == "update":
            continue
        name = schedule.graph.ops[event.op].name
        match = _NAME.fullmatch(name)
        action = match and action_of(match[1], int(match[2]), int(match[3]), known)
        if not action:
            raise InputError(f"graph: op {name!r} must be named as F 0 0 is, and be one of the plan's order")
        yield action, event


def action_of(kind: str, stage: int, micro_batch: int, known: set[Action]) -> Action | None:
    """The action to which an op belongs; what is named by the hop goes from the stage behind it."""
    if kind in ("F", "send activation"):
        letters = "F"
    else:
        letters, stage = "W" if kind == "W" else "IB", stage + (kind == "encode" or kind.startswith("send"))
    found = (Action(stage, letter, micro_batch) for letter in letters)
    return next((action for action in found if action in known), None)
