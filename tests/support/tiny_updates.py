"""The quickest step of a fixed sequence of operators whose optimiser's states may travel, by trying everything.

All times are whole ticks. States, and gradients that may travel, are on the device or on the host; each tick goes
through all that can be reached. States may travel as often as they like, from wherever they live.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

__all__ = ["Step", "quickest_ticks"]

_NOWHERE, _DEVICE, _HOST = "-", "D", "H"


@dataclass(frozen=True)
class Step:
    """An operator: how long it runs, what it holds beside states and gradients, and which of these it updates, makes
    and consumes, by number."""

    ticks: int
    row: int
    updates: tuple[int, ...] = ()
    makes: tuple[int, ...] = ()
    consumes: tuple[int, ...] = ()


@dataclass(frozen=True)
class _Moment:
    """`place`: of each tensor. `done`: the steps that have begun; `left`: ticks of the last of them. `out`, `back`:
    what is copied and the ticks that are left, -1 for nothing."""

    place: str
    done: int = 0
    left: int = 0
    out: tuple[int, int] = (-1, 0)
    back: tuple[int, int] = (-1, 0)


def quickest_ticks(
    steps: Sequence[Step], sizes: Sequence[int], states: int, budget: int, per_tick: int, host: int = 2**62
) -> int | None:
    """The least ticks over all places at which the first `states` tensors may live; None where nothing fits."""
    ends = []
    for homes in product(_DEVICE + _HOST, repeat=states):
        place = "".join(homes) + _NOWHERE * (len(sizes) - states)
        found = _Search(steps, sizes, budget, per_tick, host).run(place)
        ends += [] if found is None else [found]
    return min(ends, default=None)


@dataclass(frozen=True)
class _Search:
    steps: Sequence[Step]
    sizes: Sequence[int]
    budget: int
    per_tick: int
    host: int

    def run(self, home: str) -> int | None:
        goal = _Moment(home, len(self.steps))
        now, ticks, seen = self._closure({_Moment(home)}), 0, set[_Moment]()
        while now:
            if goal in now:
                return ticks
            seen |= now
            now = self._closure({self._ticked(moment) for moment in now}) - seen
            ticks += 1
        return None

    def _ticked(self, moment: _Moment) -> _Moment:
        out, back = ((k, left - (k >= 0)) for k, left in (moment.out, moment.back))
        return replace(moment, left=max(moment.left - 1, 0), out=out, back=back)

    def _closure(self, moments: set[_Moment]) -> set[_Moment]:
        found, todo = set[_Moment](), list(moments)
        while todo:
            moment = self._ended(todo.pop())
            if moment not in found and self._fits(moment):
                found.add(moment)
                todo += self._moves(moment)
        return found

    def _ended(self, moment: _Moment) -> _Moment:
        if moment.out[0] >= 0 and not moment.out[1]:
            moment = replace(moment, place=_put(moment.place, moment.out[0], _HOST), out=(-1, 0))
        if moment.back[0] >= 0 and not moment.back[1]:
            moment = replace(moment, place=_put(moment.place, moment.back[0], _DEVICE), back=(-1, 0))
        return moment

    def _fits(self, moment: _Moment) -> bool:
        here = sum(size for k, size in enumerate(self.sizes) if moment.place[k] == _DEVICE or k == moment.back[0])
        there = sum(size for k, size in enumerate(self.sizes) if moment.place[k] == _HOST or k == moment.out[0])
        row = self.steps[moment.done - 1].row if moment.left else 0
        return here + row <= self.budget and there <= self.host

    def _moves(self, moment: _Moment) -> Iterator[_Moment]:
        running = self.steps[moment.done - 1] if moment.left else Step(0, 0)
        held = {*running.updates, *running.consumes, *running.makes}
        for k, size in enumerate(self.sizes):
            if k in held or k in (moment.out[0], moment.back[0]):
                continue
            if moment.place[k] == _DEVICE and moment.out[0] < 0:
                yield replace(moment, out=(k, -(-size // self.per_tick)))
            if moment.place[k] == _HOST and moment.back[0] < 0:
                yield replace(moment, back=(k, -(-size // self.per_tick)))
        if not moment.left and moment.done < len(self.steps):
            yield from self._next(moment)

    def _next(self, moment: _Moment) -> Iterator[_Moment]:
        step, place = self.steps[moment.done], moment.place
        if any(place[k] != _DEVICE or k == moment.out[0] for k in (*step.updates, *step.consumes)):
            return
        here = sum(size for k, size in enumerate(self.sizes) if place[k] == _DEVICE or k == moment.back[0])
        if here + step.row + sum(self.sizes[k] for k in step.makes) > self.budget:
            return
        for k in step.consumes:
            place = _put(place, k, _NOWHERE)
        for k in step.makes:
            place = _put(place, k, _DEVICE)
        yield replace(moment, place=place, done=moment.done + 1, left=step.ticks)


def _put(place: str, k: int, where: str) -> str:
    return place[:k] + where + place[k + 1 :]
