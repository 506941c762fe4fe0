"""The relaxation's share of offloading: a clock, and the bytes that a link can have carried by each of its times.

Bytes flow here: what is on the host at a moment has left the device before and comes back after, at the link's rate,
in whatever pieces. So every plan whose tensors travel one by one is a point of this. At each step the bytes that are
away are split by deadlines, the stages by which tensors must be back, and once more by releases, the forward nodes
after which they may leave:

- those to be back by a stage come back between now and then, at no more than the link's rate;
- those released after a node have left between then and now;
- no more is away than is kept for later, nor than the host holds.

A step's row of memory is relieved by what is away. Its time is a column; waiting is what a clock may show above the
work that is done. The objective is the clock's last reading, which the work alone bounds from below.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.monet.bounds.windows import Again, Away, Relaxation, Rows, Span
from gapless.model import Model
from gapless.profiles.training.graph import TrainingGraph
from gapless.topologies.host import HostLink

__all__ = ["away_columns", "deadlines", "last_readers", "minimise_end"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_GROUPS = 5
"""Of tensors with like deadlines, or like releases: a group's rows hold for the last deadline, or the first release."""


def away_columns(milp: Model, graph: TrainingGraph, cuts: tuple[int, ...]) -> Away:
    """A column of bytes that are away for each row of memory."""
    forward = np.full(len(graph.forward), -1, dtype=np.int64)
    mains = [number for number, node in enumerate(graph.forward) if node.creator is None]
    forward[mains] = milp.continuous("away_forward", len(mains))
    backward = np.asarray(milp.continuous("away_backward", len(graph.backward)))
    return Away(forward, backward, np.asarray(milp.continuous("away_again", len(cuts))))


def deadlines(graph: TrainingGraph) -> Ids:
    """The stage by which each tensor is back in any plan: the first that reads it in every variant, or the last that
    may, or the last of all; int64, shape (V,).
    """
    count = len(graph.backward)
    must, may = np.full(len(graph.forward), count), np.zeros(len(graph.forward), dtype=np.int64)
    for stage, node in reversed(list(enumerate(graph.backward, 1))):
        for need in set.intersection(*(set(variant.needs) for variant in node.variants)):
            must[need] = stage
        for need in {need for variant in node.variants for need in variant.needs}:
            may[need] = max(may[need], stage)
    found: Ids = np.minimum(must, np.where(may, may, count))
    return found


def last_readers(graph: TrainingGraph) -> Ids:
    """The last forward node that reads each output, an intermediate of it included, or the node itself; int64, (V,)."""
    last = np.arange(len(graph.forward))
    for number, node in enumerate(graph.forward):
        for source in node.sources:
            last[source] = max(last[source], number)
    return last


def minimise_end(
    model: Relaxation,
    link: HostLink,
    spans: list[list[Span]],
    again: list[Again],
    made: Mapping[int, tuple[int, float]],
) -> None:
    """Add the clock and what the link can do by it, and make the end of the step the objective.

    `again`: the recomputations of each window. `made`: columns and seconds of intermediates of the forward pass.
    """
    clock = _Clock(model, again, made)
    flow = _Flow(model, link, clock)
    flow.forward()
    flow.backward(spans)
    flow.again()
    flow.rows.add_to(model.milp, "link")
    model.milp.minimize((1.0, [clock.begin[-1]]))


class _Clock:
    """Columns of times in the model's unit: the starts of forward nodes and of the backward pass (V + 1), the ends of
    forward nodes (V), the begin of each stage and the end of the last (B + 1), the starts of backward nodes (B).

    A node that waits for a copy starts after the end of the one before.
    """

    def __init__(self, model: Relaxation, again: list[Again], made: Mapping[int, tuple[int, float]]) -> None:
        graph, milp = model.graph, model.milp
        nodes, count = len(graph.forward), len(graph.backward)
        self.node: Ids = milp.continuous("clock_forward", nodes + 1)
        self.over: Ids = milp.continuous("clock_forward_end", nodes)
        self.begin: Ids = np.append(self.node[-1:], milp.continuous("clock_stage", count))
        self.start: Ids = milp.continuous("clock_backward", count)
        spent: Ids = milp.continuous("recomputing", count)
        self._rows, self._unit_s = Rows(), model.unit_s
        for node in range(nodes):
            beside = [made[node]] if node in made else []
            work = [*((column, option.duration_s) for option, column in model.forward[node]), *beside]
            self._after(int(self.node[node]), int(self.over[node]), work)
            self._after(int(self.over[node]), int(self.node[node + 1]), ())
        for number in range(count):
            self._after(int(self.begin[number]), int(self.start[number]), [(int(spent[number]), self._unit_s)])
            work = [(column, option.duration_s) for option, column in model.backward[number]]
            self._after(int(self.start[number]), int(self.begin[number + 1]), work)
        for window, groups in enumerate(again):
            first, last = model.span(window)
            self._rows.begin(0.0)
            for option, column in (choice for group in groups for choice in group):
                self._rows.put(column, option.duration_s / self._unit_s)
            for column in spent[first - 1 : last].tolist():
                self._rows.put(column, -1.0)
        self._rows.add_to(milp, "clock", "4.9")

    def _after(self, before: int, after: int, work: Iterable[tuple[int, float]]) -> None:
        """A time is after another by the work in between, at least."""
        self._rows.begin(0.0)
        for column, work_s in work:
            self._rows.put(column, work_s / self._unit_s)
        self._rows.put(before, 1.0)
        self._rows.put(after, -1.0)


@dataclass(frozen=True)
class _Groups:
    """Tensors by number, in groups of ascending keys (`low`..`high` of each)."""

    members: list[list[int]]
    low: list[int]
    high: list[int]

    @classmethod
    def of(cls, key: Ids, size: Floats) -> _Groups:
        """At most `MOST_GROUPS` groups of about as many bytes; tensors of one key are in one group."""
        order = [k for k in np.argsort(key, kind="stable").tolist() if size[k] > 0]
        members: list[list[int]] = []
        total, taken = float(size[order].sum()), 0.0
        for place, tensor in enumerate(order):
            is_new = place == 0 or (
                key[tensor] != key[order[place - 1]] and taken * MOST_GROUPS >= total * len(members)
            )
            if is_new:
                members.append([])
            members[-1].append(tensor)
            taken += float(size[tensor])
        return cls(members, [int(key[group[0]]) for group in members], [int(key[group[-1]]) for group in members])


class _Flow:
    """Rows of what the link can have carried; `rows` collects them."""

    def __init__(self, model: Relaxation, link: HostLink, clock: _Clock) -> None:
        graph = model.graph
        self.rows, self._model, self._clock = Rows(), model, clock
        assert model.away is not None
        self._away = model.away
        self._rate, self._host = link.bytes_per_s * model.unit_s / model.unit_bytes, link.host_bytes / model.unit_bytes
        self._size = graph.output_bytes / model.unit_bytes
        self._size[graph.loss] = 0.0
        self._due, self._free = deadlines(graph), last_readers(graph)
        self._by_due, self._by_free = _Groups.of(self._due, self._size), _Groups.of(self._free, self._size)

    def forward(self) -> None:
        """While a forward node runs."""
        for node, total in enumerate(self._away.forward.tolist()):
            if total >= 0:
                kept = {t: int(self._model.stored[0, t]) for t in range(node) if self._free[t] < node}
                self._left(total, int(self._clock.node[node]), kept)

    def backward(self, spans: list[list[Span]]) -> None:
        """While a backward node runs."""
        held_at: list[dict[int, int]] = [{} for _ in self._model.graph.backward]
        for span in (span for window in spans for span in window):
            for number in range(span.first - 1, min(span.last, int(self._due[span.tensor]) - 1)):
                held_at[number][span.tensor] = span.column
        for number, total in enumerate(self._away.backward.tolist()):
            self._left(total, int(self._clock.start[number]), held_at[number])
            self._returns(total, int(self._clock.start[number]), held_at[number])

    def again(self) -> None:
        """While a node runs again, at any stage of a window."""
        for window, total in enumerate(self._away.again.tolist()):
            first, last = self._model.span(window)
            stored = enumerate(self._model.stored[window].tolist())
            kept = {tensor: column for tensor, column in stored if self._due[tensor] >= first}
            self._left(total, int(self._clock.start[last - 1]), kept)
            self._returns(total, int(self._clock.begin[first - 1]), kept)

    def _left(self, total: int, now: int, held: Mapping[int, int]) -> None:
        """What is away has left since it was released."""
        parts = self._split(total, self._by_free, held)
        for group in parts:
            released = int(self._clock.over[self._by_free.low[group]])
            self._carried([parts[later] for later in parts if later >= group], released, now)
        self.rows.begin(self._host)
        self.rows.put(total, 1.0)

    def _returns(self, total: int, now: int, held: Mapping[int, int]) -> None:
        """What is away comes back by its deadline."""
        parts = self._split(total, self._by_due, held)
        for group in parts:
            due = int(self._clock.start[self._by_due.high[group] - 1])
            self._carried([parts[sooner] for sooner in parts if sooner <= group], now, due)

    def _split(self, total: int, groups: _Groups, held: Mapping[int, int]) -> dict[int, int]:
        """A column for the bytes of each group that are away, no more than are held; together they are the total."""
        parts: dict[int, int] = {}
        for number, members in enumerate(groups.members):
            tensors = [tensor for tensor in members if held.get(tensor, -1) >= 0]
            if tensors:
                parts[number] = int(self._model.milp.continuous(f"away_{len(self.rows.bound)}_{number}"))
                self.rows.begin(0.0)
                self.rows.put(parts[number], 1.0)
                for tensor in tensors:
                    self.rows.put(held[tensor], -self._size[tensor])
        self.rows.begin(0.0)
        self.rows.put(total, 1.0)
        for column in parts.values():
            self.rows.put(column, -1.0)
        return parts

    def _carried(self, columns: Iterable[int], since: int, until: int) -> None:
        """No more than the link carries between two times."""
        self.rows.begin(0.0)
        for column in columns:
            self.rows.put(column, 1.0)
        self.rows.put(until, -self._rate)
        self.rows.put(since, self._rate)
