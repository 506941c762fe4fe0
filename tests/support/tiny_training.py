"""Tiny training graphs, and the cheapest step for one within a budget by trying everything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from hypothesis import strategies as st

from planwright.encodings.monet.decisions import Decisions
from planwright.profiles.training_graph import BackwardNode, ForwardNode, TrainingGraph, Variant, Way

MIB = 2**20


@st.composite
def training_graphs(draw: st.DrawFn, max_ops: int = 4) -> TrainingGraph:
    """Up to `max_ops` operators with skips, one intermediate, two ways, in-place runs, and two variants backward."""
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
    forward.append(ForwardNode("loss", "loss", draw(_SIZE), (number_of[-1],), (Way(0.0),)))
    backward: list[BackwardNode] = []
    for op in reversed(range(ops)):
        of_op = side if with_intermediate == op else None
        backward.append(_backward(draw, number_of[op], of_op, loss, forward, backward))
    return TrainingGraph("tiny", 1, tuple(forward), tuple(backward), draw(_SIZE))


_SIZE = st.integers(0, 8).map(lambda size: size * MIB)
_TIME = st.integers(0, 9).map(lambda time: time * 1e-5)


def _ways(draw: st.DrawFn, count: int, least: int = 0) -> tuple[Way, ...]:
    return tuple(Way(draw(_TIME), draw(_SIZE) - least) for _ in range(count))


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
        ways=_ways(draw, count),
        again=_ways(draw, count) if draw(st.booleans()) else (),
        overwrites=over,
        in_place=() if over is None else _ways(draw, count, least=size),
    )


def _intermediate(draw: st.DrawFn, creator: int, forward: list[ForwardNode]) -> ForwardNode:
    over = forward[creator].overwrites
    freed = 0 if over is None else forward[over].output_bytes
    in_place = () if over is None else _ways(draw, 1, least=freed)
    return ForwardNode(
        "side", "side", draw(_SIZE), (creator,), _ways(draw, 1), overwrites=over, in_place=in_place, creator=creator
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
        variants=tuple(Variant(its, _ways(draw, draw(st.integers(1, 2)), least=size)) for its in needs),
        fixed_bytes=fixed,
    )


def cheapest_s(graph: TrainingGraph, budget_bytes: int) -> float | None:
    """Exhaustive search: after each stage, the least cost of each set of stored tensors; None if nothing fits.

    Sets are bit masks. Every stage tries all that may be stored, recomputed and overwritten in it, and every variant; a
    step's way is the fastest that fits, which changes no other step.
    """
    return _Search(graph, budget_bytes).run()


class _Search:
    def __init__(self, graph: TrainingGraph, budget_bytes: int) -> None:
        self.graph, self.budget = graph, budget_bytes
        self.size = [node.output_bytes for node in graph.forward]
        self.bytes_of = [sum(s for j, s in enumerate(self.size) if mask >> j & 1) for mask in range(1 << graph.loss)]
        self.local = [
            sum(1 << j for j in range(i) if any(j in node.inputs for node in graph.forward[i:]))
            for i in range(len(self.size))
        ]

    def run(self) -> float | None:
        cost = self._stage(0, {0: 0.0})
        for stage in range(1, len(self.graph.backward) + 1):
            cost = self._stage(stage, cost)
        return min(cost.values(), default=None)

    def _stage(self, stage: int, cost: dict[int, float]) -> dict[int, float]:
        best: dict[int, float] = {}
        for stored, so_far in cost.items():
            for runs, in_place, there in self._executions(stage, stored):
                for after in _subsets(there):
                    more = self._cost(stage, stored, after, runs, in_place, there)
                    if more is not None and so_far + more < best.get(after, float("inf")):
                        best[after] = so_far + more
        return best

    def _executions(self, stage: int, stored: int) -> Iterator[tuple[int, int, int]]:
        """(what runs, what of it in place, what is there in the end), as far as every input is there in time."""
        nodes = self.graph.forward[: self.graph.loss]
        must = sum(1 << i for i, node in enumerate(nodes) if node.creator is None) if stage == 0 else 0
        can = sum(1 << i for i, node in enumerate(nodes) if node.in_place)
        for runs in range(1 << len(nodes)):
            if runs & must == must:
                for in_place in _subsets(runs & can):
                    there = self._executed(stored, runs, in_place)
                    if there is not None:
                        yield runs, in_place, there

    def _executed(self, stored: int, runs: int, in_place: int) -> int | None:
        there = stored
        for i, node in enumerate(self.graph.forward[: self.graph.loss]):
            if runs >> i & 1:
                if node.creator is None and any(not there >> j & 1 for j in node.inputs):
                    return None
                if node.creator is not None and not runs >> node.creator & 1:
                    return None
                if in_place >> i & 1 and node.overwrites is not None:
                    there &= ~(1 << node.overwrites)
                there |= 1 << i
        return there

    def _cost(self, stage: int, stored: int, after: int, runs: int, in_place: int, there: int) -> float | None:
        if stage == 0:
            held, base = after, self.graph.fixed_bytes
            return self._runs_s(stage, base, stored, held, runs | 1 << self.graph.loss, in_place)
        node = self.graph.backward[stage - 1]
        base = node.fixed_bytes + int(self.graph.gradient_bytes[stage - 1])
        options = []
        for variant in node.variants:
            needs = sum(1 << j for j in set(variant.needs))
            if needs & ~there == 0:
                held = after | needs
                last = _fastest(variant.ways, self.budget - base - node.output_bytes - self.bytes_of[held])
                again = self._runs_s(stage, base, stored, held, runs, in_place)
                if last is not None and again is not None:
                    options.append(last + again)
        return min(options, default=None)

    def _runs_s(self, stage: int, base: int, stored: int, held: int, runs: int, in_place: int) -> float | None:
        total = 0.0
        for i, node in enumerate(self.graph.forward):
            if runs >> i & 1:
                below = (1 << i) - 1
                kept = ((held | self.local[i]) & below) | (stored & ~below & ~(1 << i))
                ways = node.in_place if in_place >> i & 1 else (node.again or node.ways) if stage else node.ways
                its = _fastest(ways, self.budget - base - self.size[i] - self.bytes_of[kept])
                if its is None:
                    return None
                total += its
        return total


def _fastest(ways: tuple[Way, ...], spare_bytes: int) -> float | None:
    return min((way.duration_s for way in ways if way.workspace_bytes <= spare_bytes), default=None)


def _subsets(mask: int) -> Iterator[int]:
    bits = [1 << k for k in range(mask.bit_length()) if mask >> k & 1]
    for chosen in product((0, 1), repeat=len(bits)):
        yield sum(bit for bit, is_in in zip(bits, chosen, strict=True) if is_in)


def keep_all(graph: TrainingGraph) -> Decisions:
    """Everything runs once and is kept until the end, in the default ways."""
    nodes, stages = len(graph.forward), len(graph.backward) + 1
    stored, runs = np.ones((stages + 1, nodes), dtype=np.bool_), np.zeros((stages, nodes), dtype=np.bool_)
    stored[0], runs[0] = False, True
    stored[:, graph.loss] = False
    ways = np.zeros((stages, nodes), dtype=np.int64)
    last = np.zeros(stages - 1, dtype=np.int64)
    return Decisions(stored, runs, np.zeros_like(runs), ways, last, last)
