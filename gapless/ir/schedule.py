"""Schedule: what happens where and when, in columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.ir.graph import Graph
from gapless.ir.switch_ops import SwitchOps
from gapless.report.short_repr import one_line
from gapless.topologies.topology import Topology

__all__ = ["Event", "EventKind", "Ragged", "Schedule", "event_records", "schedule_from_events"]


class EventKind(IntEnum):
    """What an event is. Compute and collective run an op on an engine; a transfer moves tensors over a link."""

    COMPUTE = 0
    TRANSFER = 1
    COLLECTIVE = 2


@dataclass(frozen=True)
class Ragged:
    """Lists of different lengths in two int64 arrays (CSR): list i is `values[start[i]:start[i + 1]]`.

    `start` has one entry more than there are lists, from 0 to `len(values)`.
    """

    start: NDArray[np.int64]
    values: NDArray[np.int64]

    @classmethod
    def of(cls, lists: Iterable[Sequence[int]]) -> Ragged:
        """From a list of lists."""
        lists = [list(part) for part in lists]
        start = np.zeros(len(lists) + 1, dtype=np.int64)
        np.cumsum([len(part) for part in lists], out=start[1:])
        return cls(start, np.array([value for part in lists for value in part], dtype=np.int64))

    @classmethod
    def empty(cls, count: int) -> Ragged:
        """`count` empty lists."""
        return cls(np.zeros(count + 1, dtype=np.int64), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def __getitem__(self, number: int) -> NDArray[np.int64]:
        return self.values[self.start[number] : self.start[number + 1]]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Length of each list, int64."""
        return np.diff(self.start)

    @property
    def owner(self) -> NDArray[np.int64]:
        """The number of the list that each value is in, int64."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, numbers: NDArray[np.int64]) -> Ragged:
        """The lists with these numbers, in this order."""
        lengths = self.lengths[numbers]
        start = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(lengths, out=start[1:])
        offsets = np.arange(start[-1]) - np.repeat(start[:-1], lengths)
        return Ragged(start, self.values[np.repeat(self.start[numbers], lengths) + offsets])


@dataclass(frozen=True)
class Event:
    """One row of a schedule, for people and tests; `Schedule` holds the columns.

    `place` is an engine (compute, collective) or a link (transfer). `moves` are the tensors of a transfer. `reduces`
    says that a transfer adds to the target's copy instead of replacing it. `frees` are (tensor, device) pairs that go
    at the event's end.
    """

    kind: EventKind
    start_s: float
    end_s: float
    place: int
    op: int = -1
    implementation: int = 0
    moves: tuple[int, ...] = ()
    reduces: bool = False
    frees: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, repr=False)
class Schedule:
    """A graph, a topology, and events in columns, each of length n.

    `kind`: int64 of `EventKind`. `start_s`, `end_s`: float. `place`: engine or link. `op`, `implementation`: int64, -1
    for transfers. `reduces`: bool. `moves`: the tensors that a transfer moves. `freed_tensor`, `freed_device`: copies
    that go at the event's end. What a compute event reads and writes is what its op in the graph says.
    `switch_ops`: which transfers are one operation of a switch; None where none is.

    Events at the same instant happen in the order in which they are listed, except that what ends at an instant ends
    before anything starts. Raises `InputError` where columns differ in length or type, or a time is not finite.
    """

    graph: Graph
    topology: Topology
    kind: NDArray[np.int64]
    start_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    place: NDArray[np.int64]
    op: NDArray[np.int64]
    implementation: NDArray[np.int64]
    reduces: NDArray[np.bool_]
    moves: Ragged
    freed_tensor: Ragged
    freed_device: Ragged
    name: str = field(default="", compare=False)
    switch_ops: SwitchOps | None = None

    def __post_init__(self) -> None:
        numbers, lists = ("place", "op", "implementation"), ("moves", "freed_tensor", "freed_device")
        for title in ("start_s", "end_s", "reduces", *numbers, *lists):
            length = len(getattr(self, title))
            if length != len(self.kind):
                raise InputError(f"schedule: column {title} must have {len(self.kind)} rows, as kind has, got {length}")
        for title in ("kind", *numbers):
            object.__setattr__(self, title, _as_int64(title, getattr(self, title)))
        for title in lists:
            part = getattr(self, title)
            if part.start[0] != 0 or part.start[-1] != len(part.values) or (part.lengths < 0).any():
                raise InputError(f"schedule: column {title} must cut all of its {len(part.values)} values into lists")
            object.__setattr__(self, title, Ragged(part.start, _as_int64(title, part.values)))
        for title in ("start_s", "end_s"):
            if not np.isfinite(getattr(self, title)).all():
                raise InputError(f"schedule: column {title} must be finite numbers")
        if not np.array_equal(self.freed_tensor.start, self.freed_device.start):
            raise InputError("schedule: freed_tensor and freed_device must list the same number of copies per event")
        if self.switch_ops is not None and len(self.switch_ops.of_event) != len(self.kind):
            got = len(self.switch_ops.of_event)
            raise InputError(f"schedule: switch_ops: of_event must have {len(self.kind)} rows, as kind has, got {got}")

    def __repr__(self) -> str:
        kinds = [f"{int(count)} {kind.name.lower()}" for kind in EventKind if (count := (self.kind == kind).sum())]
        return f"<{one_line(f'schedule on {self.topology.name}: {len(self)} events', 120)} ({', '.join(kinds)})>"

    def __len__(self) -> int:
        return len(self.kind)

    def event(self, number: int) -> Event:
        """Row `number`, for people."""
        freed = zip(self.freed_tensor[number].tolist(), self.freed_device[number].tolist(), strict=True)
        return Event(
            kind=EventKind(int(self.kind[number])),
            start_s=float(self.start_s[number]),
            end_s=float(self.end_s[number]),
            place=int(self.place[number]),
            op=int(self.op[number]),
            implementation=int(self.implementation[number]),
            moves=tuple(self.moves[number].tolist()),
            reduces=bool(self.reduces[number]),
            frees=tuple(freed),
        )

    def events(self) -> Iterator[Event]:
        """All rows, in the order of the columns."""
        return (self.event(number) for number in range(len(self)))

    @property
    def span_s(self) -> float:
        """The longest of a device or a link, in seconds: from the start of its first event to the end of its last.

        Where all is done again and again, and nobody waits for anything but data, each time takes so long.
        """
        owner, devices = np.array([device for device, _ in self.topology.engines], np.int64), self.topology.device_count
        transfers, place = self.is_transfer, self.place
        machine = np.where(transfers, devices + place, owner[np.where(transfers, 0, place)] if len(owner) else 0)
        first_s, last_s = (np.full(devices + len(self.topology.links), side) for side in (np.inf, -np.inf))
        np.minimum.at(first_s, machine, self.start_s)
        np.maximum.at(last_s, machine, self.end_s)
        return float((last_s - first_s).max(initial=0.0))

    @property
    def is_transfer(self) -> NDArray[np.bool_]:
        """Whether each event is a transfer, bool."""
        return np.asarray(self.kind == EventKind.TRANSFER)


def _as_int64(title: str, values: NDArray[np.generic]) -> NDArray[np.int64]:
    """The numbers as int64: narrower ones overflow when ids are combined."""
    if not np.issubdtype(values.dtype, np.integer):
        raise InputError(f"schedule: column {title} must hold integers, got {values.dtype}")
    return values.astype(np.int64, copy=False)


def schedule_from_events(graph: Graph, topology: Topology, events: Iterable[Event], name: str = "") -> Schedule:
    """The columns of a list of events."""
    rows = list(events)
    return Schedule(
        graph=graph,
        topology=topology,
        kind=np.array([row.kind for row in rows], dtype=np.int64),
        start_s=np.array([row.start_s for row in rows], dtype=np.float64),
        end_s=np.array([row.end_s for row in rows], dtype=np.float64),
        place=np.array([row.place for row in rows], dtype=np.int64),
        op=np.array([row.op for row in rows], dtype=np.int64),
        implementation=np.array([row.implementation for row in rows], dtype=np.int64),
        reduces=np.array([row.reduces for row in rows], dtype=np.bool_),
        moves=Ragged.of(row.moves for row in rows),
        freed_tensor=Ragged.of([tensor for tensor, _ in row.frees] for row in rows),
        freed_device=Ragged.of([device for _, device in row.frees] for row in rows),
        name=name,
    )


def event_records(schedule: Schedule) -> list[dict[str, object]]:
    """A dictionary for each event, in the order of the schedule.

    `kind`: compute, transfer or collective. `start_s`, `end_s`. `what`: the op, or the tensors that move. `where`: the
    engine's device and name, or the link. `implementation`: of the op, None for transfers. `reduces`: whether what
    moves is added to what is there.
    """
    topology, graph = schedule.topology, schedule.graph
    records = []
    for event in schedule.events():
        moves = event.kind is EventKind.TRANSFER
        tensors = ", ".join(graph.tensor_name(tensor) for tensor in event.moves)
        engine = "" if moves else "{}.{}".format(*topology.engines[event.place])
        records.append({
            "kind": event.kind.name.lower(),
            "start_s": event.start_s,
            "end_s": event.end_s,
            "what": tensors if moves else graph.ops[event.op].name,
            "where": topology.link_name(event.place) if moves else engine,
            "implementation": None if moves else event.implementation,
            "reduces": event.reduces,
        })  # fmt: skip
    return records
