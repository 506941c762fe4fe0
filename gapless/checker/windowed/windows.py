"""Windows: a run that is too long for one schedule, replayed stretch by stretch, with its state carried over borders.

The events of a run, in the order of their starts, are cut into windows. Each is a schedule with a graph of its own.
What a tensor of it is in the run, is said by its atoms (rows of a table, say): a window may have one tensor for all
atoms to which the same happens in it, and the next window may group them otherwise. A tensor without atoms goes by its
name.

At a border, which is the instant before which a window's last event starts or, where it says when the next one begins
(`until_s`), all is over that ends by then, the replay keeps of each tensor: which copies are there, with which
contributions; what events that go on still do to them; and what must be there at the end of the run. Atoms with one
state have one label, and a window's tensors must be of atoms with one label each. What is again as it was at the start
of the run, and holds all that it must, is forgotten: memory grows with what is underway, not with the run.

**Contributions** keep their numbers, or are merged at each border (`is_merging`): those that lie in the same copies of
a tensor and in the same needs become one, number 0 where all copies have them. So sets stay small, however long the
run. A copy that is as at the start of the run must then hold contribution 0 alone.

Each rule holds as in `check`, over borders too. Two differences: a read before a write that only a later window has is
`input-missing`, not `input-late`; and a device's memory leaves out copies that are as at the start of the run while no
window names them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from gapless.checker.contributions import array_of_sets, replay_contributions, version_numbers
from gapless.checker.copies import END, FREE, OVERWRITE, READ, CopyLog, check_access, check_reads, copy_log
from gapless.checker.program import Program, read_program
from gapless.checker.report import BusyTime, Findings, Report, Rule, Violation
from gapless.checker.resources import (
    check_durations,
    check_resources,
    energy_of,
    memory_levels,
    memory_violation,
    report_memory,
)
from gapless.checker.timeline import RELATIVE_TOLERANCE, Timeline, logical_time
from gapless.checker.windowed.carrying import CarriedEvents, Labels
from gapless.checker.windowed.states import SetRows, Sets, State, distinct_states, merged, union
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.topologies.topology import Topology

__all__ = ["Window", "WindowedReplay"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """The events of one stretch of a run.

    `schedule`: they start no earlier than those of the window before, in order. Its graph's initial copies are those of
    the start of the run; they count for tensors that no earlier window has changed. Its required copies are those of
    the end of the run, with the contributions that they must hold as far as the run has come. `atoms`: int64, all
    different; atom k is in tensor `part[k]`. Tensors that events of earlier windows still use must be there
    (`open_atoms`, `open_names`). `lasting`: the contributions that later windows may still add, which therefore keep
    their numbers, as bits. `is_last`: there is no other window. `until_s`: no event of a later one starts before.
    """

    schedule: Schedule
    atoms: Ints
    part: Ints
    lasting: int = 0
    is_last: bool = False
    until_s: float = -math.inf


class WindowedReplay:
    """Takes the windows of a run one after the other, then gives the report. `makespan_s`: about, for the tolerance."""

    def __init__(self, topology: Topology, makespan_s: float, is_merging: bool = True) -> None:
        self._topology, self._is_merging = topology, is_merging
        self._tolerance_s = RELATIVE_TOLERANCE * makespan_s
        self._labels = Labels()
        self._open = CarriedEvents()
        self._findings = Findings()
        self._events, self._makespan_s, self._energy_j = 0, 0.0, 0.0
        self._since_s, self._is_over = 0.0, False
        self._level_bytes = np.zeros(topology.device_count, dtype=np.int64)
        self._peaks: list[tuple[int, Violation | None]] = [(0, None)] * topology.device_count
        self._busy_s: list[NDArray[np.float64]] = []

    @property
    def contributions(self) -> int:
        """The contributions that copies or needs at the border name, as bits: new ones need other numbers."""
        return self._labels.contributions

    def labels(self, atoms: Ints) -> Ints:
        """A number for the state of each atom; 0 where it is as at the start of the run."""
        return self._labels.of_atoms(atoms)

    def needed(self, labels: Ints) -> list[int]:
        """What the required copies must hold so far, a set for each label; of label 0 what the graph says at first."""
        sets = [union(held for _, held in state.required) for state in self._labels.states]
        return [sets[label] for label in labels.tolist()]

    def open_atoms(self) -> Ints:
        """The atoms that the next window must name, which are in use at the border; ascending."""
        return self._labels.open_atoms()

    def open_names(self) -> list[str]:
        """As `open_atoms`, of tensors without atoms."""
        return self._labels.open_names()

    def add(self, window: Window) -> None:
        """Replay the next window. Raises `InputError` for one that isn't the next, or mixes atoms of other states."""
        schedule = window.schedule
        if self._is_over:
            raise InputError("window: the last one was added before")
        if schedule.graph.budgets:
            raise InputError("window: a graph with budgets is replayed as a whole")
        start = self._labels.start(schedule.graph, window.atoms, window.part)
        devices = self._topology.device_count
        own = read_program(schedule, self._findings, self._events, self._tolerance_s)
        first_s = float(own.start_s.min(initial=np.inf))
        if first_s < self._since_s - self._tolerance_s:
            raise InputError(f"window: must start at {self._since_s:.9g} s or later, got {first_s:.9g} s")
        program = self._open.before(own)
        timeline = logical_time(program.start_s, program.end_s, self._tolerance_s)
        low = int(timeline.start[: program.carried].max(initial=0)) + 1
        border = len(timeline.event_at) if window.is_last else _border(program, timeline, window.until_s)
        copies, held, uses = start.copies(devices)
        carried, carried_sets = self._open.rows(uses)
        log = copy_log(program, timeline, copies, carried, (low, border))
        sets = self._judge(program, timeline, log, (held, carried_sets))
        self._weigh(program, timeline, memory_levels(program, timeline, log), (low, border), start.new_bytes(devices))
        self._count(program)
        states, which = _states(program, timeline, log, array_of_sets(sets), border)
        if self._is_merging:
            states = [merged(state, window.lasting) for state in states]
        lasting = window.lasting if self._is_merging else 0
        self._level_bytes -= self._labels.settle(start, states, which, devices, lasting)
        self._open = CarriedEvents.of(program, timeline.free > border)
        latest_s = float(program.start_s.max(initial=self._since_s))
        self._since_s, self._is_over = max(latest_s, window.until_s), window.is_last

    def _judge(
        self, program: Program, timeline: Timeline, log: CopyLog, given: tuple[list[int], list[int]]
    ) -> list[int]:  # fmt: skip
        check_durations(program, self._findings)
        busy = check_resources(program, timeline, self._findings)
        self._busy_s.append(np.array([*busy.links, *busy.engines, *busy.resources]))
        self._busy_s = [np.sum(self._busy_s, axis=0)]
        check_reads(program, timeline, log, self._findings)
        check_access(program, timeline, log, self._findings)
        held, carried = given
        if not program.graph.tracks_contributions:
            return [0] * (int((log.action == END).sum()) + 1)
        return replay_contributions(program, timeline, log, held, self._findings, carried)

    def _count(self, program: Program) -> None:
        self._events += len(program.schedule)
        self._makespan_s = max(self._makespan_s, float(program.end_s.max(initial=0.0)))
        energy_j = energy_of(program)
        self._energy_j += math.nan if energy_j is None else energy_j

    def _weigh(
        self, program: Program, timeline: Timeline, levels: list[tuple[Ints, Ints]], span: tuple[int, int], new: Ints
    ) -> None:
        """Live bytes: those of the tensors that the window names, and what lay there already of all the others."""
        low, border = span
        for device, (position, level) in enumerate(levels):
            before, last = np.searchsorted(position, [low, border + 1]) - 1
            there = int(level[before]) if before >= 0 else 0
            offset = int(self._level_bytes[device]) + int(new[device]) - there
            judged = slice(max(int(before), 0), int(last) + 1)
            if len(level[judged]):
                top = judged.start + int(level[judged].argmax())
                peak = int(level[top]) + offset
                if peak > self._peaks[device][0]:
                    event = int(timeline.event_at[position[top]])
                    self._peaks[device] = (peak, memory_violation(program, device, event, peak))
            self._level_bytes[device] = offset + (int(level[last]) if last >= 0 else 0)

    def report(self) -> Report:
        """What was found, at the end of the run. Raises `InputError` before the last window."""
        findings, topology = self._findings, self._topology
        if not self._is_over:
            raise InputError("window: the last one is missing")
        for (peak, violation), capacity in zip(self._peaks, topology.memory_bytes, strict=True):
            if violation is not None and peak > capacity:
                report_memory(findings, violation)
        self._check_required()
        busy = np.concatenate([*self._busy_s[:1], np.zeros(0)]).tolist()
        links, engines = len(topology.links), len(topology.engines)
        return Report(
            makespan_s=self._makespan_s,
            peak_bytes=tuple(peak for peak, _ in self._peaks),
            busy_s=BusyTime(tuple(busy[:links]), tuple(busy[links : links + engines]), tuple(busy[links + engines :])),
            event_count=self._events,
            energy_j=None if math.isnan(self._energy_j) else self._energy_j,
            violations=tuple(sorted(findings.violations, key=lambda found: (found.start_s, found.event))),
            violation_counts=findings.counts,
        )

    def _check_required(self) -> None:
        """Every required copy is there, with what it must hold; what no window names any more is so."""
        for state, names, atoms in self._labels.remaining():
            for device, is_there in state.lacking:
                what = "without contributions that it must hold" if is_there else "and is not there"
                explain = partial(self._lacking, names, atoms, device, what)
                self._findings.add(Rule.REQUIRED_MISSING, len(names) + len(atoms), explain)

    def _lacking(self, names: list[str], atoms: Ints, device: int, what: str, k: int) -> Violation:
        tensor = f"tensor {names[k]}" if k < len(names) else f"atom {atoms[k - len(names)]}"
        text = f"{tensor} is required on device {device} at the end, {what}"
        return Violation(Rule.REQUIRED_MISSING, -1, -1, device, self._makespan_s, self._makespan_s, text)


def _border(program: Program, timeline: Timeline, until_s: float) -> int:
    """The last position of a window: of what ends by `until_s`, ends and frees come before what starts then."""
    over = int(timeline.free[program.end_s <= until_s].max(initial=0))
    return max(over, int(timeline.start.max(initial=0)))


def _states(
    program: Program, timeline: Timeline, log: CopyLog, sets: Sets, border: int
) -> tuple[list[State], Ints]:  # fmt: skip
    """Of the tensors of a window, at its border: the states, all different, and which each tensor has."""
    devices, tensors = program.device_count, program.graph.tensor_count
    number = version_numbers(log)
    is_named = np.zeros(tensors * devices, dtype=np.bool_)  # marks: sorting copies takes several times as long
    is_named[log.copy_of(np.arange(len(log.entry)))] = True
    copies = np.flatnonzero(is_named)
    version = log.version_after(copies, border)
    copies, held = copies[version >= 0], number[version[version >= 0]]
    there = SetRows(copies // devices, (copies % devices,), sets[held])
    required = program.graph.required
    order = np.lexsort((required.devices, required.tensors))
    needed = array_of_sets(list(required.contributions or (0,) * len(required)))
    needs = SetRows(required.tensors[order], (required.devices[order],), needed[order])
    return distinct_states(there, _uses(program, timeline, log, number, sets, border), needs, tensors)


def _uses(program: Program, timeline: Timeline, log: CopyLog, version_number: Ints, sets: Sets, border: int) -> SetRows:
    """What events that go on at the border still do: write, free, and use what they have read."""
    action, devices = log.action, program.device_count
    position = log.position_of(np.arange(len(log.entry)))
    event = timeline.event_at[position]
    until = np.append(timeline.end, -1)[event]  # event -1, of what was there before, is over
    using = ((action == READ) | (action == OVERWRITE)) & (until > border)
    coming = ((action == END) | (action == FREE)) & (position > border)
    entries = np.flatnonzero(using | coming)
    code, copy = action[entries].astype(np.int64), log.copy_of(entries)
    code[code == OVERWRITE] = READ
    number = program.numbers[event[entries]] + program.first
    order = np.lexsort((copy % devices, code, number, copy // devices))
    columns = number[order], code[order], copy[order] % devices
    held = np.where(code == END, version_number[entries], 0)[order]
    return SetRows(copy[order] // devices, columns, sets[held])
