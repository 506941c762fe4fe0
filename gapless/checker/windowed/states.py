"""States: what a windowed replay knows of a tensor at a border, alike for many tensors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gapless.checker.copies import END

__all__ = ["SetRows", "Sets", "State", "distinct_states", "merged", "union"]

Ints = NDArray[np.int64]
Sets = NDArray[np.generic]
"""Sets of bits: int64, or Python's ints."""


class State(NamedTuple):
    """Of a tensor at a border, each part in ascending order; sets are bits.

    `copies`: (device, set) of those that are there. `uses`: (number of an event that goes on, what it does, device, the
    set that it writes). `required`: (device, set) that must be there at the end of the run.
    """

    copies: tuple[tuple[int, int], ...] = ()
    uses: tuple[tuple[int, int, int, int], ...] = ()
    required: tuple[tuple[int, int], ...] = ()

    @property
    def lacking(self) -> list[tuple[int, bool]]:
        """The devices whose required copies are not as they must be, and whether there is a copy at all."""
        held = dict(self.copies)
        return [
            (device, device in held) for device, needed in self.required if device not in held or needed & ~held[device]
        ]

    @property
    def contributions(self) -> int:
        """All that it names."""
        return union(each[-1] for each in chain(self.copies, self.uses, self.required))

    def is_settled(self, initial: tuple[tuple[int, int], ...]) -> bool:
        """Whether it is as at the start of the run, and could stay so until the end."""
        return self.copies == initial and not self.uses and not self.lacking


def union(sets: Iterable[int]) -> int:
    """Of sets of bits."""
    found = 0
    for part in sets:
        found |= part
    return found


def merged(state: State, lasting: int) -> State:
    """The state with contributions as one where the same copies and needs have them; what all have is number 0.

    `lasting`: contributions that keep their numbers.
    """
    columns = [held for _, held in state.copies]
    columns += [held for _, action, _, held in state.uses if action == END]
    columns += [held for _, held in state.required]
    given = iter(_merged(tuple(columns), lasting))
    return State(
        tuple((device, next(given)) for device, _ in state.copies),
        tuple((event, action, device, next(given) if action == END else 0) for event, action, device, _ in state.uses),
        tuple((device, next(given)) for device, _ in state.required),
    )


@lru_cache(maxsize=2**14)  # many states differ in devices and events alone
def _merged(columns: tuple[int, ...], lasting: int) -> list[int]:
    """Sets with the contributions as one that the same of them have."""
    groups = {0: union(columns) & ~lasting}  # by which of the columns so far has them, the first as the highest bit
    for column in columns:
        split = {}
        for member, bits in groups.items():
            if within := bits & column:
                split[member << 1 | 1] = within
            if without := bits & ~column:
                split[member << 1] = without
        groups = split
    free = (1 << k for k in count(1) if not lasting >> k & 1)
    full = (1 << len(columns)) - 1
    numbers = {member: 1 if member == full else next(free) for member in sorted(groups)}
    places = range(len(columns))[::-1]
    sets = [union(number for member, number in numbers.items() if member >> place & 1) for place in places]
    return [held | column & lasting for held, column in zip(sets, columns, strict=True)]


@dataclass(frozen=True)
class SetRows:
    """Parts of states, in ascending order of their tensors: int64 `columns`, and a set each."""

    tensor: Ints
    columns: tuple[Ints, ...]
    sets: Sets

    def of_tensors(self, tensors: Ints) -> list[tuple[tuple[int, ...], ...]]:
        """The parts of some tensors, as `State` has them."""
        rows = list(zip(*(column.tolist() for column in self.columns), self.sets.tolist(), strict=True))
        bounds = (np.searchsorted(self.tensor, tensors, side=side).tolist() for side in ("left", "right"))
        return [tuple(rows[begin:stop]) for begin, stop in zip(*bounds, strict=True)]

    def numbers(self) -> Ints:
        """A number from 1 for each part; equal parts have the same."""
        number = _numbered(self.sets)
        for column in self.columns:
            number = _numbered(number * (int(column.max(initial=0)) + 1) + column)
        return number + 1


def distinct_states(copies: SetRows, uses: SetRows, required: SetRows, tensors: int) -> tuple[list[State], Ints]:
    """The states that so many tensors are in, all different, and which one each tensor has."""
    which = np.zeros(tensors, dtype=np.int64)
    for part in (copies, uses, required):
        number = part.numbers()
        codes = int(number.max(initial=0)) + 1
        place = np.arange(len(part.tensor)) - np.searchsorted(part.tensor, part.tensor)
        order = np.argsort(place, kind="stable")
        for rows in np.split(order, np.cumsum(np.bincount(place))[:-1]) if len(place) else ():
            # Each tensor once: those with one number so far, and one part next, have one number.
            after = which * codes
            after[part.tensor[rows]] += number[rows]
            which = _numbered(after)
    first = np.empty(int(which.max(initial=-1)) + 1, dtype=np.int64)
    first[which[::-1]] = np.arange(tensors)[::-1]  # of several assignments the last one counts
    parts = (part.of_tensors(first) for part in (copies, uses, required))
    return [State(*each) for each in zip(*parts, strict=True)], which


def _numbered(values: Sets) -> Ints:
    """Where each value stands among the distinct ones, ascending."""
    return np.unique(values, return_inverse=True)[1].reshape(-1)
