"""Steps: what each rank does in a plan, message by message, and what must be over before it may.

Nothing but order is left of the plan's times. A rank may send a chunk once all that reaches it before, in the plan, has
been taken in, and may take in what arrives once the chunk was sent on as often as the plan does before. Transfers of
different ranks that share a resource (a NIC, a bus) wait for each other, so that two at most are on it: who received
the one before the last hands on a token.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

import numpy as np

from gapless.ir.schedule import Schedule
from gapless.ir.switch_ops import refuse_switch_ops

__all__ = ["Step", "steps_of"]

_AT_ONCE = 2
"""Messages that may be on a shared resource: with one alone it would be idle while a token is passed on."""


@dataclass(frozen=True)
class Step:
    """One end of a message, to or from `peer`; without `chunks` it is a token.

    `message`: its number, the same at both ends; what goes from one rank to another goes in this order. `needs`: the
    places, in the rank's list, of the steps that must be over before this one is sent, or is taken in. `reduces`: what
    arrives is added to what the rank has of it.
    """

    message: int
    sends: bool
    peer: int
    chunks: tuple[int, ...]
    needs: tuple[int, ...]
    reduces: bool = False


@dataclass(frozen=True, order=True)
class _Moment:
    """A time of the plan: what ends at an instant ends before anything starts."""

    time_s: float
    is_start: bool
    place: int


@dataclass(frozen=True)
class _Message:
    """`sent`, `taken`: the moments of its two ends. `row`: of the schedule. `turn`: the row that a token is for."""

    sent: _Moment
    taken: _Moment
    source: int
    target: int
    row: int
    turn: int | None = None


def steps_of(schedule: Schedule, tokens: bool = True) -> list[list[Step]]:
    """The steps of every rank, in the order of the plan. `tokens`: whether shared resources are taken in turn."""
    refuse_switch_ops(schedule.switch_ops, "run")
    messages = sorted(_messages(schedule, tokens), key=lambda message: (message.sent, message.target))
    ends = [(message.sent, True, number) for number, message in enumerate(messages)]
    ends += [(message.taken, False, number) for number, message in enumerate(messages)]
    ranks = [_Rank() for _ in range(schedule.topology.device_count)]
    # What arrives at an instant is there before the token that says so is sent.
    for _, sends, number in sorted(
        ends, key=lambda end: (end[0], messages[end[2]].turn is not None, not end[1], end[2])
    ):
        message = messages[number]
        rank = ranks[message.source if sends else message.target]
        rank.add(number, message, sends, schedule)
    return [rank.steps for rank in ranks]


def _messages(schedule: Schedule, tokens: bool) -> list[_Message]:
    topology = schedule.topology
    found, last = list[_Message](), defaultdict[int, deque[_Message]](lambda: deque(maxlen=_AT_ONCE))
    for place, row in enumerate(np.argsort(schedule.start_s, kind="stable").tolist()):
        link = int(schedule.place[row])
        sent, taken = (
            _Moment(float(schedule.start_s[row]), True, place), _Moment(float(schedule.end_s[row]), False, place)
        )  # fmt: skip
        message = _Message(sent, taken, int(topology.link_source[link]), int(topology.link_target[link]), row)
        held = topology.held[topology.held_start[link] : topology.held_start[link + 1]].tolist()
        before = {last[resource][0].row: last[resource][0] for resource in held if len(last[resource]) == _AT_ONCE}
        for resource in held:
            last[resource].append(message)
        found.append(message)
        for other in before.values() if tokens else ():
            if message.source not in (other.source, other.target):
                found.append(_Message(other.taken, other.taken, other.target, message.source, other.row, row))
    return found


@dataclass
class _Rank:
    """A rank's steps so far, with the places of those that later ones may have to wait for."""

    steps: list[Step] = field(default_factory=list)
    taken: dict[int, int] = field(default_factory=dict)
    """By chunk: the step that took it in last."""
    sent: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By chunk: the steps that sent it since."""
    received: dict[int, int] = field(default_factory=dict)
    """By row of the schedule."""
    turns: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By row of the schedule: the tokens for it."""

    def add(self, number: int, message: _Message, sends: bool, schedule: Schedule) -> None:
        """One end of a message."""
        place, peer = len(self.steps), message.target if sends else message.source
        if message.turn is not None:
            if not sends:
                self.turns[message.turn].append(place)
            needs = (self.received[message.row],) if sends else ()
            self.steps.append(Step(number, sends, peer, (), needs))
            return
        chunks = schedule.moves[message.row].tolist()
        waits = {self.taken[chunk] for chunk in chunks if chunk in self.taken}
        if sends:
            waits.update(self.turns[message.row])
            for chunk in chunks:
                self.sent[chunk].append(place)
        else:
            self.received[message.row] = place
            for chunk in chunks:
                waits.update(self.sent.pop(chunk, ()))
                self.taken[chunk] = place
        reduces = bool(schedule.reduces[message.row])
        self.steps.append(Step(number, sends, peer, tuple(chunks), tuple(sorted(waits)), reduces))
