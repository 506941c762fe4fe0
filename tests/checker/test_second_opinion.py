"""The checker against a naive replay: one event after the other, dictionaries, no arrays."""

from __future__ import annotations

import random
from collections.abc import Callable

from corrupted_schedules import corrupted
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import check
from gapless.ir.schedule import Event, EventKind, Schedule

Copy = tuple[int, int]


class Naive:
    """Walks through logical time step by step; collects (rule, event) pairs, the makespan and each device's peak."""

    def __init__(self, schedule: Schedule) -> None:
        self.graph, self.topology = schedule.graph, schedule.topology
        self.events = list(schedule.events())
        self.bytes = [0] * self.topology.device_count
        self.broken: set[tuple[str, int]] = set()
        self.known = [number for number, event in enumerate(self.events) if self.is_known(event)]
        self.broken |= {("unknown-id", number) for number in range(len(self.events)) if number not in self.known}
        self.makespan_s = max((self.events[number].end_s for number in self.known), default=0.0)
        self.sets: dict[Copy, int] = {}
        self.allocated: set[Copy] = set()
        self.started: set[int] = set()
        self.finished: set[int] = set()
        self.seen: dict[int, dict[Copy, int | None]] = {}
        self.replaced: dict[int, dict[Copy, int | None]] = {}
        self.peaks = [0] * self.topology.device_count
        self.ever_written: set[Copy] = set()
        self.run()

    def is_known(self, event: Event) -> bool:
        tensors = range(self.graph.tensor_count)
        if event.kind == EventKind.TRANSFER:
            named = event.place in range(len(self.topology.links)) and event.moves != ()
            named = named and all(tensor in tensors for tensor in event.moves)
        else:
            named = event.place in range(len(self.topology.engines)) and event.op in range(len(self.graph.ops))
            named = named and event.implementation in range(len(self.graph.ops[event.op].implementations))
        freed = all(tensor in tensors and device in range(len(self.bytes)) for tensor, device in event.frees)
        return named and freed and 0 <= event.start_s <= event.end_s

    # What an event does.

    def reads(self, event: Event) -> list[Copy]:
        if event.kind == EventKind.TRANSFER:
            link = self.topology.links[event.place]
            merged = [(tensor, link.target) for tensor in event.moves] if event.reduces else []
            return [(tensor, link.source) for tensor in event.moves] + merged
        device = self.topology.engines[event.place][0]
        return [(tensor, device) for tensor in self.graph.ops[event.op].reads(event.implementation)]

    def writes(self, event: Event) -> list[Copy]:
        if event.kind == EventKind.TRANSFER:
            return [(tensor, self.topology.links[event.place].target) for tensor in event.moves]
        device = self.topology.engines[event.place][0]
        return [(tensor, device) for tensor in self.graph.ops[event.op].outputs]

    def overwrites(self, event: Event) -> list[Copy]:
        if event.kind == EventKind.TRANSFER:
            return []
        device = self.topology.engines[event.place][0]
        impl = self.graph.ops[event.op].implementations[event.implementation]
        return [(tensor, device) for tensor in impl.overwrites]

    def resources(self, event: Event) -> set[tuple[str, int]]:
        if event.kind == EventKind.TRANSFER:
            named = {("named", resource) for resource in self.topology.links[event.place].resources}
            return {("link", event.place)} | named
        return {("engine", event.place)}

    def least_s(self, event: Event) -> float:
        if event.kind == EventKind.TRANSFER:
            total = sum(int(self.graph.size_bytes[tensor]) for tensor in event.moves)
            return self.topology.links[event.place].duration_s(total)
        return self.graph.ops[event.op].implementations[event.implementation].duration_s

    def workspace(self, event: Event) -> tuple[int, int]:
        if event.kind == EventKind.TRANSFER:
            return 0, 0
        impl = self.graph.ops[event.op].implementations[event.implementation]
        return self.topology.engines[event.place][0], impl.workspace_bytes

    # The walk. All times of these tests are multiples of a quarter, so equal times are the same instant.

    def run(self) -> None:
        initial = self.graph.initial
        held = initial.contributions or (0,) * len(initial)
        for tensor, device, contributions in zip(initial.tensors.tolist(), initial.devices.tolist(), held, strict=True):
            self.sets[tensor, device] = contributions
            self.ever_written.add((tensor, device))
            self.allocate((tensor, device))
        self.peaks = list(self.bytes)
        known = [self.events[number] for number in self.known]
        for time in sorted({time for event in known for time in (event.start_s, event.end_s)}):
            ending = [n for n in self.known if self.events[n].end_s == time > self.events[n].start_s]
            for number in ending:
                self.end(number)
            for number in ending:
                self.free(number)
            for number in self.known:
                if self.events[number].start_s == time:
                    self.start(number)
                    if self.events[number].end_s == time:
                        self.end(number)
                        self.free(number)
        self.finish()

    def running(self, number: int) -> list[Event]:
        return [self.events[other] for other in self.started - self.finished if other != number]

    def start(self, number: int) -> None:
        event = self.events[number]
        others = self.running(number)
        if any(self.resources(event) & self.resources(other) for other in others):
            self.broken.add(("resource-overlap", number))
        if event.end_s - event.start_s < self.least_s(event):
            self.broken.add(("duration-too-short", number))
        used = {copy for other in others for copy in (*self.reads(other), *self.writes(other))}
        written = {copy for other in others for copy in self.writes(other)}
        for copy in self.reads(event):
            if copy not in self.sets:
                coming = {n for n in self.known if copy in self.writes(self.events[n])} - self.finished - {number}
                late = copy not in self.ever_written and bool(coming)
                self.broken.add(("input-late" if late else "input-missing", number))
            elif copy in written:
                self.broken.add(("not-free", number))
        if used & {*self.writes(event), *self.overwrites(event)}:
            self.broken.add(("not-free", number))
        self.seen[number] = {copy: self.sets.get(copy) for copy in self.reads(event)}
        for copy in self.overwrites(event):
            self.sets.pop(copy, None)
            self.release(copy)
        self.replaced[number] = {copy: self.sets.get(copy) for copy in self.writes(event)}
        for copy in self.writes(event):
            self.allocate(copy)
        device, workspace = self.workspace(event)
        self.bytes[device] += workspace
        self.peaks = [max(pair) for pair in zip(self.peaks, self.bytes, strict=True)]
        self.started.add(number)

    def end(self, number: int) -> None:
        event = self.events[number]
        if event.kind == EventKind.TRANSFER:
            self.arrive(number)
        else:
            self.produce(number)
        for copy in self.writes(event):
            self.ever_written.add(copy)
            self.allocate(copy)
        device, workspace = self.workspace(event)
        self.bytes[device] -= workspace
        self.finished.add(number)
        self.peaks = [max(pair) for pair in zip(self.peaks, self.bytes, strict=True)]

    def arrive(self, number: int) -> None:
        event = self.events[number]
        link = self.topology.links[event.place]
        new: dict[Copy, int] = {}
        for tensor in event.moves:
            source, target = (tensor, link.source), (tensor, link.target)
            sent, old = self.seen[number][source] or 0, self.replaced[number][target] or 0
            if event.reduces:
                if self.graph.tracks_contributions and (sent & old or target in new):
                    self.broken.add(("double-reduction", number))
                new[target] = sent | old
                continue
            elsewhere = 0
            for (other, device), held in self.sets.items():
                if other == tensor and device != link.target:
                    elsewhere |= held
            if old & ~sent & ~elsewhere:
                self.broken.add(("input-stale", number))
            new[target] = sent
        self.sets |= new

    def produce(self, number: int) -> None:
        event = self.events[number]
        op = self.graph.ops[event.op]
        added = 0 if op.adds is None else 1 << op.adds
        made = [copy for copy in self.writes(event) if copy[0] not in op.updates]
        union = 0
        for copy in dict.fromkeys(self.reads(event)):
            held = self.seen[number][copy] or 0
            if op.reduces and union & held and (made or not op.updates):
                self.broken.add(("double-reduction", number))
            if op.needs.get(copy[0], 0) & ~held and self.seen[number][copy] is not None:
                self.broken.add(("input-stale", number))
            union |= held
        if union & added and (made or not op.updates):
            self.broken.add(("double-reduction", number))
        for copy in made:
            self.sets[copy] = union | added
        for copy in set(self.writes(event)).difference(made):
            before = self.replaced[number][copy] or 0
            if before & added:
                self.broken.add(("double-reduction", number))
            self.sets[copy] = before | added

    def free(self, number: int) -> None:
        others = self.running(number)
        used = {copy for other in others for copy in (*self.reads(other), *self.writes(other))}
        for copy in self.events[number].frees:
            if copy not in self.sets:
                self.broken.add(("input-missing", number))
            if copy in used:
                self.broken.add(("not-free", number))
            self.sets.pop(copy, None)
            self.release(copy)

    def allocate(self, copy: Copy) -> None:
        if copy not in self.allocated:
            self.allocated.add(copy)
            self.bytes[copy[1]] += int(self.graph.size_bytes[copy[0]])

    def release(self, copy: Copy) -> None:
        if copy in self.allocated:
            self.allocated.remove(copy)
            self.bytes[copy[1]] -= int(self.graph.size_bytes[copy[0]])

    def finish(self) -> None:
        required = self.graph.required
        wanted = required.contributions or (0,) * len(required)
        for tensor, device, bits in zip(required.tensors.tolist(), required.devices.tolist(), wanted, strict=True):
            held = self.sets.get((tensor, device))
            if held is None or (self.graph.tracks_contributions and bits & ~held):
                self.broken.add(("required-missing", -1))
        self.memory_exceeded = any(
            peak > capacity for peak, capacity in zip(self.peaks, self.topology.memory_bytes, strict=True)
        )


def assert_same_verdict(schedule: Schedule) -> None:
    report, naive = check(schedule), Naive(schedule)
    found = {(violation.rule.value, violation.event) for violation in report.violations}
    exceeded = {pair for pair in found if pair[0] == "memory-exceeded"}
    assert found - exceeded == naive.broken
    assert bool(exceeded) == naive.memory_exceeded
    assert report.makespan_s == naive.makespan_s
    assert list(report.peak_bytes) == naive.peaks


@examples(300)
@given(seed=st.integers(0, 2**32))
def test_random_valid_schedules_replay_clean_and_as_the_naive_replay_says(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    schedule = random_schedule(random.Random(seed))
    assert check(schedule).violations == ()
    assert_same_verdict(schedule)


@examples(600)
@given(seed=st.integers(0, 2**32))
def test_corrupted_schedules_break_the_same_rules_at_the_same_events_as_in_the_naive_replay(
    seed: int, random_schedule: Callable[[random.Random], Schedule]
) -> None:
    chance = random.Random(seed)
    assert_same_verdict(corrupted(random_schedule(chance), chance))
