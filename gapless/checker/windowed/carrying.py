"""Carrying: what a windowed replay keeps over a border: of tensors, by atoms and names, and of events that go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.checker.copies import BEGIN, END, Carried
from gapless.checker.program import Program, Rows
from gapless.checker.windowed.states import State, merged, union
from gapless.errors import InputError
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Ragged

__all__ = ["CarriedEvents", "Labels", "Start"]

Ints = NDArray[np.int64]
Copies = tuple[tuple[int, int], ...]
"""(device, set) of each copy of a tensor, by device."""


@dataclass(frozen=True)
class Start:
    """The tensors of a window when it starts. `label`: int64, of each; `states`: by label; `initial`: (device, set) of
    each as at the start of the run.
    """

    graph: Graph
    atoms: Ints
    part: Ints
    label: Ints
    states: list[State]
    initial: list[Copies]

    def copies(self, devices: int) -> tuple[Ints, list[int], list[tuple[int, int, int, int]]]:
        """The copies that are there and their sets; and (event, what it does, copy, set) of what still goes on."""
        new, known = np.flatnonzero(self.label == 0), np.flatnonzero(self.label)
        first = [(tensor * devices, self.initial[tensor]) for tensor in new.tolist()]
        copies = [base + device for base, initial in first for device, _ in initial]
        sets = [held for _, initial in first for _, held in initial]
        there, owner = _rows_of([state.copies for state in self.states], self.label[known])
        used, user = _rows_of([state.uses for state in self.states], self.label[known])
        copies += [base + row[0] for base, row in zip((known[owner] * devices).tolist(), there, strict=True)]
        sets += [row[1] for row in there]
        uses = [
            (event, action, base + device, held)
            for base, (event, action, device, held) in zip((known[user] * devices).tolist(), used, strict=True)
        ]
        return np.array(copies, dtype=np.int64), sets, uses

    def new_bytes(self, devices: int) -> Ints:
        """By device, the bytes of the copies that no border has counted."""
        found = np.zeros(devices, dtype=np.int64)
        for tensor in np.flatnonzero(self.label == 0).tolist():
            for device, _ in self.initial[tensor]:
                found[device] += self.graph.size_bytes[tensor]
        return found


class Labels:
    """The states at the border, by label: 0 stands for atoms and names that are as at the start of the run.

    A label is of a state and of the copies that its tensors have at the start of the run.
    """

    def __init__(self) -> None:
        self.states: list[State] = [State()]
        self.contributions = self._lasting = 0
        self._initial: list[Copies] = [()]
        self._numbers: dict[tuple[State, Copies], int] = {}
        self._size_bytes = np.zeros(1, dtype=np.int64)  # of all that has a label
        self._atoms = np.empty(0, dtype=np.int64)
        self._label = np.empty(0, dtype=np.int64)
        self._names: dict[str, int] = {}
        self._found: tuple[Ints, Ints, NDArray[np.bool_]] | None = None

    def of_atoms(self, atoms: Ints) -> Ints:
        """The label of each atom."""
        place, is_known = self._places(atoms)
        label = np.zeros(len(atoms), dtype=np.int64)
        label[is_known] = self._label[place[is_known]]
        return label

    def _places(self, atoms: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        """Where atoms stand, or would, among those with a label, and which do; kept, as a window asks several times."""
        if self._found is None or self._found[0] is not atoms:
            place = np.searchsorted(self._atoms, atoms)
            is_known = place < len(self._atoms)
            is_known[is_known] = self._atoms[place[is_known]] == atoms[is_known]
            self._found = atoms, place, is_known
        return self._found[1:]

    def open_atoms(self) -> Ints:
        """The atoms that events which go on use; ascending."""
        is_open = self._are_open()
        found: Ints = self._atoms[is_open[self._label]] if is_open.any() else self._atoms[:0]
        return found

    def _are_open(self) -> NDArray[np.bool_]:
        """By label."""
        return np.array([bool(state.uses) for state in self.states])

    def open_names(self) -> list[str]:
        """As `open_atoms`, of tensors without atoms."""
        is_open = self._are_open().tolist()
        return [name for name, label in self._names.items() if is_open[label]]

    def remaining(self) -> list[tuple[State, list[str], Ints]]:
        """Every state that is not as at the start of the run, with the names and atoms that are in it."""
        by_name: dict[int, list[str]] = {}
        for name, label in self._names.items():
            by_name.setdefault(label, []).append(name)
        used = np.flatnonzero(np.bincount(self._label, minlength=len(self.states)))
        labels = sorted({*used.tolist(), *by_name})
        return [(self.states[k], by_name.get(k, []), self._atoms[self._label == k]) for k in labels]

    def start(self, graph: Graph, atoms: Ints, part: Ints) -> Start:
        """The tensors of the next window. Raises `InputError` where it leaves out or mixes what it must not."""
        of_atoms = self.of_atoms(atoms)
        label = np.zeros(graph.tensor_count, dtype=np.int64)
        label[part] = of_atoms
        mixed = np.flatnonzero(label[part] != of_atoms)
        if len(mixed):
            name = graph.tensor_name(int(part[mixed[0]]))
            raise InputError(f"window: tensor {name} must be of atoms in one state; ask `labels` for it")
        for tensor in _without_atoms(graph, part) if self._names else ():
            label[tensor] = self._names.get(graph.tensor_name(tensor), 0)
        is_open = self._are_open()
        open_names = set(self.open_names())
        named = len(open_names.intersection(graph.tensor_names)) if open_names else 0
        if int(is_open[of_atoms].sum()) != len(self.open_atoms()) or named != len(open_names):
            raise InputError("window: must name all tensors that events which go on use; see `open_atoms`")
        return Start(graph, atoms, part, label, list(self.states), _by_tensor(graph.initial, graph.tensor_count))

    def settle(self, start: Start, states: list[State], which: Ints, devices: int, lasting: int) -> Ints:
        """The tensors' states at the next border, of which tensor k has number `which[k]`; returns the bytes by device
        of those that are forgotten.

        `lasting`: contributions that keep their numbers; those that did and do no more are merged, also of what the
        window doesn't name.
        """
        graph, known = start.graph, dict[tuple[int, Copies], int]()
        label = np.zeros(graph.tensor_count, dtype=np.int64)
        for tensor, one in enumerate(zip(which.tolist(), start.initial, strict=True)):
            number = known.get(one)
            if number is None:
                number = known[one] = self._number(states[one[0]], one[1])
            label[tensor] = number
        held_bytes = np.zeros(len(self.states), dtype=np.int64)
        held_bytes[: len(self._size_bytes)] = self._size_bytes
        np.subtract.at(held_bytes, start.label, graph.size_bytes)
        np.add.at(held_bytes, label, graph.size_bytes)
        gone_bytes = np.zeros(len(states), dtype=np.int64)
        np.add.at(gone_bytes, which[label == 0], graph.size_bytes[label == 0])
        self._enter(start.atoms, label[start.part])
        for tensor in _without_atoms(graph, start.part):
            self._names[graph.tensor_name(tensor)] = int(label[tensor])
        expired, self._lasting = self._lasting & ~lasting, lasting
        forgotten = _bytes_on(devices, states, gone_bytes)
        return forgotten + self._forget_states(held_bytes, devices, expired)

    def _number(self, state: State, initial: Copies) -> int:
        """Of a label; 0 for what can be forgotten."""
        if state.is_settled(initial):
            return 0
        number = self._numbers.setdefault((state, initial), len(self.states))
        if number == len(self.states):
            self.states.append(state)
            self._initial.append(initial)
        return number

    def _enter(self, atoms: Ints, label: Ints) -> None:
        place, is_known = self._places(atoms)
        self._label[place[is_known]] = label[is_known]
        new = np.flatnonzero(~is_known & (label > 0))
        new = new[np.argsort(atoms[new], kind="stable")]
        self._found = None
        if len(new):  # there are millions of others, which are copied
            self._atoms = np.insert(self._atoms, place[new], atoms[new])
            self._label = np.insert(self._label, place[new], label[new])

    def _forget_states(self, held_bytes: Ints, devices: int, expired: int) -> Ints:
        """Keep the states that something is in, under new numbers, without contributions that have expired; returns
        the bytes by device of what is forgotten thereby.
        """
        is_used = np.bincount(self._label, minlength=len(self.states)) > 0
        is_used[list(self._names.values())] = True
        is_used[0] = False
        before = list(zip(self.states, self._initial, strict=True))
        self.states, self._initial, self._numbers = [State()], [()], {}
        number, gone_bytes = np.zeros(len(before), dtype=np.int64), np.zeros(len(before), dtype=np.int64)
        for label in np.flatnonzero(is_used).tolist():
            state, initial = before[label]
            is_old = bool(expired and state.contributions & expired)
            number[label] = self._number(merged(state, self._lasting) if is_old else state, initial)
            gone_bytes[label] = 0 if number[label] else held_bytes[label]
        self._size_bytes = np.zeros(len(self.states), dtype=np.int64)
        np.add.at(self._size_bytes, number, held_bytes)
        self._label = number[self._label]
        if not self._label.all():
            kept = self._label > 0
            self._atoms, self._label = self._atoms[kept], self._label[kept]
        self._names = {name: int(number[label]) for name, label in self._names.items() if number[label]}
        self.contributions = union(state.contributions for state in self.states)
        return _bytes_on(devices, [state for state, _ in before], gone_bytes)


def _without_atoms(graph: Graph, part: Ints) -> list[int]:
    """The tensors that go by their names."""
    return np.flatnonzero(np.bincount(part, minlength=graph.tensor_count) == 0).tolist()


def _bytes_on(devices: int, states: list[State], size_bytes: Ints) -> Ints:
    """By device, of copies of so many bytes in each state."""
    found = np.zeros(devices, dtype=np.int64)
    for number in np.flatnonzero(size_bytes).tolist():
        for device, _ in states[number].copies:
            found[device] += size_bytes[number]
    return found


_Row = TypeVar("_Row")


def _rows_of(lists: Sequence[Sequence[_Row]], labels: Ints) -> tuple[list[_Row], Ints]:
    """The rows of the lists with these numbers, one list after the other, and the place among them of each row's."""
    rows = list(chain.from_iterable(lists))
    start = np.cumsum([0, *map(len, lists)])
    taken = Ragged(start, np.arange(len(rows))).take(labels)
    return [rows[place] for place in taken.values.tolist()], taken.owner


def _by_tensor(placement: Placement, tensors: int) -> list[Copies]:
    """(device, set) of each tensor's copies, by device; of copies that are listed twice, the last counts."""
    found: list[dict[int, int]] = [{} for _ in range(tensors)]
    sets = placement.contributions or (0,) * len(placement)
    for tensor, device, held in zip(placement.tensors.tolist(), placement.devices.tolist(), sets, strict=True):
        found[tensor][device] = held
    return [tuple(sorted(each.items())) for each in found]


@dataclass(frozen=True)
class CarriedEvents:
    """The events of earlier windows that go on, n of them, in columns; `holds`: what they hold, by place in here."""

    number: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    start_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    end_s: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    workspace_bytes: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    device: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    holds: Rows = field(default_factory=lambda: Rows(*(np.empty(0, dtype=np.int64) for _ in range(2))))

    @classmethod
    def of(cls, program: Program, is_open: NDArray[np.bool_]) -> CarriedEvents:
        """Those of a window's events that go on at its border."""
        events = np.flatnonzero(is_open)
        place = np.cumsum(is_open) - 1
        held = np.flatnonzero(is_open[program.holds.event])
        holds = Rows(place[program.holds.event[held]], program.holds.copy[held])
        return cls(
            program.numbers[events] + program.first, program.start_s[events], program.end_s[events],
            program.workspace_bytes[events], program.device[events], holds,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.number)

    def before(self, program: Program) -> Program:
        """A window's program with these events before its own."""
        count = len(self)

        def later(rows: Rows) -> Rows:
            return Rows(rows.event + count, rows.copy)

        holds = Rows(
            np.append(self.holds.event, program.holds.event + count), np.append(self.holds.copy, program.holds.copy)
        )
        return replace(
            program,
            numbers=np.append(self.number - program.first, program.numbers),
            start_s=np.append(self.start_s, program.start_s),
            end_s=np.append(self.end_s, program.end_s),
            least_s=np.append(np.zeros(count), program.least_s),
            power_w=np.append(np.full(count, np.nan), program.power_w),
            workspace_bytes=np.append(self.workspace_bytes, program.workspace_bytes),
            device=np.append(self.device, program.device),
            sends=later(program.sends),
            arrivals=later(program.arrivals),
            merges=later(program.merges),
            computes=program.computes + count,
            overwrites=later(program.overwrites),
            frees=later(program.frees),
            holds=holds,
            leader=None if program.leader is None else np.append(np.arange(count), program.leader + count),
            carried=count,
        )

    def rows(self, uses: list[tuple[int, int, int, int]]) -> tuple[Carried, list[int]]:
        """What they still do, for the log, and the sets that they write."""
        done = [*uses, *((event, BEGIN, copy, 0) for event, action, copy, _ in uses if action == END)]
        columns = np.array([use[:3] for use in done], dtype=np.int64).reshape(-1, 3)
        event = np.searchsorted(self.number, columns[:, 0])
        return Carried(columns[:, 2], event, columns[:, 1]), [use[3] for use in done]
