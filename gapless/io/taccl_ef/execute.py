"""The order in which a TACCL-EF program's steps run, or where it gets stuck.

What runs when does not depend on the data, so this is a walk over steps alone. Every thread block is a process. A
connection is a queue of messages: a send waits while it is full, a receive while it is empty. Since each queue has one
writer and one reader and a dependency never comes undone, whether the program gets stuck does not depend on the order
in which ready blocks are taken; where a connection holds at least one message, it follows from what waits for what,
which columns.py has as arrays. The same holds for the runtimes' loop over slices: running slice after slice is one of
the possible orders, so a program that ends once ends for any number of slices.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from gapless.io.taccl_ef.columns import Columns, Flags, rounds_of
from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.program import RECEIVING, SENDING, Problem

__all__ = ["Execution", "execute"]

SHOWN = 8
"""Steps of a cycle that a message names."""


@dataclass(frozen=True)
class Execution:
    """The flat numbers of the steps in the order in which they ran, and one problem for each block that is stuck."""

    trace: list[int]
    problems: tuple[Problem, ...]


def execute(flat: Flat, columns: Columns, nchannels: int, slots: int, order: int | None) -> Execution:
    """Run to the end, or until nothing moves.

    `slots`: messages that a connection holds. With 0 a send starts only when the other side stands at the receive: the
    worst that cutting a step of several chunks into pieces can do. Connections on channels from `nchannels` on are
    never set up. `order`: None takes the blocks in turn, each as far as it goes; a number seeds a random interleaving.
    """
    if slots and order is None:
        rounds = rounds_of(flat, columns, slots, _never(flat, columns, nchannels))
        if rounds.all():
            return Execution(np.argsort(rounds, kind="stable").tolist(), ())
    machine = _Machine(flat, nchannels, slots)
    machine.run(None if order is None else random.Random(order))
    return Execution(machine.trace, tuple(machine.stuck()))


def _never(flat: Flat, columns: Columns, nchannels: int) -> Flags:
    """Steps that wait for what never signals, or send where nothing is set up."""
    awaited = np.array(flat.awaited, dtype=np.int64)
    signals = np.array([step.hasdep for step in flat.steps])
    is_set_up = np.array([channel < nchannels for _, _, channel in flat.connections] or [True])
    sends_in_vain = columns.sends & ~is_set_up[np.array(flat.outgoing, dtype=np.int64)[columns.block]]
    never: Flags = sends_in_vain | ((awaited >= 0) & ~signals[awaited]) | (columns.receives & (columns.sent_by < 0))
    return never


class _Machine:
    """The state of the walk: where each block is, what is in flight, who is to be looked at again."""

    def __init__(self, flat: Flat, nchannels: int, slots: int) -> None:
        self.flat, self.slots = flat, slots
        self.at = flat.first[:-1].copy()
        self.done = bytearray(len(flat.steps))
        self.in_flight = [0] * len(flat.connections)
        self.is_set_up = [channel < nchannels for _, _, channel in flat.connections]
        self.waiting: dict[int, list[int]] = {}
        self.announced = [-1] * len(flat.place)
        self.trace: list[int] = []
        self.ready = deque(range(len(flat.place)))
        self.is_ready = bytearray(b"\1" * len(flat.place))

    def run(self, rng: random.Random | None) -> None:
        while self.ready:
            if rng is not None:
                self.ready.rotate(rng.randrange(len(self.ready)))
            block = self.ready.popleft()
            self.is_ready[block] = 0
            while self.at[block] < self.flat.first[block + 1]:
                reason, _ = self.obstacle(block)
                if reason:
                    self.wait(block)
                    break
                self.step(block)
                if rng is not None:
                    self.wake(block)
                    break

    def obstacle(self, block: int) -> tuple[str, int]:
        """Why the block's next step can't run, and the block that it waits for (-1 for none); no reason if it can."""
        number = self.at[block]
        step, target = self.flat.steps[number], self.flat.awaited[number]
        if target >= 0 and not (self.done[target] and self.flat.steps[target].hasdep):
            silent = "" if self.flat.steps[target].hasdep else ", which signals no one (hasdep is 0)"
            return f"waits for {self.flat.name(target)}{silent}", self.flat.owner[target]
        connection = self.flat.incoming[block]
        if step.type in RECEIVING and not self.in_flight[connection]:
            return self.reason("to receive from", connection, 0), self.flat.sender[connection]
        if step.type in SENDING:
            connection = self.flat.outgoing[block]
            other = self.flat.receiver[connection] if self.is_set_up[connection] else -1
            if not self.is_set_up[connection] or not self.has_room(connection, other):
                return self.reason("to send to", connection, 1), other
        return "", -1

    def reason(self, action: str, connection: int, side: int) -> str:
        channel = self.flat.connections[connection][2]
        unset = "" if self.is_set_up[connection] else ", which nchannels leaves out"
        return f"waits {action} gpu {self.flat.connections[connection][side]} on chan {channel}{unset}"

    def has_room(self, connection: int, receiver: int) -> bool:
        if self.slots:
            return self.in_flight[connection] < self.slots
        if receiver < 0 or self.in_flight[connection] or self.at[receiver] == self.flat.first[receiver + 1]:
            return False
        number = self.at[receiver]
        target = self.flat.awaited[number]
        return self.flat.steps[number].type in RECEIVING and (target < 0 or bool(self.done[target]))

    def wait(self, block: int) -> None:
        """Note which step wakes the block; the two sides of a connection wake each other anyway."""
        number = self.at[block]
        target = self.flat.awaited[number]
        if target >= 0 and not self.done[target]:
            self.waiting.setdefault(target, []).append(block)
        elif not self.slots and self.flat.steps[number].type in RECEIVING and self.announced[block] != number:
            # Without slots the sender waits for the receiver's arrival, not only for its receive.
            self.announced[block] = number
            self.wake(self.flat.sender[self.flat.incoming[block]])

    def step(self, block: int) -> None:
        number = self.at[block]
        kind = self.flat.steps[number].type
        if kind in RECEIVING:
            self.in_flight[self.flat.incoming[block]] -= 1
            self.wake(self.flat.sender[self.flat.incoming[block]])
        if kind in SENDING:
            self.in_flight[self.flat.outgoing[block]] += 1
            self.wake(self.flat.receiver[self.flat.outgoing[block]])
        self.trace.append(number)
        self.done[number] = 1
        self.at[block] += 1
        for other in self.waiting.pop(number, ()):
            self.wake(other)

    def wake(self, block: int) -> None:
        if block >= 0 and not self.is_ready[block]:
            self.is_ready[block] = 1
            self.ready.append(block)

    def stuck(self) -> list[Problem]:
        """A problem for each block that has steps left, and one for a cycle among them."""
        flat, problems, target = self.flat, list[Problem](), dict[int, int]()
        for block in range(len(flat.place)):
            if self.at[block] < flat.first[block + 1]:
                reason, target[block] = self.obstacle(block)
                problems.append(Problem("deadlock", f"{reason} for ever", *flat.where(self.at[block])))
        seen: dict[int, int] = {}
        for start in target:
            path: list[int] = []
            at = start
            while at in target and at not in seen:
                seen[at] = start
                path.append(at)
                at = target[at]
            if seen.get(at) == start and at in path:
                cycle = path[path.index(at) :]
                names = [flat.name(self.at[block]) for block in cycle[:SHOWN]] + ["..."] * (len(cycle) > SHOWN)
                message = f"{len(cycle)} blocks wait for each other: {' <- '.join(names)}"
                problems.append(Problem("deadlock-cycle", message, *flat.where(self.at[cycle[0]])))
                break
        return problems
