"""A recorded step under a policy of selective checkpointing, as a schedule that the checker replays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from gapless.checker import check
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology
from gapless.torch.compiler.recording import Ran, Recording

__all__ = ["Replay", "Window", "replayed"]


@dataclass(frozen=True)
class Window:
    """From when a block is computed again until the next is. `there`: pieces of the forward pass that are there all
    along. An empty `block`: before the first."""

    block: str
    peak_bytes: int
    there: frozenset[int]


@dataclass(frozen=True)
class Replay:
    """A step under a policy. `peak_bytes`: replayed, and what eager's measured peak is above its own replay. `again_s`:
    of what runs again, `forward_s`: of the forward pass."""

    schedule: Schedule
    peak_bytes: int
    again_s: float
    forward_s: float
    windows: tuple[Window, ...]


@dataclass
class _Step:
    ran: Ran
    kind: str
    duration_s: float
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    window: str


def replayed(recording: Recording, saved: Mapping[str, frozenset[tuple[str, int]]], budget_bytes: int) -> Replay:
    """A step in which the blocks named in `saved` are checkpointed. Raises `InputError` where it doesn't replay."""
    spare_bytes = max(0, recording.peak_bytes - _Timeline(recording, {}).peak_bytes)
    timeline = _Timeline(recording, saved)
    schedule = timeline.schedule()
    report = check(schedule)
    if not report.valid:
        raise InputError(f"policy: its step doesn't replay clean: {report.summary()}")
    return Replay(
        schedule,
        report.peak_bytes[0] + spare_bytes,
        sum(step.duration_s for step in timeline.steps if step.kind == "again"),
        sum(ran.duration_s for ran in recording.forward),
        timeline.windows(spare_bytes),
    )


class _Timeline:
    """The steps of a schedule, and when each tensor goes: a piece of memory, or the same made again."""

    def __init__(self, recording: Recording, saved: Mapping[str, frozenset[tuple[str, int]]]) -> None:
        self._recording = recording
        self.steps: list[_Step] = []
        self.piece_of: list[int] = []
        self._now: dict[int, int] = {}
        block_of = {piece: ran.block for ran in recording.forward for piece in ran.makes}
        left, window = set(saved), ""
        for ran in recording.forward:
            self._run(ran, "forward", window)
        for ran in recording.backward:
            for block in [block_of.get(piece, "") for piece in ran.reads]:
                if block in left:
                    left.remove(block)
                    window = block
                    self._again(block, saved[block])
            self._run(ran, "backward", window)
        self._find_ends()

    def _again(self, block: str, saved: frozenset[tuple[str, int]]) -> None:
        ran_there = [ran for ran in self._recording.forward if ran.block == block]
        for ran in ran_there[: self._recording.stops[block]]:
            if (ran.name, ran.number) in saved:
                kept = tuple(self._now[piece] for piece in ran.makes)
                self.steps.append(_Step(ran, "saved", 0.0, kept, (), block))
            else:
                self._run(ran, "again", block)

    def _run(self, ran: Ran, kind: str, window: str) -> None:
        reads = tuple(dict.fromkeys(self._now[piece] for piece in ran.reads if piece in self._now))
        writes = []
        for piece in ran.makes:
            self._now[piece] = len(self.piece_of)
            writes.append(len(self.piece_of))
            self.piece_of.append(piece)
        self.steps.append(_Step(ran, kind, ran.duration_s, reads, tuple(writes), window))

    def _find_ends(self) -> None:
        last: dict[int, int] = {}
        self.start: dict[int, int] = {}
        for number, step in enumerate(self.steps):
            self.start.update(dict.fromkeys(step.writes, number))
            last.update(dict.fromkeys((*step.reads, *step.writes), number))
        lasting = {self._now[piece] for piece in self._recording.lasting if piece in self._now}
        self.end = {tensor: number for tensor, number in last.items() if tensor not in lasting}
        held = 0
        self.held_bytes = []
        gone = self._gone()
        for number, step in enumerate(self.steps):
            held += sum(self._size(tensor) for tensor in step.writes)
            self.held_bytes.append(held)
            held -= sum(self._size(tensor) for tensor in gone.get(number, ()))
        self.peak_bytes = max(self.held_bytes, default=0)

    def _gone(self) -> dict[int, list[int]]:
        gone: dict[int, list[int]] = {}
        for tensor, number in self.end.items():
            gone.setdefault(number, []).append(tensor)
        return gone

    def _size(self, tensor: int) -> int:
        return self._recording.size_bytes[self.piece_of[tensor]]

    def windows(self, spare_bytes: int) -> tuple[Window, ...]:
        """One for each block that is computed again, and the one before the first."""
        windows = []
        for block in dict.fromkeys(step.window for step in self.steps):
            numbers = [number for number, step in enumerate(self.steps) if step.window == block]
            there = frozenset(
                self.piece_of[tensor]
                for tensor, start in self.start.items()
                if self.steps[start].kind == "forward"
                and start < numbers[0]
                and self.end.get(tensor, numbers[-1]) >= numbers[-1]
            )
            peak_bytes = max(self.held_bytes[number] for number in numbers) + spare_bytes
            windows.append(Window(block, peak_bytes, there))
        return tuple(windows)

    def schedule(self) -> Schedule:
        """For the checker, on one device."""
        made = ScheduleBuilder()
        for tensor, piece in enumerate(self.piece_of):
            made.tensor(f"piece {piece} ({tensor})", self._size(tensor))
        gone = self._gone()
        now_s = 0.0
        for number, step in enumerate(self.steps):
            frees = [(tensor, 0) for tensor in gone.get(number, ())]
            now_s = made.compute(
                f"{step.ran.block} {step.ran.name}".strip(), step.kind, 0, now_s, step.duration_s, step.reads,
                step.writes, frees,
            )  # fmt: skip
        topology = Topology("one device", (0,), memory_bytes=(math.inf,))
        return made.schedule(topology, "a step under a policy", as_listed=True)
