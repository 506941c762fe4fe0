"""A window of time: its ops go into a new order on some ranks, by a model of whole numbers.

What starts before the window stays as it is. What starts after it keeps its order, so that what an op within the window
adds to the step is the longest path from there. What a rank keeps follows from the order of its own ops, so that a new
order within the window changes nothing for the others. Cells are kept outside, and chosen anew within.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.pipeline.order.exact.kept import Kept, kept_between
from gapless.encodings.pipeline.order.exact.model import after, in_turn
from gapless.encodings.pipeline.order.exact.pairs import Pairs, longer_by, pairs_of
from gapless.encodings.pipeline.order.messages import (
    held,
    hops_s,
    in_their_turn,
    makers,
    queues_of,
    waiting_links,
    with_queues,
)  # fmt: skip
from gapless.encodings.pipeline.order.orders import Order, Timeline
from gapless.encodings.pipeline.order.room import op_message_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.model import Model

__all__ = ["Window"]


@dataclass(frozen=True)
class Window:
    """What starts from `begin` to `end`, in ticks, is in the window; on ranks that are `free` its order is."""

    stages: Stages
    order: Order
    timeline: Timeline
    begin: float
    end: float
    free: Mask

    @cached_property
    def inside(self) -> Mask:
        """By number of op, whether it is in the window."""
        return np.asarray((self.timeline.start_s >= self.begin) & (self.timeline.start_s <= self.end))

    @cached_property
    def is_after(self) -> Mask:
        """By number of op, whether it starts after the window."""
        return np.asarray(self.timeline.start_s > self.end)

    @cached_property
    def is_chosen(self) -> Mask:
        """By number of op, whether the window says which cell it is in, if any: those in it on free ranks."""
        return np.asarray(self.inside & self.free[self._rank(np.arange(len(self.inside)))])

    @cached_property
    def longer(self) -> Floats:
        """By number of op, by how much its cell takes longer than the op, where the window doesn't choose it."""
        return np.where(self.is_chosen, 0.0, longer_by(self.stages, self.order))

    @cached_property
    def held(self) -> Floats:
        """By number of op, how long it holds its rank, alone where the window says which cell it is in."""
        return np.repeat(held(self.stages).reshape(-1), self.stages.micro_batches) + self.longer

    @cached_property
    def flow(self) -> tuple[Ints, Ints, Floats]:
        """Pairs of ops of which the second starts so much after the first does: what a micro-batch passes through.

        The first pairs are those of messages, by number; between two copies of the model nothing waits, and
        slices of a micro-batch take turns.
        """
        stages = self.stages
        numbers = np.arange(len(self.held)).reshape(-1, stages.count, stages.micro_batches)
        forward, backward = numbers[Kind.FORWARD], numbers[Kind.BACKWARD]
        after_s = np.full(stages.count - 1, -np.inf)
        after_s[stages.hops] = 0.0
        pairs = [(forward[:-1], forward[1:], stages.forward_s[:-1] + stages.forward_hop_s + after_s),
                 (backward[1:], backward[:-1], stages.backward_s[1:] + stages.hop_s[0] + after_s),
                 (forward[stages.lasts], backward[stages.lasts], stages.forward_s[stages.lasts])]  # fmt: skip
        if stages.splits:
            pairs.append((backward, numbers[Kind.WEIGHT], stages.backward_s))
        first, then = stages.slice_turns
        pairs += [(forward[first], forward[then], held(stages)[Kind.FORWARD, first]),
                  (backward[then], backward[first], held(stages)[Kind.BACKWARD, then])]  # fmt: skip
        by = [np.broadcast_to(each[:, None], first.shape).reshape(-1) for first, _, each in pairs]
        firsts, seconds = (np.concatenate([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1))
        return firsts, seconds, np.concatenate(by) + self.longer[firsts]

    @cached_property
    def hops(self) -> Floats:
        """By number of message, how long it holds its link."""
        return np.repeat(hops_s(self.stages).reshape(-1), self.stages.micro_batches)

    @cached_property
    def queues(self) -> dict[tuple[int, int], Ints]:
        """Messages on links on which one could wait for another, in the order in which they leave."""
        waiting = waiting_links(self.stages)
        return {link: queue for link, queue in queues_of(self.stages, self.order).items() if link in waiting}

    @cached_property
    def posted(self) -> list[Ints]:
        """Of each queue the messages that ops of the window make."""
        return [queue[self.inside[makers(self.stages, queue)]] for queue in self.queues.values()]

    @cached_property
    def messages(self) -> Ints:
        """All of these."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.posted])

    @cached_property
    def rest(self) -> Floats:
        """By number of op, the time from its start to the step's end, by paths through what comes after the window; of
        spans, less the time at which the rank of the path's last op begins."""
        times, before, partners = self._alone().tolist(), self._before(), self.order.partners
        with_it = partners | {backward: forward for forward, backward in partners.items()}
        after = np.flatnonzero(self.is_after)
        for later in in_turn(self.stages, after, self.timeline.start_s[after], self.held[after])[::-1].tolist():
            times[later] = max(times[later], times[with_it.get(later, later)])  # both begin at once
            for earlier, by in before[later]:
                times[earlier] = max(times[earlier], by + times[later])
        return np.array(times)

    def _alone(self) -> Floats:
        """By number of op, how long it takes, and the sum among replicas after a stage's last ones."""
        stages, alone = self.stages, self.held.copy()
        each = np.repeat(stages.reduce_s[0] + stages.exchange_s, stages.micro_batches)
        own = self.timeline.end_s - self.timeline.start_s
        own = own - np.where(self.is_chosen, longer_by(stages, self.order), 0.0)
        alone[-len(each) :] = np.maximum(alone[-len(each) :], own[-len(each) :] + each)
        return alone - self._first[self._rank(np.arange(len(alone)))] if stages.by_span else alone

    @cached_property
    def _first(self) -> Floats:
        """When each rank begins, where spans are minimised; else the step does, at 0."""
        return np.asarray(self.stages.first_s(self.timeline.start_s) * self.stages.by_span)

    def _before(self) -> dict[int, list[tuple[int, float]]]:
        """Of each op after the window, those that it waits for, and how long after their start it starts."""
        before: dict[int, list[tuple[int, float]]] = {op: [] for op in np.flatnonzero(self.is_after).tolist()}
        firsts, seconds, by = self.flow
        is_after = self.is_after[seconds]
        for earlier, later, late in zip(*(column[is_after].tolist() for column in (firsts, seconds, by)), strict=True):
            before[later].append((earlier, late))
        for sequence in self.order.sequences:
            ops, inside = sequence.tolist(), sequence[self.inside[sequence]].tolist()
            for op, later in pairwise(ops):
                if later in before and op not in self.order.cells:
                    before[later].append((op, self.held[op]))
                    if op not in before:  # the first after the window waits for whichever is last within it
                        before[later] += [(other, self.held[other]) for other in inside]
        return before

    @cached_property
    def own_messages(self) -> Floats:
        """What a plain op of a kind and stage uses and makes, shape (2, S)."""
        return op_message_bytes(self.stages, np.zeros((self.stages.count - 1, 1), dtype=np.int64))[:, :, 0]

    @cached_property
    def least(self) -> float:
        """The step's end, or the longest span, whatever the order within the window."""
        before = ~self.inside & ~self.is_after
        return float((self.timeline.start_s + self.rest)[before].max(initial=0.0))

    @cached_property
    def ops(self) -> Ints:
        """The numbers of the ops within the window."""
        return np.flatnonzero(self.inside)

    def model(self) -> Model:
        """Columns: the start of each op of the window, the end of each rank, that of the step, the ends of time, cells,
        and when messages leave that could wait."""
        return self._built[0]

    @cached_property
    def _built(self) -> tuple[Model, Pairs | None]:
        """The model, and in it what may be in one cell."""
        stages, model, horizon = self.stages, Model("pipeline_window"), 2 * self.timeline.step_s
        starts = model.integers("start", len(self.ops), lower=self._heads(), upper=horizon)
        ends = model.integers("end", stages.ranks, upper=horizon)
        step = model.integers("step", lower=self.least, upper=horizon)
        edges = model.integers("edge", 2, lower=np.array([0.0, horizon]), upper=np.array([0.0, horizon]))
        column = np.full(len(self.held), -1, dtype=np.int64)
        column[self.ops] = starts
        rank = self._rank(self.ops)
        pairs = self._pairs(model, column) if stages.has_cells else None
        late = column if pairs is None else pairs.late
        earlier, later, by = self._arcs()
        after(model, "flow", column[later], late[earlier], by)
        own_rank = [self.ops[rank == r] for r in np.flatnonzero(self.free).tolist()]
        apart = [[(column[ops], self.held[ops])] if pairs is None else pairs.one_at_a_time(column, ops, self.held)
                 for ops in own_rank]  # fmt: skip
        model.no_overlap("one_op_at_a_time", [activities for own in apart for activities in own])
        self._keep(model, column, late, edges)
        after(model, "rank_ends", ends[rank], late[self.ops], self.rest[self.ops])
        after(model, "step_ends", np.full(stages.ranks, step), ends, np.zeros(stages.ranks))
        self._send(model, column, late, ends)
        model.minimize((float(stages.ranks + 1), step), (1.0, ends))
        return model, pairs

    def _pairs(self, model: Model, column: Ints) -> Pairs:
        """What may be in one cell, in an order that is no worse than this one."""
        earliest = np.zeros(len(column))
        earliest[self.ops] = self._heads()
        return pairs_of(model, self.stages, column, self.is_chosen, earliest, self.timeline.step_s - self.rest)

    def values(self) -> Floats:
        """The point of the order as it is."""
        starts = self.timeline.start_s[self.ops]
        ends = np.zeros(self.stages.ranks)
        longer = longer_by(self.stages, self.order) - self.longer
        np.maximum.at(ends, self._rank(self.ops), starts + (longer + self.rest)[self.ops])
        sent = self.timeline.sent_s.reshape(-1)[self.messages]
        made, used, is_after = self._used_after()
        np.maximum.at(ends, self._rank(made), (sent + self.hops[self.messages])[is_after] + self.rest[used])
        step = max(self.least, ends.max())
        model, pairs = self._built
        values = np.zeros(model.column_count)
        values[: len(starts) + len(ends) + 3] = np.concatenate([starts, ends, [step, 0.0, 2 * self.timeline.step_s]])
        values[len(values) - len(sent) :] = sent
        if pairs is not None:
            pairs.fill(values, self.timeline.start_s, self.order.partners)
        return values

    def order_of(self, values: Floats) -> Order:
        """The order of a point."""
        starts, held_for, (_, pairs) = np.round(values[: len(self.ops)]), self.held, self._built
        cells = frozenset(cell for cell in self.order.cells if not self.is_chosen[cell])
        if pairs is not None:
            cells, held_for = cells | pairs.cells(values), pairs.held(values, self.held)
        sorted_ops = in_turn(self.stages, self.ops, starts, held_for[self.ops])
        rank, sequences = self._rank(sorted_ops), list(self.order.sequences)
        for r in np.flatnonzero(self.free).tolist():
            sequence = sequences[r].copy()
            sequence[self.inside[sequence]] = sorted_ops[rank == r]
            sequences[r] = sequence
        order = replace(self.order, sequences=tuple(sequences), posts=None, cells=cells)
        return with_queues(self.stages, order, self._queues_of(values))

    def _queues_of(self, values: Floats) -> dict[tuple[int, int], Ints]:
        """Those of a point; what is made before the window leaves before, and what after it, after."""
        starts, sent = np.zeros(len(self.held)), np.zeros(len(self.hops))
        starts[self.ops] = np.round(values[: len(self.ops)])
        if len(self.messages):
            sent[self.messages] = np.round(values[-len(self.messages) :])
        queues = {}
        for (link, queue), posted in zip(self.queues.items(), self.posted, strict=True):
            made = makers(self.stages, queue)
            turn = in_their_turn(self.stages, posted, sent[posted], starts[makers(self.stages, posted)])
            first, last = queue[~self.inside[made] & ~self.is_after[made]], queue[self.is_after[made]]
            queues[link] = np.concatenate([first, turn, last])
        return queues

    def _rank(self, ops: Ints) -> Ints:
        return np.asarray(self.stages.rank[ops // self.stages.micro_batches % self.stages.count])

    def _heads(self) -> Floats:
        """When ops of the window can start at the earliest: after what comes before it."""
        heads, before = self._first[self._rank(np.arange(len(self.held)))], ~self.inside & ~self.is_after
        firsts, seconds, by = self.flow
        comes, ready = before[firsts], self.timeline.start_s[firsts] + by
        ready[: len(self.hops)] = self.timeline.sent_s.reshape(-1) + self.hops
        np.maximum.at(heads, seconds[comes], ready[comes])
        for sequence in self.order.sequences:
            done = sequence[before[sequence]]
            free = float((self.timeline.start_s + self.held)[done].max(initial=0.0))
            heads[sequence] = np.maximum(heads[sequence], free)
        return heads[self.ops]

    def _arcs(self) -> tuple[Ints, Ints, Floats]:
        """All that has to follow within the window: the flow but for messages that could wait; on free ranks first in,
        first out; else the order."""
        arcs = [tuple(np.delete(column, self.messages) for column in self.flow)]
        chains = [sequence[self.inside[sequence]] for sequence in self.order.sequences]
        cells = [(f, b) for f, b in self.order.partners.items() if self.inside[f] and not self.is_chosen[f]]
        in_turn = np.arange(len(self.held)).reshape(-1, self.stages.micro_batches)
        at_once = np.array([forward for forward, _ in cells], dtype=np.int64)
        held_for = self.held.copy()
        held_for[at_once] = 0.0
        arcs += [(chain[:-1], chain[1:], held_for[chain[:-1]]) for chain, free in zip(chains, self.free, strict=True)
                 if not free]  # fmt: skip
        arcs.append((np.array([backward for _, backward in cells], dtype=np.int64), at_once, np.zeros(len(cells))))
        arcs.append((in_turn[:, :-1].reshape(-1), in_turn[:, 1:].reshape(-1), self.held[in_turn[:, :-1].reshape(-1)]))
        earlier, later, late = (np.concatenate(columns) for columns in zip(*arcs, strict=True))
        both = self.inside[earlier] & self.inside[later] & np.isfinite(late)
        return earlier[both], later[both], late[both]

    def _send(self, model: Model, column: Ints, late: Ints, ends: Ints) -> None:
        """Messages that could wait for one another go one at a time, after what was made before the window."""
        if not len(self.messages):
            return
        (firsts, seconds, _), hops = self.flow, self.hops
        leaves, own = self.timeline.sent_s.reshape(-1) + hops, self._own()
        sent = np.full(len(hops), -1, dtype=np.int64)
        for queue, posted in zip(self.queues.values(), self.posted, strict=True):
            made = firsts[queue]
            free = leaves[queue[~self.inside[made] & ~self.is_after[made]]].max(initial=0.0)
            name = f"sent_{self._rank(made[:1]).item()}_{self._rank(seconds[queue[:1]]).item()}"
            sent[posted] = model.integers(name, len(posted), lower=free, upper=2 * self.timeline.step_s)
        each = self.messages
        after(model, "message_after_op", sent[each], late[firsts[each]], (own + self.longer[firsts[: len(own)]])[each])
        within = each[self.inside[seconds[each]]]
        after(model, "message_before_op", column[seconds[within]], sent[within], hops[within])
        made, used, is_after = self._used_after()
        later = each[is_after]
        after(model, "rank_ends_after_message", ends[self._rank(made)], sent[later], hops[later] + self.rest[used])
        model.no_overlap("one_message_at_a_time", [(sent[posted], hops[posted]) for posted in self.posted])

    def _own(self) -> Floats:
        """By number of message, from the start of its op to its end."""
        stages = self.stages
        return np.repeat(np.concatenate([stages.forward_s[:-1], stages.backward_s[1:]]), stages.micro_batches)

    def _used_after(self) -> tuple[Ints, Ints, Mask]:
        """Of the window's messages that are used after it: what makes each, what uses it; and which they are."""
        firsts, seconds, _ = self.flow
        is_after = self.is_after[seconds[self.messages]]
        messages = self.messages[is_after]
        return firsts[messages], seconds[messages], is_after

    def _keep(self, model: Model, column: Ints, late: Ints, edges: Ints) -> None:
        """What micro-batches keep while the window lasts fits into the memory of each free rank."""
        stages = self.stages
        numbers = np.arange(len(self.held)).reshape(-1, stages.count, stages.micro_batches)
        for rank in np.flatnonzero(self.free).tolist():
            here = np.flatnonzero(stages.rank == rank)
            kept = kept_between(stages, here, numbers)
            if stages.counts_messages:  # at least while their ops run; what they are besides is seen when it is timed
                for kind in (Kind.FORWARD, Kind.BACKWARD):
                    for stage in here.tolist():
                        ops, size = numbers[kind, stage], int(self.own_messages[kind, stage])
                        kept = kept.with_more(Kept.even(ops, ops, held(stages)[kind, stage], size))
            last = self.inside[kept.ends]
            begins, ends, delays, sizes = kept.where(~self.is_after[kept.begins] & (last | self.is_after[kept.ends]))
            if sizes.sum() <= stages.room_bytes[rank]:
                continue
            unit = int(np.gcd.reduce(sizes))
            model.cumulative(
                f"memory_{rank}",
                np.where(self.inside[begins], column[begins], edges[0]),
                np.where(self.inside[ends], late[ends], edges[1]),
                np.where(self.inside[ends], delays + self.longer[ends], 0.0),
                sizes // unit,
                stages.room_bytes[rank] // unit,
            )
