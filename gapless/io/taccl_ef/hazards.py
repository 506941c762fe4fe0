"""What each step of a lowered program must wait for: the steps that wrote what it reads or use what it overwrites."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from gapless.io.taccl_ef.buffers import Allocation, Copy, Message, Place

__all__ = ["COPY", "RECEIVE", "SEND", "Access", "Needs", "find_needs"]

SEND, RECEIVE, COPY = range(3)


class Access(NamedTuple):
    """One side of a message, or a copy, of one instance: `number` counts messages, or copies of a rank."""

    kind: int
    rank: int
    number: int
    instance: int


@dataclass
class Needs:
    """By number and instance, what sends, receives and (by rank) copies wait for, each list sorted.

    `uses[m, k]`: the steps that read what instance k of message m left at its target, in order, before anything else is
    written there. `kept`: the (message, instance) whose result, or part of it, is there in the end as an output,
    where there are sums.
    """

    send: list[list[list[Access]]] = field(default_factory=list)
    receive: list[list[list[Access]]] = field(default_factory=list)
    copy: list[list[list[list[Access]]]] = field(default_factory=list)
    uses: dict[tuple[int, int], list[Access]] = field(default_factory=dict)
    kept: set[tuple[int, int]] = field(default_factory=set)


def find_needs(allocation: Allocation, instances: int) -> Needs:
    """Walk through messages and copies in order and keep who wrote and who read each chunk's parts last."""
    walk = _Walk(allocation, instances)
    for number, message in enumerate(allocation.messages):
        walk.message(number, message)
    for rank, copies in enumerate(allocation.copies):
        walk.needs.copy.append([walk.copy(rank, number, copy) for number, copy in enumerate(copies)])
    if any(message.adds_to is not None for message in allocation.messages):
        walk.keep()
    return walk.needs


_Cell = tuple[int, str, int]


class _Walk:
    def __init__(self, allocation: Allocation, instances: int) -> None:
        self.allocation, self.instances = allocation, instances
        self.needs = Needs()
        self.writer: dict[_Cell, Access] = {}
        self.readers: dict[_Cell, list[Access]] = {}

    def cells(self, rank: int, place: Place, count: int, instance: int) -> list[_Cell]:
        """The parts of a run that an instance has, where they are in memory."""
        buffer, shift = self.allocation.alias[rank].get(place[0], (place[0], 0))
        start = (place[1] + shift) * self.instances + instance * count
        return [(rank, buffer, cell) for cell in range(start, start + count)]

    def message(self, number: int, message: Message) -> None:
        sends, receives = [], []
        for instance in range(self.instances):
            here = Access(SEND, message.source, number, instance)
            sends.append(sorted(set(self.read(here, message.read_at, message.count))))
        for instance in range(self.instances):
            here = Access(RECEIVE, message.target, number, instance)
            found = set()
            if message.adds_to is not None:
                found.update(self.read(here, message.adds_to, message.count))
            found.update(self.write(here, message.write_at, message.count))
            receives.append(sorted(found))
        self.needs.send.append(sends)
        self.needs.receive.append(receives)

    def copy(self, rank: int, number: int, copy: Copy) -> list[list[Access]]:
        source, target, count = copy
        found = []
        for instance in range(self.instances):
            here = Access(COPY, rank, number, instance)
            needed = set(self.read(here, source, count))
            # In place a copy from input to output stores what is there already, and that is no write.
            cells = (self.cells(rank, place, count, instance)[0] for place in (source, target))
            if len(set(cells)) == 2:
                needed.update(self.write(here, target, count))
            found.append(sorted(needed))
        return found

    def read(self, here: Access, place: Place, count: int) -> list[Access]:
        found = []
        for cell in self.cells(here.rank, place, count, here.instance):
            writer = self.writer.get(cell)
            if writer is not None:
                found.append(writer)
                if writer.kind == RECEIVE:
                    uses = self.needs.uses.setdefault((writer.number, writer.instance), [])
                    if here not in uses[-1:]:
                        uses.append(here)
            if self.allocation.overwrites:
                self.readers.setdefault(cell, []).append(here)
        return found

    def write(self, here: Access, place: Place, count: int) -> list[Access]:
        found = []
        for cell in self.cells(here.rank, place, count, here.instance):
            if self.allocation.overwrites:
                if cell in self.writer:
                    found.append(self.writer[cell])
                found += [reader for reader in self.readers.pop(cell, ()) if reader != here]
            self.writer[cell] = here
        return found

    def keep(self) -> None:
        """Note whose results are outputs."""
        wanted = {
            cell
            for rank, places in enumerate(self.allocation.outputs)
            for place in places
            for cell in self.cells(rank, place, self.instances, 0)
        }
        for cell, writer in self.writer.items():
            if cell in wanted and writer.kind == RECEIVE:
                self.needs.kept.add((writer.number, writer.instance))
