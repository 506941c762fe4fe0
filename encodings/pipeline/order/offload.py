"""Offloading: what micro-batches keep goes to the host of their rank after a forward, and is back before the backward.

A rank copies one micro-batch each way at a time, beside its ops. Memory is a matter of order, not of time: an op waits
until what it needs room for is gone, and a copy back begins once the op has ended from which on there is room for it.
So what a rank holds follows from the order of its ops, and from which of them wait for which copies.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.order.stages import Stages

__all__ = ["Engine", "Offloads", "enough", "kept_share", "offloads_of", "on_device", "restored"]

_SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Of what micro-batches keep: what of it is on the rank, in the mean, where orders are made for copies."""
_AHEAD = 8
"""Ops over which what goes may stay longer, and what comes back may come sooner, where there is room."""


@dataclass
class Offloads:
    """What a rank copies, by the number of its forward. `gone`: by place in its order, whose copies out the op there
    waits for. `back`: by place, whose copies back begin when the op before has ended and what is to be gone is gone.

    Copies out go in the order of `gone`, copies back in that of `back`.
    """

    gone: dict[int, list[int]] = field(default_factory=dict)
    back: dict[int, list[int]] = field(default_factory=dict)

    def absent_bytes(self, stages: Stages, ops: int) -> Floats:
        """What isn't on the rank before each of its ops (2 k), while it runs (2 k + 1), and after all of them."""
        during, early = np.zeros(ops + 1), np.zeros(ops + 2)
        sizes = stages.kept_bytes
        for place, forwards in self.gone.items():
            during[place] += sum(sizes[op // stages.micro_batches] for op in forwards)
        for place, forwards in self.back.items():
            during[place] -= sum(sizes[op // stages.micro_batches] for op in forwards)
        during = np.cumsum(during)
        early[1:] = during  # before an op what is to be gone by then may be there still, and nothing else be back
        found = np.zeros(2 * ops + 1)
        found[1::2] = during[:ops]
        found[::2] = np.minimum(during, early[: ops + 1])
        return found


def on_device(stages: Stages) -> Iterator[Stages]:
    """The stages that orders with copies are made for, by how much micro-batches keep on their rank meanwhile."""
    for share in _SHARES:
        yield kept_share(stages, share)


def kept_share(stages: Stages, share: float) -> Stages:
    """The same without a link, where a micro-batch keeps a share of what it does from its forward to its backward."""
    saved_bytes = np.floor(share * stages.kept_bytes).astype(np.int64)
    return replace(
        stages, offload_s=None, recomputes=np.ones_like(stages.recomputes), saved_bytes=saved_bytes,
        working_bytes=stages.full_bytes, again_s=stages.rerun_s,
    )  # fmt: skip


def enough(stages: Stages, fits: Callable[[Stages], bool]) -> Stages:
    """Of `on_device` what keeps most and still fits."""
    return next((each for each in on_device(stages) if fits(each)), kept_share(stages, 0.0))


def restored(made: Stages, stages: Stages) -> Stages:
    """What orders were made for with all that micro-batches keep, and the link."""
    names = ("offload_s", "recomputes", "saved_bytes", "working_bytes", "again_s")
    return replace(made, **{name: getattr(stages, name) for name in names})


class Engine:
    """The copies of a rank as its ops go on; `begins_s`: when each begins, float of shape (2, S M): out, then back."""

    def __init__(self, stages: Stages, offloads: Offloads, begins_s: Floats) -> None:
        assert stages.offload_s is not None
        self.offloads, self.begins_s, self.micro_batches = offloads, begins_s, stages.micro_batches
        self.copy_s, self.free_s = stages.offload_s.tolist(), [0.0, 0.0]
        self.there_s: dict[int, float] = {}
        self.out_s: dict[int, float] = {}
        self.place, self.ready_s = -1, 0.0

    def begin_s(self, place: int, forward: int, now_s: float, end_s: Sequence[float]) -> float:
        """Before which the op at a place of the rank's order can't start; `forward`: that of its micro-batch, if it is
        a backward. `now_s`: when the op before it has ended; `end_s`: of all ops."""
        if place > self.place:
            for each in self.offloads.gone.get(place, ()):
                self.out_s[each] = self._copy(0, each, end_s[each])
                now_s = max(now_s, self.out_s[each])
            for each in self.offloads.back.get(place, ()):
                self.there_s[each] = self._copy(1, each, max(now_s, self.out_s[each]))
            self.place, self.ready_s = place, now_s
        return max(self.ready_s, self.there_s.get(forward, 0.0))

    def _copy(self, direction: int, forward: int, from_s: float) -> float:
        """Begin one when it can; its end."""
        self.begins_s[direction, forward] = begin_s = max(from_s, self.free_s[direction])
        self.free_s[direction] = begin_s + self.copy_s[forward // self.micro_batches]
        return self.free_s[direction]


@dataclass
class _Stash:
    """What a micro-batch keeps on a rank: made and used at places of its order. `gone`: the place of the op that waits
    until it is; `back`: before which it begins to come back; `latest_s`: by when it has to, not to be late."""

    forward: int
    made: int
    used: int
    size: float
    copy_s: float
    gone: int = -1
    back: int = -1
    latest_s: float = math.inf


def offloads_of(stages: Stages, sequence: Ints, spare: Floats, start_s: Floats, end_s: Floats) -> Offloads | None:
    """What a rank copies so that its ops have room: none where they have, None where they can't.

    `spare`: of its memory before and in each op (see `order.room`). `start_s`, `end_s`: of all ops, about.
    """
    if (spare >= 0).all():
        return Offloads()
    return _Planning(stages, sequence, spare, start_s[sequence].tolist(), end_s[sequence].tolist()).run()


class _Planning:
    """From op to op: where there is no room, what is used last goes, of what can be gone by then; each comes back just
    in time."""

    def __init__(
        self, stages: Stages, sequence: Ints, spare: Floats, start_s: list[float], end_s: list[float]
    ) -> None:  # fmt: skip
        assert stages.offload_s is not None
        self.stages, self.spare, self.start_s, self.end_s = stages, spare, start_s, end_s
        place = {op: at for at, op in enumerate(sequence.tolist())}
        per_kind, sizes = stages.count * stages.micro_batches, stages.kept_bytes.tolist()
        copy_s = stages.offload_s.tolist()
        self.made: dict[int, _Stash] = {}
        for op in (op for op in sequence.tolist() if op < per_kind and sizes[op // stages.micro_batches]):
            stage = op // stages.micro_batches
            stash = _Stash(op, place[op], place[op + per_kind], sizes[stage], copy_s[stage])
            self.made[stash.made] = stash
        self.here: list[_Stash] = []
        self.early: list[_Stash] = []
        self.away: list[_Stash] = []
        self.gone: list[_Stash] = []
        self.free_s, self.host = 0.0, np.zeros(len(sequence))

    def run(self) -> Offloads | None:
        spare, absent = self.spare[1::2].tolist(), 0.0
        for place, room in enumerate(spare):
            for stash in [each for each in self.away if each.back == place]:
                self.away.remove(stash)
                self.early.append(stash)
                absent -= stash.size
            self.here, self.early = ([each for each in own if each.used > place] for own in (self.here, self.early))
            while absent + room < 0:
                chosen = self._chosen(place)
                if chosen is None:
                    return None
                absent += chosen.size
                self._sent(chosen, place)
            if place in self.made:
                self.here.append(self.made[place])
        return self._extended()

    def _chosen(self, place: int) -> _Stash | None:
        """What goes so that an op has room, or comes back later: what delays least, of equals what is used last."""
        room = self.stages.host_bytes
        free = [each for each in self.here if self.host[each.made + 1 : each.used + 1].max() + each.size <= room]
        return min(free + self.early, key=lambda each: (self._late_s(each, place), -each.used), default=None)

    def _late_s(self, stash: _Stash, place: int) -> float:
        if stash.gone >= 0:
            return max(0.0, self.end_s[place] + stash.copy_s - self.start_s[stash.used])
        out_s = max(self.free_s, self.end_s[stash.made]) + stash.copy_s
        late_s = max(0.0, out_s - self.start_s[place])
        return late_s + max(0.0, max(out_s, self.start_s[place]) + stash.copy_s - self.start_s[stash.used])

    def _sent(self, stash: _Stash, place: int) -> None:
        """It isn't there while the op at a place runs."""
        if stash.gone >= 0:
            stash.back = place + 1
            self.early.remove(stash)
            self.away.append(stash)
            return
        self.free_s = max(self.free_s, self.end_s[stash.made]) + stash.copy_s
        self.here.remove(stash)
        stash.gone = place
        self.host[stash.made + 1 : stash.used + 1] += stash.size
        self.gone.append(stash)
        self.away.append(stash)
        latest_s = math.inf
        for each in sorted(self.away, key=lambda one: -one.used):
            latest_s = each.latest_s = min(latest_s, self.start_s[each.used]) - each.copy_s
            each.back = min(max(bisect_right(self.end_s, latest_s), place + 1), each.used)

    def _extended(self) -> Offloads:
        """Where there is room, ops wait less: what goes stays longer, and what comes back comes sooner."""
        found = self._offloads()
        spare = self.spare + found.absent_bytes(self.stages, len(self.start_s))
        for _ in range(_AHEAD):
            for stash in self.gone:
                for step in (1, -1):
                    op = 2 * stash.gone + 1 if step > 0 else 2 * stash.back - 1
                    if stash.gone < stash.back and spare[op] >= stash.size and spare[op + step] >= stash.size:
                        spare[op] -= stash.size
                        spare[op + step] -= stash.size
                        stash.gone += step > 0
                        stash.back -= step < 0
        return self._offloads()

    def _offloads(self) -> Offloads:
        found = Offloads()
        travel = [each for each in self.gone if each.gone < each.back]
        for stash in sorted(travel, key=lambda each: each.gone):
            found.gone.setdefault(stash.gone, []).append(stash.forward)
        for stash in sorted(travel, key=lambda each: each.used):
            found.back.setdefault(stash.back, []).append(stash.forward)
        return found
