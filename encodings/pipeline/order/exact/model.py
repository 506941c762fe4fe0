"""The order as a model of whole numbers: when each op starts, in ticks. One family of rules is one function.

Micro-batches are alike, so that of each kind and stage they go first in, first out, and nothing is lost: exchange the
names of two that overtake one another, and all rules still hold at the same times.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.bounds import spans_s
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.order.exact.kept import Kept, kept_between
from gapless.encodings.pipeline.order.exact.pairs import Pairs, pairs_of
from gapless.encodings.pipeline.order.messages import held, hops_s, in_their_turn, makers, waiting_links, with_queues
from gapless.encodings.pipeline.order.orders import Order, Timeline, plain
from gapless.encodings.pipeline.order.room import posts_at
from gapless.encodings.pipeline.order.stages import Kind, Stages, rooms
from gapless.model import Model

__all__ = ["OrderModel", "after", "in_turn", "order_model", "order_of", "values_of"]


@dataclass(frozen=True)
class OrderModel:
    """`starts`: columns of shape (kinds, S, M), the start of each op. `sent`: of shape (2, S - 1, M), when messages
    leave; -1 where that is when their op ends. `summed`: of shape (S,), when a stage's sum among replicas starts; -1
    where there is none. `step`: the column of what is minimised, the step's end or the longest span. `first`: of steps
    that follow one another, the column of the first rank's end. `begins`: of spans, columns of shape (P,), no later
    than each rank's first op. `late`: as `starts`, later by as much as its cell takes longer than the op.
    `pairs`: None where there are no cells.
    """

    model: Model
    stages: Stages
    starts: Ints
    late: Ints
    pairs: Pairs | None
    sent: Ints
    summed: Ints
    step: int
    first: int = -1
    begins: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def order_model(stages: Stages, horizon: float, least: float = 0.0) -> OrderModel:
    """`stages`: in ticks. `horizon`: what the best known order takes, a step or a span; `least`: a bound on every one.

    Where a span is minimised, the first op begins at 0, on a rank that has a first stage. Then each other rank begins
    within its span: its first forward comes before its last backward, and that before one of that rank's. Of steps that
    follow one another the first rank takes that long for each, and then the last one takes its step: a relaxation,
    since others may take longer.
    """
    kinds, micro_batches = 3 if stages.splits else 2, stages.micro_batches
    model, most = Model("pipeline_order"), horizon
    first_s = spans_s(stages)[int(stages.rank[0])] if stages.steps > 1 else 0.0
    horizon = 2 * most if stages.by_span else most - (stages.steps - 1) * first_s
    starts = model.integers("start", (kinds, stages.count, micro_batches), upper=horizon)
    step = model.integers("step", lower=least, upper=most)
    sent = np.full((2, max(stages.count - 1, 0), micro_batches), -1, dtype=np.int64)
    links = waiting_links(stages)
    for (a, b), (kind, hop) in ((link, send) for link, sends in links.items() for send in sends):
        sent[kind, hop] = model.integers(f"sent_{a}_{b}_{kind}_{hop}", micro_batches, upper=horizon)
    summed = np.full(stages.count, -1, dtype=np.int64)
    if stages.reduce_s[0].any() or (stages.by_span and stages.copies > 1):  # a span waits for the other copy's sum
        summed = model.integers("summed", stages.count, upper=horizon)
    first = int(model.integers("first", lower=first_s, upper=horizon)) if stages.steps > 1 else -1
    begins = _begins(model, stages, starts, horizon) if stages.by_span else np.zeros(0, dtype=np.int64)
    pairs = _pairs(model, stages, starts, most) if stages.has_cells else None
    late = starts if pairs is None else pairs.late.reshape(starts.shape)
    ordered = OrderModel(model, stages, starts, late, pairs, sent, summed, int(step), first, begins)
    _forwards_follow(ordered)
    _backwards_follow(ordered)
    _slices_take_turns(ordered)
    _weights_follow(ordered)
    _first_in_first_out(ordered)
    _one_op_at_a_time(ordered)
    _one_message_at_a_time(ordered, list(links.values()))
    _memory(ordered)
    _sums_follow(ordered)
    _ends(ordered)
    _link_spans(ordered, list(links.values()))
    _heads_and_tails(ordered)
    model.minimize((1.0, ordered.step))
    return ordered


def _pairs(model: Model, stages: Stages, starts: Ints, most: float) -> Pairs:
    """All that may be in one cell."""
    heads = heads_and_tails(stages)
    latest = most - (heads.own_s[:, :, None] + heads.tail_s).reshape(-1)
    column = starts.reshape(-1)
    return pairs_of(model, stages, column, np.ones(len(column), dtype=np.bool_), heads.head_s.reshape(-1), latest)


def _begins(model: Model, stages: Stages, starts: Ints, horizon: float) -> Ints:
    """The first forward of the rank's lowest stage; of two copies of the model, whichever is first."""
    here = [starts[Kind.FORWARD, np.flatnonzero(stages.rank == rank), 0] for rank in range(stages.ranks)]
    if stages.copies == 1:
        return np.array([own[0] for own in here])
    begins: Ints = model.integers("begin", stages.ranks, upper=horizon)
    for rank, own in enumerate(here):
        after(model, f"begins_first_{rank}", own, np.broadcast_to(begins[rank], own.shape), 0.0)
    return begins


def _arrivals(ordered: OrderModel, kind: Kind) -> tuple[Ints, Floats]:
    """The column after which each hop's message is there, shape (S - 1, M), and how long after it, (S - 1, 1).

    A message that never waits for another leaves when its op ends.
    """
    stages, senders = ordered.stages, slice(0, -1) if kind is Kind.FORWARD else slice(1, None)
    own_s = (stages.forward_s if kind is Kind.FORWARD else stages.backward_s)[senders]
    waits = ordered.sent[kind] >= 0
    columns = np.where(waits, ordered.sent[kind], ordered.late[kind, senders])
    return columns, (hops_s(stages)[kind] + np.where(waits.any(axis=1), 0.0, own_s))[:, None]


def _forwards_follow(ordered: OrderModel) -> None:
    """A forward starts after the activation of the stage before it is there."""
    (columns, late), hops = _arrivals(ordered, Kind.FORWARD), ordered.stages.hops
    after(ordered.model, "forward_after_forward", ordered.starts[Kind.FORWARD, hops + 1], columns[hops], late[hops])


def _backwards_follow(ordered: OrderModel) -> None:
    """A gradient of the input is computed after that of the stage after it is there; the last stage's, after its
    forward."""
    stages, (columns, late) = ordered.stages, _arrivals(ordered, Kind.BACKWARD)
    hops, lasts = stages.hops, stages.lasts
    after(ordered.model, "backward_after_backward", ordered.starts[Kind.BACKWARD, hops], columns[hops], late[hops])
    forward, backward = ordered.late[Kind.FORWARD, lasts], ordered.starts[Kind.BACKWARD, lasts]
    after(ordered.model, "backward_after_forward", backward, forward, stages.forward_s[lasts, None])


def _slices_take_turns(ordered: OrderModel) -> None:
    """On each stage a micro-batch's slices go forth one after the other, and back in the reverse order."""
    first, then = ordered.stages.slice_turns
    late, (forward, backward) = held(ordered.stages)[:, :, None], ordered.starts[: Kind.WEIGHT]
    after(ordered.model, "slices_go_forth", forward[then], forward[first], late[Kind.FORWARD, first])
    after(ordered.model, "slices_come_back", backward[first], backward[then], late[Kind.BACKWARD, then])


def _weights_follow(ordered: OrderModel) -> None:
    """A gradient of the weights is computed after that of the input."""
    if ordered.stages.splits:
        late = ordered.stages.backward_s[:, None]
        after(ordered.model, "weight_after_backward", ordered.starts[Kind.WEIGHT], ordered.late[Kind.BACKWARD], late)


def _first_in_first_out(ordered: OrderModel) -> None:
    """Of each kind and stage, a micro-batch goes after the one before it."""
    late = held(ordered.stages)[:, :, None]
    after(ordered.model, "first_in_first_out", ordered.starts[:, :, 1:], ordered.late[:, :, :-1], late)


def _one_op_at_a_time(ordered: OrderModel) -> None:
    """A rank runs one op at a time, or a cell."""
    starts, pairs = ordered.starts.reshape(-1), ordered.pairs
    held_s = np.repeat(held(ordered.stages).reshape(-1), ordered.stages.micro_batches)
    numbers = np.arange(len(starts)).reshape(ordered.starts.shape)
    activities: list[tuple[Ints | Floats, ...]] = []
    for rank in range(ordered.stages.ranks):
        own = numbers[:, ordered.stages.rank == rank].reshape(-1)
        activities += [(starts[own], held_s[own])] if pairs is None else pairs.one_at_a_time(starts, own, held_s)
    ordered.model.no_overlap("one_op_at_a_time", activities)


def _one_message_at_a_time(ordered: OrderModel, links: list[list[tuple[int, int]]]) -> None:
    """A link carries one message at a time, after the op that it comes from."""
    stages, hop_s = ordered.stages, hops_s(ordered.stages)
    own_s = np.stack([stages.forward_s[:-1], stages.backward_s[1:]])
    activities = []
    for number, sends in enumerate(links):
        columns = np.stack([ordered.sent[send] for send in sends])
        made = np.stack([ordered.late[kind, hop + kind] for kind, hop in sends])
        late = np.array([own_s[send] for send in sends])[:, None]
        after(ordered.model, f"message_after_op_{number}", columns, made, late)
        activities.append((columns, np.broadcast_to(np.array([[hop_s[send]] for send in sends]), columns.shape)))
    if activities:
        reshaped = [(columns.reshape(-1), held_s.reshape(-1)) for columns, held_s in activities]
        ordered.model.no_overlap("one_message_at_a_time", reshaped)


def _memory(ordered: OrderModel) -> None:
    """What micro-batches keep fits into each rank's memory.

    Where a rank has one stage, there is room for K of them until their backward, for more until their weight gradient,
    and first in, first out makes precedences of these. Where they keep as much from first to last, that is all.
    Elsewhere activities share bytes.
    """
    stages, micro_batches = ordered.stages, ordered.stages.micro_batches
    for rank, room_bytes in enumerate(stages.room_bytes.tolist()):
        here = np.flatnonzero(stages.rank == rank)
        messages = _messages(ordered, rank)
        if stages.full_bytes[here].sum() * micro_batches + messages.sizes.sum() <= room_bytes:
            continue
        if len(here) == 1:
            _take_turns(ordered, int(here[0]))
            if len(stages.spans) == 1 and not len(messages.sizes):
                continue
        kept = kept_between(stages, here, ordered.starts, ordered.late).with_more(messages)
        unit = int(np.gcd.reduce(kept.sizes))
        ordered.model.cumulative(
            f"memory_{rank}", kept.begins, kept.ends, kept.delays, kept.sizes // unit, room_bytes // unit
        )


def _messages(ordered: OrderModel, rank: int) -> Kept:
    """What a rank holds of messages: of one that it sends until it has arrived, of one that it gets from when it leaves
    until it is used. Where sends block only what the op itself holds is counted, which is less.
    """
    stages, starts, held_s, hop_s = ordered.stages, ordered.starts, held(ordered.stages), hops_s(ordered.stages)
    found = Kept.none()
    for kind, hop in product((Kind.FORWARD, Kind.BACKWARD), range(stages.count - 1) if stages.is_pressed else ()):
        maker, user, size = hop + kind, hop + 1 - kind, int(stages.message_bytes[0, hop])
        made, used, sent = starts[kind, maker], starts[kind, user], ordered.sent[kind, hop]
        if not stages.crosses[hop]:
            parts = [(made, used, held_s[kind, user], rank == stages.rank[maker])]
        elif (sent < 0).all():
            parts = [(made, made, held_s[kind, maker], rank == stages.rank[maker]),
                     (used, used, held_s[kind, user], rank == stages.rank[user])]  # fmt: skip
        else:
            parts = [(made, sent, hop_s[kind, hop], rank == stages.rank[maker]),
                     (sent, used, held_s[kind, user], rank == stages.rank[user])]  # fmt: skip
        for begins, ends, delay_s, is_here in parts:
            if is_here and size:
                found = found.with_more(Kept.even(begins, ends, delay_s, size))
    return found


def _take_turns(ordered: OrderModel, stage: int) -> None:
    """On a rank with one stage the forward of micro-batch m + K follows the op of micro-batch m that makes room."""
    stages, micro_batches, held_s = ordered.stages, ordered.stages.micro_batches, held(ordered.stages)
    counts = {kind: int(most[stage]) for kind, most in rooms(stages).items()}
    for kind, most in counts.items():
        if most < micro_batches and (kind is stages.last or most < counts[stages.last]):
            first, late = ordered.starts[Kind.FORWARD, stage], ordered.late[kind, stage]
            family = f"memory_{kind.name.lower()}_{stages.rank[stage]}"
            after(ordered.model, family, first[most:], late[: micro_batches - most], held_s[kind, stage])


def _sums_follow(ordered: OrderModel) -> None:
    """A stage's gradients are summed among copies and replicas after its last micro-batch, one stage at a time on a
    rank; all copies of a stage at once, and all of its slices together."""
    stages = ordered.stages
    if (ordered.summed < 0).all():
        return
    last_s = stages.weight_s if stages.splits else stages.backward_s
    after(ordered.model, "sum_after_last", ordered.summed, ordered.late[-1, :, -1], last_s)
    if stages.depth < stages.count:
        every = ordered.summed.reshape(-1, stages.depth)
        after(ordered.model, "all_are_summed_at_once", np.roll(every, 1, axis=0), every, 0.0)
    here = [np.flatnonzero(stages.rank[: stages.weighted] == rank) for rank in range(stages.ranks)]
    activities = [(ordered.summed[own], stages.reduce_s[0, own]) for own in here]
    ordered.model.no_overlap("one_sum_at_a_time", activities)


def _ends(ordered: OrderModel) -> None:
    """The step ends after each stage's last micro-batch, its sum, and the exchange of a shared embedding."""
    stages = ordered.stages
    _within(ordered, "ends_after_last", ordered.late[-1, :, -1], held(stages)[-1], stages.rank)
    last_s = stages.weight_s if stages.splits else stages.backward_s
    columns, before = (ordered.summed, stages.reduce_s[0]) if (ordered.summed >= 0).all() else (
        ordered.late[-1, :, -1], last_s)  # fmt: skip
    _within(ordered, "ends_after_sum", columns, stages.exchange_s + before, stages.rank)
    if stages.embedding_s and stages.is_repeated:  # each end waits for the other
        for rank, other in sorted({tuple(stages.rank[ends].tolist()) for ends in ([0, -1], [-1, 0])}):
            there = stages.rank == other
            by = (stages.embedding_s + before)[there]
            _within(ordered, f"ends_after_sum_{other}_{rank}", columns[there], by, np.full(len(by), rank))


def _within(ordered: OrderModel, family: str, earlier: Ints, by: Floats, rank: Ints) -> None:
    """Rows, all of one shape: what is minimised is at least `earlier` plus `by`; of spans, less the first start on the
    rank of each row; of steps that follow one another, besides the first rank's ends of all but the last one."""
    step = np.full(earlier.shape, ordered.step, dtype=np.int64)
    if ordered.stages.steps > 1:
        _before_last(ordered, family, earlier, by)
        own = np.flatnonzero(rank == ordered.stages.rank[0])
        after(ordered.model, f"first_{family}", np.int64(ordered.first), earlier[own], by[own])
        return
    if not ordered.stages.by_span:
        after(ordered.model, family, step, earlier, by)
        return
    first = ordered.begins[rank]
    ordered.model.add(family, (np.array([1.0, 1.0, -1.0]), np.stack([step, first, earlier], axis=-1)), lower=by)


def _before_last(ordered: OrderModel, family: str, earlier: Ints, by: Floats) -> None:
    """Rows: the last step, which begins after the first rank's ends of all others, lasts until `earlier` plus `by`."""
    first, step = (np.full(earlier.shape, column, dtype=np.int64) for column in (ordered.first, ordered.step))
    terms = np.array([1.0, -float(ordered.stages.steps - 1), -1.0]), np.stack([step, first, earlier], axis=-1)
    ordered.model.add(family, terms, lower=by)


def _link_spans(ordered: OrderModel, links: list[list[tuple[int, int]]]) -> None:
    """On a link on which one message may wait for another, the last is there within a span of the first; of each kind
    and hop they go first in, first out."""
    for number, sends in enumerate(links if ordered.stages.by_span else ()):
        own = np.stack([ordered.sent[send] for send in sends])
        hop_s = np.array([hops_s(ordered.stages)[send] for send in sends])
        after(ordered.model, f"messages_in_turn_{number}", own[:, 1:], own[:, :-1], hop_s[:, None])
        first, last = np.meshgrid(own[:, 0], own[:, -1])
        columns = np.stack([np.full_like(first, ordered.step), first, last], axis=-1)
        by = np.broadcast_to(hop_s[:, None], first.shape)
        ordered.model.add(f"link_span_{number}", (np.array([1.0, 1.0, -1.0]), columns), lower=by)


def _heads_and_tails(ordered: OrderModel) -> None:
    """An op starts no sooner than its head, and its tail passes before the step ends.

    That follows from the other rules, but the solver doesn't see what memory makes wait: with this, proofs of small
    questions are a hundred times faster.
    """
    stages, starts = ordered.stages, ordered.starts
    heads = heads_and_tails(stages)
    ordered.model.add("heads", (1.0, starts[..., None]), lower=heads.head_s)
    if stages.steps > 1:
        _before_last(ordered, "tails", starts, heads.own_s[:, :, None] + heads.tail_s)
        first_s = heads_and_tails(stages, rank=int(stages.rank[0])).tail_s
        after(ordered.model, "first_tails", np.int64(ordered.first), starts, heads.own_s[:, :, None] + first_s)
        return
    if not stages.by_span:
        after(ordered.model, "tails", np.int64(ordered.step), ordered.late, heads.own_s[:, :, None] + heads.tail_s)
        return
    for rank in range(stages.ranks):
        here, span = stages.rank == rank, heads_and_tails(stages, rank=rank)
        ops, rest_s = starts[:, here], (span.own_s[:, :, None] + span.tail_s)[:, here]
        first = np.broadcast_to(ordered.begins[rank], ops.shape)
        after(ordered.model, f"heads_{rank}", ops, first, span.head_s[:, here])
        _within(ordered, f"tails_{rank}", ops, rest_s, np.full(ops.shape, rank))


def after(model: Model, family: str, later: Ints | np.int64, earlier: Ints, by: Floats | float) -> None:
    """Rows: `later` is at least `earlier` plus `by`; all broadcast."""
    later, by = np.broadcast_to(later, earlier.shape), np.broadcast_to(by, earlier.shape)
    if earlier.size:
        pairs = np.stack([later, earlier], axis=-1)
        model.add(family, (np.array([1.0, -1.0]), pairs), lower=by)


def values_of(ordered: OrderModel, timeline: Timeline, order: Order | None = None) -> Floats:
    """The point of an order's timeline in ticks, of one step where several follow one another. Where times aren't
    whole, as those of the least span needn't be, they are rounded down: what was a whole number apart still is.
    `order`: where it has cells."""
    values = np.full(ordered.model.column_count, np.nan)
    values[ordered.starts.reshape(-1)] = timeline.start_s
    if ordered.pairs is not None:
        ordered.pairs.fill(values, timeline.start_s, {} if order is None else order.partners)
    waits = ordered.sent >= 0
    values[ordered.sent[waits]] = timeline.sent_s[waits]
    if (ordered.summed >= 0).all():
        values[ordered.summed] = timeline.reduced_s - ordered.stages.reduce_s[0]
    values[ordered.step] = np.ceil(timeline.cost_s)
    if ordered.stages.by_span and ordered.stages.copies > 1:
        values[ordered.begins] = ordered.stages.first_s(timeline.start_s)
    if ordered.first >= 0:
        values[ordered.first] = timeline.finish_s[ordered.stages.rank[0]]
        values[ordered.step] += (ordered.stages.steps - 1) * values[ordered.first]
    return np.asarray(np.floor(values))


def order_of(ordered: OrderModel, values: Floats) -> Order:
    """The order of a point: of ops, cells, and messages where one could wait for another."""
    stages, starts, cells = ordered.stages, np.round(values[ordered.starts]).reshape(-1), frozenset[int]()
    held_for = np.repeat(held(stages).reshape(-1), stages.micro_batches)
    if ordered.pairs is not None:
        cells, held_for = ordered.pairs.cells(values), ordered.pairs.held(values, held_for)
    numbers = in_turn(stages, np.arange(len(starts)), starts, held_for)
    ranks = stages.rank[numbers // stages.micro_batches % stages.count]
    order = replace(plain(stages, [numbers[ranks == rank].tolist() for rank in range(stages.ranks)]), cells=cells)
    every = np.arange(ordered.sent.size).reshape(ordered.sent.shape)
    queues = {}
    for link, sends in waiting_links(stages).items():
        messages = np.concatenate([every[send] for send in sends])
        sent = np.round(values[ordered.sent.reshape(-1)[messages]])
        queues[link] = in_their_turn(stages, messages, sent, starts[makers(stages, messages)])
    order = with_queues(stages, order, queues)
    if not stages.is_pressed:
        return order
    sent = np.asarray(np.round(np.where(ordered.sent < 0, 0.0, values[ordered.sent])), dtype=np.float64)
    return replace(order, posts=posts_at(stages, order.sequences, order.messages, starts, starts + held_for, sent))


def in_turn(stages: Stages, ops: Ints, starts: Floats, held_for: Floats) -> Ints:
    """The ops by their starts; of those that start at once, what takes no time first, as a micro-batch passes them."""
    kind, stage = ops // (stages.count * stages.micro_batches), ops // stages.micro_batches % stages.count
    depth = np.where(kind == Kind.FORWARD, stage, 2 * stages.count - stage + (kind == Kind.WEIGHT))
    return np.asarray(ops[np.lexsort((depth, starts + held_for, starts))])
