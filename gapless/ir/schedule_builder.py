"""A schedule in the making: tensors, ops, events, what lies where at first, and what must at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np

from gapless.checker.timeline import instants_of, tolerance_s
from gapless.ir.graph import Budget, Graph, Implementation, Op, Placement
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Topology

__all__ = ["ScheduleBuilder", "by_start", "no_collection"]

Copy = tuple[int, int]
"""A tensor and the device that it is on."""


@dataclass
class ScheduleBuilder:
    """What a lowering appends to. An event is appended after those that it depends on.

    `initial`, `required`: copies with the contributions that they hold, as bits, which mean something where values are
    combinations of contributions (`counts_contributions`).
    """

    counts_contributions: bool = False

    names: list[str] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    initial: list[tuple[int, int, int]] = field(default_factory=list)
    required: list[tuple[int, int, int]] = field(default_factory=list)

    def tensor(self, name: str, size_bytes: float = 0) -> int:
        """A new tensor; its number."""
        self.names.append(name)
        self.size_bytes.append(int(size_bytes))
        return len(self.names) - 1

    def tensors(self, names: Sequence[str], size_bytes: Sequence[int]) -> None:
        """New tensors, many at once; theirs are the next numbers."""
        self.names.extend(names)
        self.size_bytes.extend(size_bytes)

    def run(
        self, op: Op, engine: int, start_s: float, end_s: float, frees: Iterable[Copy] = (),
        kind: EventKind = EventKind.COMPUTE,
    ) -> None:  # fmt: skip
        """An op, and the event that runs it on an engine."""
        self.ops.append(op)
        self.events.append(Event(kind, start_s, end_s, engine, len(self.ops) - 1, frees=tuple(frees)))

    def compute(
        self, name: str, kind: str, engine: int, start_s: float, duration_s: float, reads: Iterable[int],
        writes: Iterable[int], frees: Iterable[Copy] = (), *, spends: tuple[tuple[int, float], ...] = (),
        mode: str = "", event: EventKind = EventKind.COMPUTE, adds: int | None = None, updates: tuple[int, ...] = (),
    ) -> float:  # fmt: skip
        """An op with a single implementation, and the event that runs it; when it is over."""
        implementation = Implementation(duration_s, name=mode, spends=spends)
        op = Op(name, tuple(reads), tuple(writes), (implementation,), kind, adds, updates=updates)
        self.run(op, engine, start_s, start_s + duration_s, frees, event)
        return start_s + duration_s

    def move(
        self, link: int, tensors: Sequence[int], start_s: float, duration_s: float = 0.0, freed_on: Iterable[int] = ()
    ) -> None:
        """Tensors over a link, in one event; nothing where there are none. `freed_on`: who has them no more."""
        if len(tensors):
            frees = tuple((tensor, device) for device in freed_on for tensor in tensors)
            end_s = start_s + duration_s
            self.events.append(Event(EventKind.TRANSFER, start_s, end_s, link, moves=tuple(tensors), frees=frees))

    def free(self, tensors: Iterable[int], device: int, after: int) -> None:
        """Whichever event ends last, of those from number `after` on, frees them on a device."""
        last = max(range(after, len(self.events)), key=lambda number: (self.events[number].end_s, number), default=None)
        if last is not None:
            frees = (*self.events[last].frees, *((tensor, device) for tensor in tensors))
            self.events[last] = replace(self.events[last], frees=frees)

    def graph(self, budgets: tuple[Budget, ...] = ()) -> Graph:
        """The graph of all tensors and ops."""
        initial, required = (self._placement(copies) for copies in (self.initial, self.required))
        sizes = np.array(self.size_bytes, dtype=np.int64)
        return Graph(sizes, tuple(self.ops), initial, required, tuple(self.names), budgets)

    def schedule(
        self, topology: Topology, name: str, budgets: tuple[Budget, ...] = (), *, as_listed: bool = False
    ) -> Schedule:
        """All of it, in the order of starts, of one instant what takes no time first; or in the order of the list."""
        events = self.events if as_listed else by_start(self.events)
        return schedule_from_events(self.graph(budgets), topology, events, name)

    def _placement(self, copies: list[tuple[int, int, int]]) -> Placement:
        bits = [copy[2] for copy in copies] if self.counts_contributions else None
        return Placement.of([copy[:2] for copy in copies], bits)


def by_start(program: Sequence[Event]) -> list[Event]:
    """The events in order of their starts; of those that the checker sees start at one instant, first what takes no
    time, as the program lists it, then what goes on, which nothing of that instant waits for.

    A program lists each event after those that it depends on: that write what it reads, use what it frees, or hold what
    it holds. Times that differ by a rounding error don't count.
    """
    start_s, end_s = (np.array([getattr(event, name) for event in program]) for name in ("start_s", "end_s"))
    starts, ends = np.split(instants_of(np.concatenate([start_s, end_s]), tolerance_s(end_s)), 2)
    order = np.lexsort((ends > starts, starts))
    return [program[number] for number in order.tolist()]


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the search for garbage: what a lowering makes lives to its end, and a third of its time is the search."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
