"""The rules of the Trace Event Format that a trace must keep to load in its viewers."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import Any

_NEEDED = {
    "X": {"name", "cat", "pid", "tid", "ts", "dur"},
    "i": {"name", "cat", "pid", "tid", "ts", "s"},
    "C": {"name", "pid", "ts", "args"},
    "M": {"name", "pid", "tid", "args"},
    "s": {"name", "cat", "id", "pid", "tid", "ts"},
    "f": {"name", "cat", "id", "pid", "tid", "ts", "bp"},
}


def faults(trace: dict[str, Any]) -> list[str]:
    """What is wrong with a trace, nothing if it is well-formed."""
    events = trace["traceEvents"]
    found = [f"event {number}: {fault}" for number, event in enumerate(events) for fault in _event_faults(event)]
    if found:
        return found
    timed = [event for event in events if event["ph"] != "M"]
    if any(first["ts"] > second["ts"] for first, second in itertools.pairwise(timed)):
        found.append("events are not in order of time")
    return found + _unnamed(events) + _badly_nested(events) + _loose_flows(events)


def _event_faults(event: dict[str, Any]) -> list[str]:
    phase = event.get("ph")
    if phase not in _NEEDED:
        return [f"unknown phase {phase!r}"]
    found = [f"{name} is missing" for name in sorted(_NEEDED[phase] - set(event))]
    for name in ("pid", "tid"):
        if type(event.get(name, 0)) is not int or event.get(name, 0) < 0:
            found.append(f"{name} must be a whole number")
    for name in ("ts", "dur"):
        if not isinstance(event.get(name, 0), (int, float)) or event.get(name, 0) < 0:
            found.append(f"{name} must be a number of microseconds >= 0")
    if phase == "X" and not event.get("dur", 0) > 0:
        found.append("a slice takes time")
    if phase == "C" and not all(isinstance(value, (int, float)) for value in event["args"].values()):
        found.append("counters count numbers")
    if phase == "f" and event.get("bp") != "e":
        found.append("a flow ends in the slice around it, not in the next")
    return found


def _unnamed(events: list[dict[str, Any]]) -> list[str]:
    """Processes and threads that no metadata names, or that two do."""
    processes = Counter(event["pid"] for event in events if event["name"] == "process_name")
    threads = Counter((event["pid"], event["tid"]) for event in events if event["name"] == "thread_name")
    found = [f"named twice: {key}" for key, count in [*processes.items(), *threads.items()] if count > 1]
    for event in events:
        if event["pid"] not in processes:
            found.append(f"process {event['pid']} has no name")
        if event["ph"] in "Xisf" and (event["pid"], event["tid"]) not in threads:
            found.append(f"thread {event['tid']} of {event['pid']} has no name")
    return found


def _slices(events: list[dict[str, Any]]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Start and end of the slices of each thread, in nanoseconds, in the order of the trace."""
    slices = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = round(1000 * event["ts"])
            slices[event["pid"], event["tid"]].append((begin, begin + round(1000 * event["dur"])))
    return slices


def _badly_nested(events: list[dict[str, Any]]) -> list[str]:
    """Slices of one thread that overlap without one enclosing the other."""
    found = []
    for thread, slices in _slices(events).items():
        open_until: list[int] = []
        for begin, end in slices:
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            if open_until and open_until[-1] < end:
                found.append(f"thread {thread}: the slice at {begin} ns overlaps another")
            open_until.append(end)
    return found


def _loose_flows(events: list[dict[str, Any]]) -> list[str]:
    """Flows without exactly one start and one end, that go back in time, or that have an end outside any slice."""
    slices = {thread: {begin for begin, _ in held} for thread, held in _slices(events).items()}
    ends = defaultdict(list)
    found = []
    for event in events:
        if event["ph"] in "sf":
            ends[event["cat"], event["name"], event["id"]].append(event)
            if round(1000 * event["ts"]) not in slices.get((event["pid"], event["tid"]), ()):
                found.append(f"flow {event['id']}: no slice starts at its {event['ph']}")
    for key, pair in ends.items():
        if [event["ph"] for event in pair] != ["s", "f"] or pair[0]["ts"] > pair[1]["ts"]:
            found.append(f"flow {key}: must have one start, then one end")
    return found
