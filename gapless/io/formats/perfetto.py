"""Traces for ui.perfetto.dev and chrome://tracing: a schedule in the Trace Event Format (Chrome's JSON).

A process is a device. Its threads are its compute streams, its links out and its links in. A transfer is a slice on
both ends of its link, with a flow from send to receive; a collective has a flow from the event that made its input.
What takes no time is an instant. Counters: the live bytes of each device, as the replay has them, and how many of its
links are sending. Times are in microseconds, rounded to nanoseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gapless.checker.inspection import known_events, memory_steps
from gapless.checker.replay import replayed
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.ir.schedule import EventKind, Schedule

__all__ = ["trace_events", "trace_text", "write_perfetto"]

MOST_NAMED = 16
"""Tensors of a transfer that are named; the others are counted."""

_MOST_S = 2**53 * 1e-9

_FIRST_LINK = 2**20
"""Threads below are compute streams."""


def write_perfetto(
    path: str | Path, schedule: Schedule, device_names: Sequence[str] = (), about: Mapping[str, object] | None = None
) -> int:
    """Write a schedule as a trace, whole or not at all; returns the number of trace events.

    `device_names`: by device, `device 3` where empty. `about`: what else is to be known, in plain values.
    """
    events = trace_events(schedule, device_names)
    write_text(path, trace_text(events, about))
    return len(events)


def trace_text(events: Sequence[Mapping[str, object]], about: Mapping[str, object] | None = None) -> str:
    """The trace as JSON, an event a line."""
    lines = ",\n".join(json.dumps(event, allow_nan=False) for event in events)
    head = json.dumps({"displayTimeUnit": "ns", "otherData": about or {}}, allow_nan=False)
    return f'{head[:-1]}, "traceEvents": [\n{lines}\n]}}\n'


def trace_events(schedule: Schedule, device_names: Sequence[str] = ()) -> list[dict[str, object]]:
    """The events of the trace: names first, then by time. Events that name unknown things are left out.

    Raises `InputError` for a schedule so long that a float can't hold its nanoseconds.
    """
    rows = _Rows(schedule)
    numbers = known_events(schedule).tolist()
    latest_s = float(schedule.end_s[numbers].max(initial=0.0))
    if latest_s > _MOST_S:
        raise InputError(f"schedule: must end within {_MOST_S:.4g} s for a trace in nanoseconds, got {latest_s:.4g} s")
    for number in numbers:
        if schedule.kind[number] == EventKind.TRANSFER:
            rows.transfer(number)
        else:
            rows.run(number)
    _add_collective_flows(rows, numbers)
    rows.events += _memory_counters(schedule)
    rows.events += _link_counters(schedule, np.array(numbers, dtype=np.int64))
    # A slice stands before those that it encloses, and a flow's start before its end.
    rows.events.sort(key=lambda event: (event["ts"], -cast("float", event.get("dur", 0.0)), event["ph"] == "f"))
    return [*_names(schedule, device_names, rows.threads), *rows.events]


@dataclass
class _Rows:
    """Trace events in the making, and the threads (process, thread) that they are on."""

    schedule: Schedule
    events: list[dict[str, object]] = field(default_factory=list)
    threads: set[tuple[int, int]] = field(default_factory=set)
    flows: int = 0

    def run(self, number: int) -> None:
        """An op on a compute stream."""
        schedule = self.schedule
        op = schedule.graph.ops[int(schedule.op[number])]
        implementation = op.implementations[int(schedule.implementation[number])]
        device, thread = _stream(schedule, int(schedule.place[number]))
        arguments = {
            "event": number,
            "implementation": implementation.name or "default",
            "workspace_bytes": implementation.workspace_bytes,
        }
        self._slice(device, thread, number, op.name, op.kind, arguments)

    def transfer(self, number: int) -> None:
        """A send and a receive, with a flow between them if they take any time."""
        schedule, graph = self.schedule, self.schedule.graph
        place = int(schedule.place[number])
        link, moves = schedule.topology.links[place], schedule.moves[number]
        names = [graph.tensor_name(tensor) for tensor in moves[:MOST_NAMED].tolist()]
        more = [f"and {len(moves) - MOST_NAMED} more"] if len(moves) > MOST_NAMED else []
        arguments = {"event": number, "bytes": int(graph.size_bytes[moves].sum()), "tensors": [*names, *more]}
        title = names[0] + (f" +{len(moves) - 1}" if len(moves) > 1 else "")
        kind = "reduce" if schedule.reduces[number] else "transfer"
        send, receive = _FIRST_LINK + 2 * place, _FIRST_LINK + 2 * place + 1
        self._slice(link.source, send, number, f"send {title}", kind, arguments)
        self._slice(link.target, receive, number, f"receive {title}", kind, arguments)
        if _dur(schedule, number) > 0:
            self.flow((link.source, send), (link.target, receive), number, number, kind)

    def flow(self, source: tuple[int, int], target: tuple[int, int], start: int, stop: int, kind: str) -> None:
        """An arrow from the slice of event `start` to that of event `stop`."""
        ends = (("s", source, start), ("f", target, stop))
        for phase, (device, thread), number in ends:
            self.events.append({
                "ph": phase, "id": self.flows, "name": kind, "cat": "flow", "pid": _process(device), "tid": thread,
                "ts": _ts(float(self.schedule.start_s[number])), **({"bp": "e"} if phase == "f" else {}),
            })  # fmt: skip
        self.flows += 1

    def _slice(
        self, device: int, thread: int, number: int, name: str, kind: str, arguments: Mapping[str, object]
    ) -> None:
        dur = _dur(self.schedule, number)
        shape = {"ph": "X", "dur": dur} if dur > 0 else {"ph": "i", "s": "t"}
        self.threads.add((device, thread))
        self.events.append({
            **shape, "name": name, "cat": kind, "pid": _process(device), "tid": thread,
            "ts": _ts(float(self.schedule.start_s[number])), "args": arguments,
        })  # fmt: skip


def _process(device: int) -> int:
    return device + 1  # 0 is the idle process of the machine that traces


def _stream(schedule: Schedule, engine: int) -> tuple[int, int]:
    """Device and thread of a compute stream."""
    return schedule.topology.engines[engine][0], engine + 1


def _ts(time_s: float) -> float:
    return round(max(time_s, 0.0) * 1e9) / 1e3


def _dur(schedule: Schedule, number: int) -> float:
    """From rounded start to rounded end, so that what touches still touches."""
    start, end = float(schedule.start_s[number]), float(schedule.end_s[number])
    return max(round(max(end, 0.0) * 1e9) - round(max(start, 0.0) * 1e9), 0) / 1e3


def _add_collective_flows(rows: _Rows, numbers: list[int]) -> None:
    """From the last event that wrote an input of a collective on its device, if another stream ran it."""
    schedule = rows.schedule
    written: dict[tuple[int, int], int] = {}
    for number in sorted(numbers, key=lambda number: float(schedule.end_s[number])):
        if schedule.kind[number] == EventKind.TRANSFER:
            continue
        op = schedule.graph.ops[int(schedule.op[number])]
        device, thread = _stream(schedule, int(schedule.place[number]))
        if schedule.kind[number] == EventKind.COLLECTIVE and _dur(schedule, number) > 0:
            makers = {written.get((tensor, device)) for tensor in op.reads(int(schedule.implementation[number]))}
            for maker in sorted(maker for maker in makers if maker is not None):
                source = _stream(schedule, int(schedule.place[maker]))
                if source[1] != thread and _dur(schedule, maker) > 0:
                    rows.flow(source, (device, thread), maker, number, "collective")
        written.update(((tensor, device), number) for tensor in op.outputs)


def _memory_counters(schedule: Schedule) -> Iterator[dict[str, object]]:
    """The live bytes of each device, where they change; of several levels at one time a peak, then the last."""
    for device, steps in enumerate(memory_steps(replayed(schedule))):
        levels: dict[float, list[int]] = {}
        for time_s, live_bytes in zip(steps.time_s.tolist(), steps.live_bytes.tolist(), strict=True):
            levels.setdefault(_ts(time_s), []).append(live_bytes)
        before = 0
        for ts, passed in levels.items():
            if max(passed) > max(before, passed[-1]):
                yield _counter(device, "memory", ts, {"bytes": max(passed)})
            yield _counter(device, "memory", ts, {"bytes": passed[-1]})
            before = passed[-1]


def _link_counters(schedule: Schedule, numbers: NDArray[np.int64]) -> Iterator[dict[str, object]]:
    """How many links out of each device are in use, where that changes."""
    sends = numbers[schedule.is_transfer[numbers]]
    sends = sends[schedule.end_s[sends] > schedule.start_s[sends]]
    source = schedule.topology.link_source[schedule.place[sends]]
    for device in np.unique(source).tolist():
        mine = sends[source == device]
        change: dict[float, int] = {0.0: 0}
        for time_s, step in ((schedule.start_s, 1), (schedule.end_s, -1)):
            for ts in map(_ts, time_s[mine].tolist()):
                change[ts] = change.get(ts, 0) + step
        count = 0
        for ts in sorted(change):
            count += change[ts]
            yield _counter(device, "links sending", ts, {"links": count})


def _counter(device: int, name: str, ts: float, values: dict[str, int]) -> dict[str, object]:
    return {"ph": "C", "name": name, "pid": _process(device), "tid": 0, "ts": ts, "args": values}


def _names(
    schedule: Schedule, device_names: Sequence[str], threads: set[tuple[int, int]]
) -> Iterator[dict[str, object]]:
    """What processes and threads are called, and the order in which they stand."""
    topology = schedule.topology
    titles = list(device_names) or [f"device {device}" for device in range(topology.device_count)]
    for device, title in enumerate(titles):
        yield _metadata("process_name", device, 0, {"name": title})
        yield _metadata("process_sort_index", device, 0, {"sort_index": device})
    for device, thread in sorted(threads):
        if thread < _FIRST_LINK:
            name = topology.engines[thread - 1][1]
        else:
            link = topology.links[(thread - _FIRST_LINK) // 2]
            is_receive = (thread - _FIRST_LINK) % 2
            name = f"receive from {titles[link.source]}" if is_receive else f"send to {titles[link.target]}"
        yield _metadata("thread_name", device, thread, {"name": name})
        yield _metadata("thread_sort_index", device, thread, {"sort_index": thread})


def _metadata(name: str, device: int, thread: int, values: Mapping[str, object]) -> dict[str, object]:
    return {"ph": "M", "name": name, "pid": _process(device), "tid": thread, "ts": 0, "args": values}
