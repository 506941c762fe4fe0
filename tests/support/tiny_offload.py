"""The quickest step of a tiny training graph whose tensors may travel to the host, by trying everything, tick by tick.

All times are whole ticks, so that whatever happens begins at a tick. A state is what is where and what is under way;
each tick goes through all states that can be reached, and the first in which the step is over is the quickest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from gapless.profiles.training.graph import TrainingGraph

__all__ = ["TICK_S", "quickest_s"]

TICK_S = 1e-5


@dataclass(frozen=True)
class _State:
    """Sets of tensors are bit masks. `device`: there, those on their way out included; `host`: there, those on their
    way back included; `stuck`: may travel no more; `ran`: in this stage.

    `left`: ticks until what runs is over, -1 for nothing; then `gains` is there. `extra`: the bytes of what runs,
    beside what is there. `out`, `back`: tensor and ticks left, -1 for none.
    """

    stage: int = 0
    place: int = 0
    device: int = 0
    host: int = 0
    stuck: int = 0
    ran: int = 0
    left: int = -1
    gains: int = 0
    extra: int = 0
    is_last: bool = False
    out: tuple[int, int] = (-1, 0)
    back: tuple[int, int] = (-1, 0)


def quickest_s(
    graph: TrainingGraph,
    budget_bytes: int,
    bytes_per_tick: int | None,
    host_bytes: int = 2**62,
    most_states: int = 10**9,
) -> float | None:
    """Seconds of the quickest step within the paper's rows, less what is away; None if nothing fits.

    Raises `OverflowError` where more states would have to be looked at. Without `bytes_per_tick` nothing travels.
    """
    return _Search(graph, budget_bytes, bytes_per_tick, host_bytes).run(most_states)


class _Search:
    def __init__(self, graph: TrainingGraph, budget_bytes: int, bytes_per_tick: int | None, host_bytes: int) -> None:
        self.graph, self.budget, self.rate, self.host = graph, budget_bytes, bytes_per_tick, host_bytes
        self.size = [node.output_bytes for node in graph.forward]
        self.local = [
            sum(1 << j for j in range(i) if any(j in node.inputs for node in graph.forward[i:]))
            for i in range(graph.loss + 1)
        ]
        self.readers = [
            max((i for i, n in enumerate(graph.forward) if j in n.sources), default=j) for j in range(graph.loss)
        ]

    def run(self, most_states: int) -> float | None:
        states, tick, seen = {_State()}, 0, 0
        while states:
            states = self._closure(states)
            seen += len(states)
            if seen > most_states:
                raise OverflowError
            if any(state.stage > len(self.graph.backward) for state in states):
                return tick * TICK_S
            later = set()
            for state in states:
                if state.left > 0 or state.out[0] >= 0 or state.back[0] >= 0:
                    later.add(self._ticked(state))
            states, tick = later, tick + 1
        return None

    def _ticked(self, state: _State) -> _State:
        out, back = ((j, t - 1) if j >= 0 else (j, t) for j, t in (state.out, state.back))
        return replace(state, left=state.left - 1 if state.left > 0 else state.left, out=out, back=back)

    def _closure(self, states: set[_State]) -> set[_State]:
        """All that can be reached without time."""
        found, todo = set(states), list(states)
        while todo:
            for other in self._moves(todo.pop()):
                if other not in found:
                    found.add(other)
                    todo.append(other)
        return found

    def _moves(self, state: _State) -> Iterator[_State]:
        ended = self._ended(state)
        if ended is not None:
            yield ended
            return
        yield from self._copies(state)
        if state.left >= 0 or state.stage > len(self.graph.backward):
            return
        for j in _members(state.device):
            if j != state.out[0]:
                yield replace(state, device=state.device & ~(1 << j), stuck=state.stuck | 1 << j)
        if state.place <= self.graph.loss:
            yield from self._forward(state)
        else:
            yield from self._backward(state)

    def _ended(self, state: _State) -> _State | None:
        """What is over is over."""
        if state.out[0] >= 0 and not state.out[1]:
            bit = 1 << state.out[0]
            return replace(state, device=state.device & ~bit, host=state.host | bit, out=(-1, 0))
        if state.back[0] >= 0 and not state.back[1]:
            bit = 1 << state.back[0]
            return replace(state, device=state.device | bit, host=state.host & ~bit, back=(-1, 0))
        if state.left == 0:
            over = replace(state, left=-1, extra=0, gains=0, device=state.device | state.gains)
            return replace(over, stage=state.stage + 1, place=0, ran=0, is_last=False) if state.is_last else over
        return None

    def _copies(self, state: _State) -> Iterator[_State]:
        if self.rate is None:
            return
        if state.out[0] < 0:
            for j in _members(state.device & ~state.stuck):
                is_free = state.stage > 0 or state.place > self.readers[j] + (state.left >= 0)
                room = self.host - sum(self.size[k] for k in _members(state.host)) - self.size[j]
                if self.size[j] and is_free and room >= 0:
                    yield replace(state, out=(j, -(-self.size[j] // self.rate)), stuck=state.stuck | 1 << j)
        if state.back[0] < 0:
            for j in _members(state.host):
                if self._held(state) + self.size[j] + self._base(state.stage) + state.extra <= self.budget:
                    yield replace(state, back=(j, -(-self.size[j] // self.rate)))

    def _held(self, state: _State) -> int:
        back = self.size[state.back[0]] if state.back[0] >= 0 else 0
        return sum(self.size[j] for j in _members(state.device)) + back

    def _forward(self, state: _State) -> Iterator[_State]:
        """Run the next forward node, or leave it out."""
        i, node = state.place, self.graph.forward[state.place]
        after = replace(state, place=i + 1)
        is_free = (state.stage > 0) or node.creator is not None
        if i == self.graph.loss:
            if state.stage:
                yield after
                return
            for impl in node.implementations:
                yield from self._started(replace(after, is_last=True), i, impl.duration_s, impl.workspace_bytes)
            return
        if is_free:
            yield after
        here = state.out[0] == i or state.back[0] == i or state.host >> i & 1
        is_ready = all(state.device >> j & 1 for j in node.inputs)
        if node.creator is not None:
            is_ready = bool(state.ran >> node.creator & 1)
        if not is_ready or here:
            return
        impls = (node.again or node.implementations) if state.stage else node.implementations
        ran = replace(after, ran=state.ran | 1 << i)
        if state.stage:  # what is read or made again travels no more
            ran = replace(ran, stuck=ran.stuck | 1 << i | sum(1 << j for j in node.sources))
        for impl in impls:
            yield from self._started(ran, i, impl.duration_s, impl.workspace_bytes)
        over = node.overwrites
        if over is not None and over != state.out[0]:
            gone = replace(ran, device=ran.device & ~(1 << over), stuck=ran.stuck | 1 << over)
            for impl in node.in_place:
                yield from self._started(gone, i, impl.duration_s, impl.workspace_bytes)

    def _started(self, state: _State, i: int, run_s: float, workspace: int) -> Iterator[_State]:
        size = self.size[i]
        away = state.host | (1 << state.back[0] if state.back[0] >= 0 else 0)
        there = state.device & ~(1 << i)
        beside = sum(self.size[j] for j in _members(self.local[i] & ~there & ~away))
        again = size if state.device >> i & 1 else 0
        extra = size - again + workspace + beside
        if self._held(state) + self._base(state.stage) + extra <= self.budget:
            gains = 0 if i == self.graph.loss else 1 << i
            yield replace(state, left=round(run_s / TICK_S), extra=extra, gains=gains)

    def _backward(self, state: _State) -> Iterator[_State]:
        if not state.stage:
            return
        node = self.graph.backward[state.stage - 1]
        for variant in node.variants:
            if all(state.device >> j & 1 for j in variant.needs):
                stuck = state.stuck | sum(1 << j for j in set(variant.needs))
                for impl in variant.implementations:
                    extra = node.output_bytes + impl.workspace_bytes
                    if self._held(state) + self._base(state.stage) + extra <= self.budget:
                        left = round(impl.duration_s / TICK_S)
                        yield replace(state, stuck=stuck, left=left, extra=extra, is_last=True)

    def _base(self, stage: int) -> int:
        if stage == 0 or stage > len(self.graph.backward):
            return self.graph.fixed_bytes
        return self.graph.backward[stage - 1].fixed_bytes + int(self.graph.gradient_bytes[stage - 1])


def _members(tensors: int) -> Iterator[int]:
    while tensors:
        j = tensors.bit_length() - 1
        yield j
        tensors ^= 1 << j
