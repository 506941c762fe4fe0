"""Tiny training graphs, and the cheapest step for one within a budget by trying everything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from gapless.encodings.monet.decisions import Decisions
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant

Masks = NDArray[np.int64]
Seconds = NDArray[np.float64]

MIB = 2**20


@st.composite
def training_graphs(draw: st.DrawFn, max_ops: int = 4) -> TrainingGraph:
    """Up to `max_ops` operators with skips, one intermediate, two implementations, runs in place, two variants."""
    ops = draw(st.integers(2, max_ops))
    with_intermediate = draw(st.sampled_from([None, *range(1, ops)])) if ops < max_ops else None
    forward: list[ForwardNode] = []
    number_of, side = [], None
    for op in range(ops):
        number_of.append(len(forward))
        forward.append(_op(draw, op, number_of, forward))
        if with_intermediate == op:
            side = len(forward)
            forward.append(_intermediate(draw, len(forward) - 1, forward))
    loss = len(forward)
    forward.append(ForwardNode("loss", "loss", draw(_SIZE), (number_of[-1],), (Implementation(0.0),)))
    backward: list[BackwardNode] = []
    for op in reversed(range(ops)):
        of_op = side if with_intermediate == op else None
        backward.append(_backward(draw, number_of[op], of_op, loss, forward, backward))
    return TrainingGraph("tiny", 1, tuple(forward), tuple(backward), draw(_SIZE))


_SIZE = st.integers(0, 8).map(lambda size: size * MIB)
_TIME = st.integers(0, 9).map(lambda time: time * 1e-5)


def _implementations(draw: st.DrawFn, count: int, least: int = 0) -> tuple[Implementation, ...]:
    return tuple(Implementation(draw(_TIME), draw(_SIZE) - least) for _ in range(count))


def _op(draw: st.DrawFn, op: int, number_of: list[int], forward: list[ForwardNode]) -> ForwardNode:
    inputs = tuple(sorted(draw(st.sets(st.sampled_from(number_of[:-1]), min_size=1, max_size=2)))) if op else ()
    count = draw(st.integers(1, 2))
    over = inputs[-1] if inputs and draw(st.booleans()) else None
    size = draw(_SIZE) if over is None else forward[over].output_bytes
    return ForwardNode(
        name=f"op{op}",
        op="op",
        output_bytes=size,
        inputs=inputs,
        implementations=_implementations(draw, count),
        again=_implementations(draw, count) if draw(st.booleans()) else (),
        overwrites=over,
        in_place=() if over is None else _implementations(draw, count, least=size),
    )


def _intermediate(draw: st.DrawFn, creator: int, forward: list[ForwardNode]) -> ForwardNode:
    over = forward[creator].overwrites
    freed = 0 if over is None else forward[over].output_bytes
    in_place = () if over is None else _implementations(draw, 1, least=freed)
    return ForwardNode(
        "side",
        "side",
        draw(_SIZE),
        (creator,),
        _implementations(draw, 1),
        overwrites=over,
        in_place=in_place,
        creator=creator,
    )


def _backward(
    draw: st.DrawFn, number: int, side: int | None, loss: int, forward: list[ForwardNode], backward: list[BackwardNode]
) -> BackwardNode:
    """Needs its inputs, or else its output, its intermediate, or nothing; reads the gradient made just before."""
    others = [(number,), (), (*forward[number].inputs, number), *([] if side is None else [(side,)])]
    needs = [forward[number].inputs, *draw(st.lists(st.sampled_from(others), max_size=2 if side else 1, unique=True))]
    size = draw(_SIZE)
    fixed = (backward[-1].fixed_bytes if backward else 0) + draw(st.integers(0, 2)) * MIB
    return BackwardNode(
        name=f"grad{number}",
        op="grad",
        forward=number,
        output_bytes=size,
        gradients=(loss + len(backward),),
        variants=tuple(Variant(its, _implementations(draw, draw(st.integers(1, 2)), least=size)) for its in needs),
        fixed_bytes=fixed,
    )


def in_units(graph: TrainingGraph, unit_bytes: int) -> TrainingGraph:
    """The same graph with a unit of its own where there were MiB."""

    def sized(size_bytes: int) -> int:
        return size_bytes // MIB * unit_bytes

    graph = graph.with_implementations(lambda _, impl: replace(impl, workspace_bytes=sized(impl.workspace_bytes)))
    forward = tuple(replace(node, output_bytes=sized(node.output_bytes)) for node in graph.forward)
    backward = tuple(
        replace(node, output_bytes=sized(node.output_bytes), fixed_bytes=sized(node.fixed_bytes))
        for node in graph.backward
    )
    return replace(graph, forward=forward, backward=backward, fixed_bytes=sized(graph.fixed_bytes))


def cheapest_s(graph: TrainingGraph, budget_bytes: int) -> float | None:
    """Exhaustive search: after each stage, the least cost of each set of stored tensors; None if nothing fits.

    Sets are bit masks. Every stage tries all that may be stored, recomputed and overwritten in it, and every variant; a
    step's implementation is the fastest that fits, which changes no other step.
    """
    return _Search(graph, budget_bytes).run()


@dataclass(frozen=True)
class _Executions:
    """All ways to run a stage: what was stored, what runs, what of it in place, what is there in the end."""

    stored: Masks
    runs: Masks
    in_place: Masks
    there: Masks

    def at(self, rows: NDArray[np.bool_]) -> _Executions:
        return _Executions(self.stored[rows], self.runs[rows], self.in_place[rows], self.there[rows])

    def parts(self) -> Iterator[_Executions]:
        """A few thousand at a time, which a cache can hold."""
        for first in range(0, len(self.stored), 2048):
            part = slice(first, first + 2048)
            yield _Executions(self.stored[part], self.runs[part], self.in_place[part], self.there[part])


class _Search:
    def __init__(self, graph: TrainingGraph, budget_bytes: int) -> None:
        self.graph, self.budget = graph, budget_bytes
        self.sets = np.arange(1 << graph.loss)
        self.bytes_of = sum((self.sets >> j & 1) * graph.forward[j].output_bytes for j in range(graph.loss))
        self.local = [
            sum(1 << j for j in range(i) if any(j in node.inputs for node in graph.forward[i:]))
            for i in range(graph.loss + 1)
        ]
        self.executions = self._executions()

    def run(self) -> float | None:
        cost = np.where(self.sets == 0, 0.0, np.inf)
        for stage in range(len(self.graph.backward) + 1):
            cost = self._stage(stage, cost)
        return float(cost.min()) if np.isfinite(cost.min()) else None

    def _executions(self) -> _Executions:
        """As far as every input is there in time."""
        nodes = self.graph.forward[: self.graph.loss]
        can = sum(1 << i for i, node in enumerate(nodes) if node.in_place)
        over = self.sets[self.sets & ~can == 0]
        stored, runs, in_place = (its.ravel() for its in np.meshgrid(self.sets, self.sets, over, indexing="ij"))
        there, valid = stored.copy(), in_place & ~runs == 0
        for i, node in enumerate(nodes):
            needs = sum(1 << j for j in node.inputs)
            its_runs, its_in_place = (runs >> i & 1).astype(bool), (in_place >> i & 1).astype(bool)
            ready = (there & needs) == needs if node.creator is None else (runs >> node.creator & 1).astype(bool)
            valid &= ready | ~its_runs
            if node.overwrites is not None:
                there = np.where(its_in_place, there & ~(1 << node.overwrites), there)
            there = np.where(its_runs, there | 1 << i, there)
        return _Executions(stored, runs, in_place, there).at(valid)

    def _stage(self, stage: int, cost: Seconds) -> Seconds:
        """The least cost of each set that may be stored after the stage."""
        possible = self.executions.at(np.isfinite(cost[self.executions.stored]))
        if stage == 0:
            must = sum(1 << i for i, node in enumerate(self.graph.forward[: self.graph.loss]) if node.creator is None)
            possible = possible.at(possible.runs & must == must)
        runs_s = [self._run_s(stage, i) for i in range(self.graph.loss)]
        best = np.full(len(self.sets), np.inf)
        for needs, last_s in self._last_steps(stage):
            held = self.sets | needs
            for its in possible.at(needs & ~possible.there == 0).parts():
                total = cost[its.stored][:, None] + last_s[held]
                for i, run_s in enumerate(runs_s):
                    below = (1 << i) - 1
                    beside = (held & below) | (its.stored & ~below)[:, None]
                    total += run_s[((its.runs >> i & 1) + (its.in_place >> i & 1))[:, None], beside]
                total[(self.sets & ~its.there[:, None]) != 0] = np.inf
                best = np.minimum(best, total.min(axis=0, initial=np.inf))
        return best

    def _last_steps(self, stage: int) -> list[tuple[int, Seconds]]:
        """What a stage ends with: the tensors that it needs, and its seconds by what is held."""
        if stage == 0:
            return [(0, self._fastest_s(self.graph.forward[-1].implementations, self._room(0, self.graph.loss)))]
        node = self.graph.backward[stage - 1]
        room = self.budget - self._base(stage) - node.output_bytes - self.bytes_of
        return [
            (sum(1 << j for j in set(its.needs)), self._fastest_s(its.implementations, room)) for its in node.variants
        ]

    def _run_s(self, stage: int, i: int) -> Seconds:
        """Seconds of node i if it doesn't run, runs, or runs in place, by what is held of the nodes before it and was
        stored of those after it.
        """
        node, room = self.graph.forward[i], self._room(stage, i)
        impls = (node.again or node.implementations) if stage else node.implementations
        return np.stack([np.zeros(len(self.sets)), self._fastest_s(impls, room), self._fastest_s(node.in_place, room)])

    def _room(self, stage: int, i: int) -> Masks:
        """Bytes that are left for the workspace of node i, by what is held beside it."""
        below = (1 << i) - 1
        kept = (self.sets | self.local[i] & below) & ~(1 << i) & (len(self.sets) - 1)
        return self.budget - self._base(stage) - self.graph.forward[i].output_bytes - self.bytes_of[kept]

    def _base(self, stage: int) -> int:
        if stage == 0:
            return self.graph.fixed_bytes
        return self.graph.backward[stage - 1].fixed_bytes + int(self.graph.gradient_bytes[stage - 1])

    def _fastest_s(self, impls: tuple[Implementation, ...], room: Masks) -> Seconds:
        fastest = np.full(len(room), np.inf)
        for impl in impls:
            fastest = np.where(impl.workspace_bytes <= room, np.minimum(fastest, impl.duration_s), fastest)
        return fastest


def keep_all(graph: TrainingGraph) -> Decisions:
    """Everything runs once and is kept until the end, in the default implementations."""
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    stored, runs = np.ones((stages + 1, nodes), dtype=np.bool_), np.zeros((stages, nodes), dtype=np.bool_)
    stored[0], runs[0] = False, True
    stored[:, graph.loss] = False
    impls = np.zeros((stages, nodes), dtype=np.int64)
    last = np.zeros(stages - 1, dtype=np.int64)
    return Decisions(stored, runs, np.zeros_like(runs), impls, last, last)
