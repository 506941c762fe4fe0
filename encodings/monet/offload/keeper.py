"""What a keep-set comes to whose tensors may travel: its steps on a timeline, beside the copies out and back.

Steps run in order. A copy out begins with the tensor's last forward use, in the order of these. A step takes the
implementation with which it ends first: a fast one may have to wait until copies out have left it the bytes that it
needs. Copies back begin as late as their deadlines allow, the last one first, as in a schedule of jobs with deadlines,
or later where there is no room; then all is played forward.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.offload.copies import Copy, Times, timed
from gapless.encodings.monet.offload.trips import Trips
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.search.keepset import Keeper, Outcome, State, Steps
from gapless.encodings.monet.search.stretches import KeepSet, Stretches
from gapless.profiles.training.graph import TrainingGraph
from gapless.topologies.host import HostLink

__all__ = ["Journey", "OffloadKeeper", "keeper_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class _Away:
    """A tensor that may be away from step `first` on, in whose row it would be, until step `needed`, which reads it.

    `gone_by`: the step that must find it gone: `needed`, or the end for what lives on the host and is away from the
    step after `needed` on.
    """

    node: int
    size_bytes: float
    first: int
    needed: int
    gone_by: int

    @property
    def lives_on_host(self) -> bool:
        """Whether it comes before it leaves."""
        return self.first > self.needed


@dataclass(frozen=True)
class Journey:
    """The copies of a keep-set, how many seconds each takes, and when all happens."""

    copies: tuple[Copy, ...]
    copy_s: tuple[float, ...]
    times: Times


@dataclass
class _Ahead:
    """The steps with their choices as if nothing had to come back: `slack` is what each leaves of the budget."""

    duration_s: list[float]
    start_s: list[float]
    slack: Floats
    gone_by: list[int]
    gone_s: list[float]
    overflow_bytes: float
    picks: list[int]


class OffloadKeeper(Keeper):
    """Evaluates keep-sets of one graph under one budget, beside a link to the host.

    `trips`: where states of an optimiser live, which the graph doesn't count; None where there are none.
    """

    def __init__(self, graph: TrainingGraph, budget_bytes: int, link: HostLink, trips: Trips | None = None) -> None:
        super().__init__(graph, budget_bytes - (0 if trips is None else trips.resident_bytes))
        self.link, self.trips = link, trips
        self._of_optimiser = [] if trips is None else trips.trips(len(graph.forward))
        self._size = graph.output_bytes.astype(np.float64)
        self._choices = [
            [(option.duration_s, float(option.workspace_bytes)) for option in menu] for menu in self._menus.options
        ]
        self._choices.append([(0.0, 0.0)])  # an update, whose time is left out, and the end of the step
        self._last_reader = list(self._just_in_time.last_use)
        for number, node in enumerate(graph.forward):
            if node.creator is not None:
                self._last_reader[node.creator] = max(self._last_reader[node.creator], number)

    @property
    def travellers(self) -> list[int]:
        """The tensors that may be offloaded: of some bytes, and no loss."""
        return np.flatnonzero(self._size[: self.graph.loss] > 0).tolist()

    def journey(self, keep: KeepSet) -> Journey:
        """The copies of a keep-set, and when they happen."""
        stretches = self._just_in_time.of(keep)
        return self._travel(stretches, self._steps(stretches))[0]

    def state(self, keep: KeepSet) -> State:
        """Evaluate a keep-set, from which others with tensors on the host may be reached."""
        if keep.offloaded is None:
            keep = replace(keep, offloaded=np.zeros(len(self.graph.forward), dtype=np.bool_))
        return super().state(keep)

    def _picked(self, stretches: Stretches, steps: Steps) -> tuple[NDArray[np.int64], tuple[Copy, ...]]:
        if not self._any_travels(stretches):
            return super()._picked(stretches, steps)
        journey, ahead = self._travel(stretches, steps)
        picks, order = np.zeros(len(steps.menu), dtype=np.int64), self._in_order(steps)[0]
        picks[order] = ahead.picks[: len(order)]
        return picks, journey.copies

    def _any_travels(self, stretches: Stretches) -> bool:
        offloaded = stretches.keep.offloaded
        return bool(self._of_optimiser) or (offloaded is not None and bool(offloaded.any()))

    def _state(self, stretches: Stretches) -> State:
        if not self._any_travels(stretches):
            return super()._state(stretches)
        return State(stretches, self._outcome(stretches, self._travel(stretches, self._steps(stretches))))

    def _outcome(self, stretches: Stretches, travelled: tuple[Journey, _Ahead]) -> Outcome:
        journey, ahead = travelled
        offloaded, host_bytes = stretches.keep.offloaded, sum(trip.size_bytes for trip in self._of_optimiser)
        away_bytes = host_bytes + (0.0 if offloaded is None else float(self._size[offloaded].sum()))
        return Outcome(journey.times.end_s, max(ahead.overflow_bytes, away_bytes - self.link.host_bytes, 0.0))

    def _travel(self, stretches: Stretches, steps: Steps) -> tuple[Journey, _Ahead]:
        order, moments = self._in_order(steps)
        away, room, menus = self._away(stretches, moments), steps.room[order], steps.menu[order].tolist()
        for tensor in away:
            room[tensor.first : tensor.needed] += tensor.size_bytes
        if self._of_optimiser:
            assert self.trips is not None
            later = self.trips.update_count + 1
            menus += [len(self._choices) - 1] * later
            last_bytes = max(node.fixed_bytes for node in self.graph.backward)
            room = np.append(room, np.full(later, self.budget_bytes - last_bytes))
            away = sorted([*away, *self._updates(moments, room)], key=lambda tensor: (tensor.first, tensor.node))
        copy_s = [self.link.copy_s(tensor.size_bytes) for tensor in away]
        ahead = self._run_ahead(menus, room.tolist(), away, copy_s)
        gates = _latest_returns(away, copy_s, ahead)
        copies = tuple(
            Copy(tensor.node, tensor.first - 1, gone, gate - 1, tensor.needed)
            for tensor, gone, gate in zip(away, ahead.gone_by, gates, strict=True)
        )
        durations = ahead.duration_s[:-1] if self._of_optimiser else ahead.duration_s
        return Journey(copies, tuple(copy_s), timed(durations, copies, copy_s)), ahead

    def _updates(self, moments: NDArray[np.int64], room: Floats) -> Iterator[_Away]:
        """What travels of an optimiser; `room` is corrected for where it is, but for its returns."""
        count, end, last = len(moments), len(room) - 1, len(self.graph.forward)
        for trip in self._of_optimiser:
            made = trip.made or 0
            stages = [self._just_in_time.moment_of(stage, last) for stage in (made, trip.backward + 1)]
            left, done = moments.searchsorted(stages).tolist()
            needed = done if trip.update is None else count + trip.update
            if trip.made is None:
                room[needed] -= trip.size_bytes
                yield _Away(trip.node, trip.size_bytes, needed + 1, needed, end)
            elif made:
                room[left + 1 : needed] += trip.size_bytes
                room[needed + 1 :] += trip.size_bytes
                yield _Away(trip.node, trip.size_bytes, left + 1, needed, needed)
            else:
                room[needed:] -= trip.size_bytes
                yield _Away(trip.node, trip.size_bytes, 0, needed, needed)

    def _in_order(self, steps: Steps) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The steps that run, in their order, and their moments."""
        moments = np.concatenate((self._always, self._just_in_time.moment(steps.stage, steps.again)))
        order = moments.argsort(kind="stable")
        order = order[self._menus.least_bytes[steps.menu[order]] > -np.inf]
        return order, moments[order]

    def _away(self, stretches: Stretches, moments: NDArray[np.int64]) -> list[_Away]:
        """The tensors that travel, in the order of their last forward uses."""
        offloaded = stretches.keep.offloaded
        found, at, last = [], self._just_in_time.moment_of, len(self.graph.forward)
        for node in [] if offloaded is None else np.flatnonzero(offloaded & (self._size > 0)).tolist():
            uses = [at(stage, last) for stage in stretches.needed[node]]
            uses += [at(stage, user) for user in self._just_in_time.users(node) for stage in stretches.runs[user]]
            first, needed = moments.searchsorted((at(0, self._last_reader[node]) + 1, min(uses))).tolist()
            if first < needed:
                found.append(_Away(node, float(self._size[node]), first, needed, needed))
        return sorted(found, key=lambda tensor: (tensor.first, tensor.node))

    def _run_ahead(self, menus: Sequence[int], room: list[float], away: Sequence[_Away], copy_s: list[float]) -> _Ahead:
        """Choose how each step runs, and what it waits for of the copies out."""
        copies = _CopiesOut(away, copy_s)
        durations, starts, picks, slack = list[float](), list[float](), list[int](), np.array(room)
        now_s = overflow = 0.0
        for step, menu in enumerate(menus):
            gone = copies.gone_at(step, now_s)
            left = copies.held_bytes(gone)
            run_s, workspace = self._choices[menu][0]
            pick, start_s, lacks = 0, now_s, 0.0
            if left + workspace > room[step] or copies.is_awaited(gone, now_s):
                pick, start_s, gone, lacks = copies.first_end(self._choices[menu], room[step] - left, now_s, gone)
                run_s, workspace = self._choices[menu][pick]
            copies.let_go(step, gone)
            overflow = max(overflow, lacks)
            slack[step] -= copies.held_bytes(gone) + workspace
            durations.append(run_s)
            starts.append(start_s)
            picks.append(pick)
            now_s = start_s + run_s
        return _Ahead(durations, starts, slack, copies.gone_by, copies.gone_s, overflow, picks)


class _CopiesOut:
    """The copies out while steps run one after the other: which have begun, and which the steps so far waited for.

    `gone_by[k]`: the step that waits for copy k. `gone_s[k]`: when that is over.
    """

    def __init__(self, away: Sequence[_Away], copy_s: Sequence[float]) -> None:
        self.gone_by, self.gone_s = [0] * len(away), [0.0] * len(away)
        self._away, self._copy_s = away, copy_s
        self._must = {tensor.gone_by: k + 1 for k, tensor in enumerate(away)}
        self._until = [0.0, *accumulate(tensor.size_bytes for tensor in away)]
        self._begun = self._gone = 0
        self._free_s = 0.0

    def gone_at(self, step: int, now_s: float) -> int:
        """Begin what may begin; how many are gone by now, or must be as the step needs them back."""
        while self._begun < len(self._away) and self._away[self._begun].first == step:
            self._free_s = self.gone_s[self._begun] = max(now_s, self._free_s) + self._copy_s[self._begun]
            self._begun += 1
        gone, must = self._gone, self._must.get(step, 0)
        while gone < self._begun and (gone < must or self.gone_s[gone] <= now_s):
            gone += 1
        return gone

    def held_bytes(self, gone: int) -> float:
        """What is on the device still of those that have begun, once the first `gone` are gone."""
        return self._until[self._begun] - self._until[gone]

    def is_awaited(self, gone: int, now_s: float) -> bool:
        """Whether a step that begins when so many are gone has to wait."""
        return gone > self._gone and self.gone_s[gone - 1] > now_s

    def let_go(self, step: int, gone: int) -> None:
        """Note that a step begins when so many are gone."""
        self.gone_by[self._gone : gone] = [step] * (gone - self._gone)
        self._gone = gone

    def first_end(
        self, choices: Sequence[tuple[float, float]], free: float, now_s: float, upto: int
    ) -> tuple[int, float, int, float]:  # fmt: skip
        """The option with which a step ends first, which lacks least where none fits; its start, how many tensors are
        gone then, and what it lacks.

        `free`: the bytes that are left for workspace once the first `upto` tensors are gone, which it waits for anyway.
        """
        found, best = (0, now_s, upto, 0.0), (float("inf"), float("inf"))
        for number, (run_s, workspace) in enumerate(choices):
            k, room = upto, free
            while k < self._begun and workspace > room:
                room += self._away[k].size_bytes
                k += 1
            lack = max(workspace - room, 0.0)
            begin_s = max(now_s, self.gone_s[k - 1]) if k else now_s
            if (lack, begin_s + run_s) < best:
                found, best = (number, begin_s, k, lack), (lack, begin_s + run_s)
            if k == upto and not lack:
                break
        return found


def _latest_returns(away: Sequence[_Away], copy_s: Sequence[float], ahead: _Ahead) -> list[int]:
    """The first step in whose row each tensor is again: the latest that is in time, later where there is no room."""
    gates = [0] * len(away)
    next_s, slack = float("inf"), ahead.slack
    for k in sorted(range(len(away)), key=lambda k: (-away[k].needed, -away[k].node)):
        tensor = away[k]
        since_s, since = (0.0, 0) if tensor.lives_on_host else (ahead.gone_s[k], ahead.gone_by[k])
        begin_s = max(min(ahead.start_s[tensor.needed], next_s) - copy_s[k], since_s)
        gate = max(min(bisect_right(ahead.start_s, begin_s) - 1, tensor.needed), since)
        lacking = np.flatnonzero(slack[gate : tensor.needed] < tensor.size_bytes)
        if len(lacking):
            gate += int(lacking[-1]) + 1
            begin_s = ahead.start_s[gate]
        slack[gate : tensor.needed] -= tensor.size_bytes
        gates[k], next_s = gate, begin_s
    return gates


def keeper_of(problem: Problem) -> Keeper:
    """What evaluates the keep-sets of a problem."""
    if problem.link is None:
        return Keeper(problem.graph, problem.budget_bytes)
    trips = problem.trips
    if trips is None and problem.updates is not None:
        trips = Trips.at_rest(problem.updates)
    return OffloadKeeper(problem.graph, problem.budget_bytes, problem.link, trips)
