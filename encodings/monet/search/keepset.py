"""Keep-sets: plans in which tensors are kept from the forward pass or recomputed, just in time.

A keep-set fixes a whole plan. What isn't kept is recomputed at the first stage that wants it, for a backward node or
for another recomputation, and stays until its last use; a tensor that is `dropped` doesn't stay over the longest gap
between two uses, and is recomputed after it. Operators run in place where their input has no further use, and each
runs in the fastest implementation for which the budget has room. Evaluating a keep-set costs array operations on a few
hundred tensors, and finding out what changes from its neighbour, so that a search can look at thousands a second;
`Keeper.decide` spells one out as `Decisions`, for `evaluate` and the replay to judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.offload.copies import Copy
from gapless.encodings.monet.search.menus import StepMenus
from gapless.encodings.monet.search.skips import Skips
from gapless.encodings.monet.search.stretches import RUNS, THERE, JustInTime, KeepSet, Move, Stretches
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["KeepSet", "Keeper", "Move", "Outcome", "State", "Steps"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Outcome:
    """What a keep-set comes to: the step's cost, and by how much its worst operator passes the budget (0: fits)."""

    cost_s: float
    overflow_bytes: float


@dataclass(frozen=True)
class State:
    """A keep-set that was looked at, in its plainest form, and what it comes to."""

    stretches: Stretches
    outcome: Outcome

    @property
    def keep(self) -> KeepSet:
        """The keep-set."""
        return self.stretches.keep


@dataclass(frozen=True)
class Steps:
    """All steps of a plan: each forward node, each backward node, each recomputation.

    `menu`: the menu that a step picks from, an empty one if it doesn't run. `room`: the bytes that the budget leaves
    for its workspace. `again`: the recomputed nodes, `stage`: at which stages, int64, a row for each recomputation.
    """

    menu: Ints
    room: Floats
    again: Ints
    stage: Ints


class Keeper:
    """Evaluates keep-sets of one graph under one budget."""

    def __init__(self, graph: TrainingGraph, budget_bytes: int) -> None:
        self.graph = graph
        self.budget_bytes = float(budget_bytes)
        self._nodes, self._stages = len(graph.forward), len(graph.backward) + 1
        self._just_in_time = JustInTime(graph)
        self._prepare_memory()
        self._step_menus = StepMenus(graph, self._just_in_time.last_use)
        self._menus = self._step_menus.menus

    @property
    def travellers(self) -> list[int]:
        """The tensors that may be offloaded: none without a link."""
        return []

    # -- keep-sets and their costs ------------------------------------------------------------------------------------

    def state(self, keep: KeepSet) -> State:
        """Evaluate a keep-set."""
        return self._state(self._just_in_time.of(keep))

    def moved(self, origin: State, move: Move) -> State:
        """Evaluate a neighbour; `origin` itself if its plainest form is the same."""
        stretches = self._just_in_time.moved(origin.stretches, move)
        return origin if stretches is origin.stretches else self._state(stretches)

    def assess(self, keep: KeepSet) -> tuple[KeepSet, Outcome]:
        """A keep-set in its plainest form, and what it comes to."""
        state = self.state(keep)
        return state.keep, state.outcome

    def decide(self, keep: KeepSet) -> Decisions:
        """The plan of a keep-set, spelled out."""
        stretches = self._just_in_time.of(keep)
        steps = self._steps(stretches)
        pick, copies = self._picked(stretches, steps)
        shape = (self._stages, self._nodes)
        recomputed, in_place = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.bool_)
        forward_implementation, backward_implementation = (
            np.zeros(shape, dtype=np.int64),
            np.zeros(self._stages - 1, dtype=np.int64),
        )
        nodes = [*range(self._nodes), *range(self._stages - 1), *steps.again.tolist()]
        stages = [0] * self._nodes + [-1] * (self._stages - 1) + steps.stage.tolist()
        for node, stage, menu, number in zip(nodes, stages, steps.menu.tolist(), pick.tolist(), strict=True):
            if not self._menus.options[menu]:
                continue
            option = self._menus.options[menu][number]
            if stage < 0:
                backward_implementation[node] = option.implementation
            else:
                recomputed[stage, node], in_place[stage, node] = True, option.in_place
                forward_implementation[stage, node] = option.implementation
        return Decisions(
            self._stored(stretches),
            recomputed,
            in_place,
            forward_implementation,
            stretches.keep.variant,
            backward_implementation,
            copies,
        )

    def _picked(self, stretches: Stretches, steps: Steps) -> tuple[Ints, tuple[Copy, ...]]:
        """The number of each step's option, and what travels meanwhile."""
        return self._menus.pick(steps.menu, steps.room), ()

    def _stored(self, stretches: Stretches) -> Mask:
        """What is there when each stage begins, from the stage after its run to that of its last use."""
        stage = np.arange(self._stages + 1)[:, None]
        stored = np.zeros((self._stages + 1, self._nodes), dtype=np.bool_)
        for there, gone in stretches.moments[:, : self._nodes].reshape(2, 2, -1).swapaxes(0, 1):
            since, upto = self._just_in_time.place(there)[0] + 1, self._just_in_time.place(gone - 1)[0]
            stored |= (stage >= since) & (stage <= upto)
        return stored

    def held_at_worst(self, state: State) -> Mask:
        """The tensors that are there, and not read, while the step runs that passes the budget by most; bool, (V,)."""
        stretches, steps, used = state.stretches, self._steps(state.stretches), np.zeros(self._nodes, dtype=np.bool_)
        worst = int((self._menus.least_bytes[steps.menu] - steps.room).argmax())
        if self._nodes <= worst < len(self._always):
            variants = self.graph.backward[worst - self._nodes].variants
            used[list(variants[int(stretches.keep.variant[worst - self._nodes])].needs)] = True
            when = self._always[worst]
        else:
            again = worst - len(self._always)
            node, stage = (worst, 0) if again < 0 else (int(steps.again[again]), int(steps.stage[again]))
            used = self.graph.local[node].copy()
            used[node] = True
            when = self._just_in_time.moment(np.array(stage), node)
        there, gone = stretches.moments[:, : self._nodes].reshape(2, 2, -1)
        return np.asarray(((there > 0) & (there <= when) & (when < gone)).any(axis=0) & ~used)

    # -- evaluation ---------------------------------------------------------------------------------------------------

    def _prepare_memory(self) -> None:
        """What each step holds besides the stretches, and where it stands among their moments."""
        graph = self.graph
        size = graph.output_bytes.astype(np.float64)
        fixed = graph.gradient_bytes + np.array([float(node.fixed_bytes) for node in graph.backward])
        forward_base = graph.fixed_bytes + size + [size[alive].sum() for alive in graph.alive]
        backward_base = fixed + np.array([node.output_bytes for node in graph.backward])
        self._spare = self.budget_bytes - np.concatenate([forward_base, backward_base])
        self._spare_again = self.budget_bytes - np.append(graph.fixed_bytes, fixed)
        moment = self._just_in_time.moment
        forward = moment(np.zeros(self._nodes, dtype=np.int64), np.arange(self._nodes))
        self._always = np.append(forward, moment(np.arange(1, self._stages), self._nodes))
        column = np.append(size, 0.0)
        self._change = np.concatenate([column, column, -column, -column])
        self._skips = Skips(graph, self._just_in_time.stage_length)
        self._node_of_place = np.tile(np.arange(self._nodes + 1), 2)

    def _state(self, stretches: Stretches) -> State:
        steps = self._steps(stretches)
        return State(stretches, Outcome(*self._menus.total(steps.menu, steps.room)))

    def _steps(self, stretches: Stretches) -> Steps:
        """Which steps a plan has, and what room and choice each has."""
        moments, a_stage = stretches.moments, self._just_in_time.stage_length
        held_always, held = self._held(moments.ravel())
        room = self._spare - held_always
        place = (moments[:2] >= a_stage).ravel().nonzero()[0]
        nodes, there = self._node_of_place[place], moments.ravel()[place]
        stage, run = there // a_stage, there + (RUNS - THERE)
        held_then = held[place] + self._skips.charged_bytes(moments, nodes, stage, run)
        over = self._step_menus.over[nodes]
        may = (moments[2, over] == run + 1) | (moments[3, over] == run + 1)  # its input is gone right after
        forward = self._step_menus.forward(stretches.keep.kept, room)
        backward = self._step_menus.backward(stretches.keep.variant)
        return Steps(
            np.concatenate((forward, backward, self._step_menus.again(nodes, may))),
            np.concatenate((room, self._spare_again[stage] - held_then)),
            nodes,
            stage,
        )

    def _held(self, moments: Ints) -> tuple[Floats, Floats]:
        """The bytes of all stretches at forward and backward nodes, and right after each of the given moments."""
        place = moments.nonzero()[0]
        when = moments[place]
        order = when.argsort()
        place = place[order]
        change = self._change[place].cumsum()
        held = np.empty(len(moments))
        held[place] = change
        # Before the first moment of all, this takes the sum after the last, where all is gone: nothing, too.
        return change[when[order].searchsorted(self._always) - 1], held
