"""Room for messages: what ranks hold of them, and when one may leave so that its receiver has room for it.

A message is held by its sender from the op that makes it until it has arrived, and by its receiver from when it leaves
until the op that uses it ends. Where a rank has no room for all of that, receives are posted in its own order: a
message leaves when the receiver has come to the op from which on there is room for it, and the sender waits with an op
for which there is none before a message is gone. So what a rank holds follows from the order of its ops alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.checker.timeline import instants_of, tolerance_s
from gapless.encodings.pipeline.order.offload import Offloads, offloads_of
from gapless.encodings.pipeline.order.orders import Posts, Timeline
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["held_bytes", "offloads_at", "op_message_bytes", "peak_bytes", "posts_at", "posts_of"]

_AHEAD = 8
"""Ops before its use, or after it was made, for which room for a message is kept at most where room is short."""
_FIRST, _LAST = -1.0, math.inf
"""At an instant: before and behind all turns."""


def op_message_bytes(stages: Stages, hop_modes: Ints) -> Floats:
    """What an op holds of messages while it runs: what it uses and what it makes; float of shape (2, S, M).

    A gradient that is compressed is held plain and encoded. Where sends block, what an op has used is gone when the
    message leaves, and the message is held twice.
    """
    plain = np.broadcast_to(stages.message_bytes[0, :, None], hop_modes.shape)
    hop = np.arange(stages.count - 1)[:, None]
    sent = stages.message_bytes[hop_modes, hop]
    encoded = np.where(hop_modes > 0, sent, 0.0)
    found = np.zeros((2, stages.count, hop_modes.shape[1]))
    found[Kind.FORWARD, 1:] += plain
    found[Kind.FORWARD, :-1] += plain
    found[Kind.BACKWARD, :-1] += plain + encoded
    found[Kind.BACKWARD, 1:] += plain + encoded
    if stages.blocks:
        twice = np.where(stages.crosses[:, None], 2.0, 0.0)
        found[Kind.FORWARD, :-1] = np.maximum(found[Kind.FORWARD, :-1], twice * plain)
        found[Kind.BACKWARD, 1:] = np.maximum(found[Kind.BACKWARD, 1:], twice * sent)
    return found


def peak_bytes(stages: Stages, program: Ints) -> Floats:
    """The most that micro-batches keep on each rank at once, float of shape (P,); what ends goes before what starts.

    `program`: all ops as they start, as in a `Timeline`.
    """
    takes, leaves = stages.changes
    kind, stage = np.divmod(program // stages.micro_batches, stages.count)
    taken, left, rank = takes[kind, stage], leaves[kind, stage], stages.rank[stage]
    peaks = np.zeros(stages.ranks)
    for here in range(stages.ranks):  # a rank runs one op after the other
        ops = rank == here
        peaks[here] = (np.cumsum(taken[ops]) - np.cumsum(left[ops]) + left[ops]).max(initial=0.0)
    return peaks


def held_bytes(stages: Stages, hop_modes: Ints, timeline: Timeline) -> Floats:
    """The most that each rank holds at once of micro-batches and messages, float of shape (P,); states apart.

    What ends at an instant ends first. Then what takes no time comes and goes, one after the other as it passed, as the
    replay has it: of two messages one is gone before the other comes. Then the rest begins.
    """
    ledger = _Ledger(stages.ranks)
    begins, ends, leaves, arrives = _moments(stages, hop_modes, timeline)
    for span in stages.spans:
        for stage, size in enumerate(span.size_bytes.tolist()):
            away_s = None if timeline.offloaded_s is None else timeline.offloaded_s[:, stage]
            held = begins[:, span.begin, stage], ends[:, span.end, stage]
            _keep(ledger, stages, stage, held, away_s if span.begin is Kind.FORWARD else None, float(size))
    for hop in range(stages.count - 1) if stages.message_bytes.any() else ():
        _messages(ledger, stages, hop_modes[hop], (begins, ends), (leaves[:, :, hop], arrives[:, :, hop]), hop)
    return ledger.peaks()


def _moments(stages: Stages, hop_modes: Ints, timeline: Timeline) -> tuple[Floats, Floats, Floats, Floats]:
    """When ops begin and end, shape (2, kinds, S, M) each, and messages leave and arrive, shape (2, 2, S - 1, M) each:
    the time, and what comes first of one instant, which is `_FIRST`, the turn of what takes no time, or `_LAST`.
    """
    shape = -1, stages.count, stages.micro_batches
    starts_s, ends_s, sent_s = timeline.start_s.reshape(shape), timeline.end_s.reshape(shape), timeline.sent_s
    hop_s = stages.hop_s[hop_modes, np.arange(stages.count - 1)[:, None]]
    arrived_s = sent_s + np.stack([np.broadcast_to(stages.forward_hop_s[:, None], hop_s.shape), hop_s])
    begins, ends, leaves, arrives = _last(starts_s), _first(ends_s), _last(sent_s), _first(arrived_s)
    tolerance = tolerance_s(timeline.end_s)
    is_op_at_once, is_hop_at_once = ends_s - starts_s <= tolerance, arrived_s - sent_s <= tolerance
    is_hop_at_once = (is_hop_at_once | stages.blocks) & stages.crosses[:, None]  # what was posted is there at once
    if is_op_at_once.any() or is_hop_at_once.any():
        op_turns, hop_turns = timeline.turns
        _take_turn(begins, ends, op_turns.reshape(shape), is_op_at_once)
        _take_turn(leaves, arrives, hop_turns, is_hop_at_once)
    return begins, ends, leaves, arrives


def _take_turn(begins: Floats, ends: Floats, turns: Ints, is_at_once: Mask) -> None:
    """What takes no time ends before what comes behind it begins."""
    begins[1, is_at_once], ends[1, is_at_once] = 2 * turns[is_at_once], 2 * turns[is_at_once] + 1


def _keep(
    ledger: _Ledger, stages: Stages, stage: int, held: tuple[Floats, Floats], away_s: Floats | None, size: float
) -> None:  # fmt: skip
    """What micro-batches keep of a stage, but for the time that it is on the host."""
    rank, (begins, ends) = int(stages.rank[stage]), held
    if away_s is None or stages.offload_s is None:
        ledger.hold(rank, begins, ends, size)
        return
    stays = np.isnan(away_s[0])
    ledger.hold(rank, begins, np.where(stays, ends, _first(away_s[0] + stages.offload_s[stage])), size)
    ledger.hold(rank, _last(away_s[1, ~stays]), ends[:, ~stays], size)


def _messages(
    ledger: _Ledger, stages: Stages, modes: Ints, ops: tuple[Floats, Floats], sends: tuple[Floats, Floats], hop: int
) -> None:
    """Of one boundary, in both directions. `ops`, `sends`: when they begin and end; the boundary's sends."""
    below, above = int(stages.rank[hop]), int(stages.rank[hop + 1])
    size, (begins, ends), (leaves, arrives) = float(stages.message_bytes[0, hop]), ops, sends
    begun = begins[:, Kind.FORWARD, hop], begins[:, Kind.BACKWARD, hop + 1]
    used = ends[:, Kind.FORWARD, hop + 1], ends[:, Kind.BACKWARD, hop]
    if below == above:
        for from_, until in zip(begun, used, strict=True):
            ledger.hold(below, from_, until, size)
        return
    ledger.hold(below, begun[0], arrives[:, 0], size)
    there = ledger.post(stages, below, leaves[:, 0], arrives[:, 0], size)
    ledger.hold(above, there, used[0], size)
    sizes, is_plain = stages.message_bytes[modes, hop], modes == 0
    there = ledger.post(stages, above, leaves[:, 1], arrives[:, 1], sizes)
    encoded = ends[:, Kind.BACKWARD, hop + 1]
    ledger.hold(above, begun[1], np.where(is_plain, arrives[:, 1], encoded), size)
    encodes = _last(encoded[0] - stages.encode_s[modes, hop])
    ledger.hold(above, encodes, arrives[:, 1], np.where(is_plain, 0.0, sizes))
    decodes = begins[:, Kind.BACKWARD, hop]
    decoded = _first(decodes[0] + stages.decode_s[modes, hop])
    ledger.hold(below, there, np.where(is_plain, used[1], decoded), sizes)
    ledger.hold(below, decodes, used[1], np.where(is_plain, 0.0, size))


def _first(at_s: Floats) -> Floats:
    """Moments at which something ends that took time."""
    return np.stack([at_s, np.full(at_s.shape, _FIRST)])


def _last(at_s: Floats) -> Floats:
    """Moments at which something begins that takes time."""
    return np.stack([at_s, np.full(at_s.shape, _LAST)])


class _Ledger:
    """What comes and goes, by rank: moments, and changes."""

    def __init__(self, ranks: int) -> None:
        self.moments: list[list[Floats]] = [[] for _ in range(ranks)]
        self.changes: list[list[Floats]] = [[] for _ in range(ranks)]

    def hold(self, rank: int, begins: Floats, ends: Floats, size_bytes: float | Floats) -> None:
        """So many bytes each, while they are held."""
        sizes = np.broadcast_to(size_bytes, begins.shape[1:])
        self.moments[rank] += [begins, ends]
        self.changes[rank] += [sizes, -sizes]

    def post(self, stages: Stages, rank: int, leaves: Floats, arrives: Floats, size_bytes: float | Floats) -> Floats:
        """From when the receiver holds a message; where sends block, the sender holds a second copy until then."""
        if not stages.blocks:
            return leaves
        self.hold(rank, _last(leaves[0]), arrives, size_bytes)
        return np.stack([arrives[0], leaves[1]])

    def peaks(self) -> Floats:
        """The most at once, moments of one instant in the order of their turns."""
        moments = [np.concatenate(own, axis=1) for own in self.moments]
        times_s, turns = np.concatenate(moments, axis=1)
        if ((turns > _FIRST) & (turns < _LAST)).any():
            times_s = instants_of(times_s, tolerance_s(times_s)).astype(np.float64)
        ends = np.cumsum([len(own[0]) for own in moments])[:-1]
        columns = zip(np.split(times_s, ends), np.split(turns, ends), self.changes, strict=True)
        return np.array([_peak(at_s, turn, np.concatenate(changes)) for at_s, turn, changes in columns])


def _peak(at_s: Floats, turn: Floats, change: Floats) -> float:
    return float(np.cumsum(change[np.lexsort((change, turn, at_s))]).max(initial=0.0))


def posts_of(
    stages: Stages, sequences: tuple[Ints, ...], hop_modes: Ints, queues: tuple[Ints, ...] = (),
    offloads: Sequence[Offloads] = (),
) -> Posts:  # fmt: skip
    """Room for messages by the order of ops: each gets some before its use and after it was made, one op after the
    other in turns, those that were made first, as long as there is room and for `_AHEAD` ops at most.

    `queues`: of links that have an order of their own; on others messages leave as they are made. First comes the room
    without which a link would stand still: a message is taken before those that leave after it, and kept until those
    that leave before it are made.
    """
    sent = _Sent.of(stages, sequences, hop_modes)
    own = op_message_bytes(stages, hop_modes).reshape(-1)
    posts = Posts(np.full(len(sent.size), -1, dtype=np.int64), _links(stages, sent, queues))
    taken, kept = sent.used.copy(), sent.made.copy()
    for queue in posts.queues:
        taken[queue] = np.minimum.accumulate(sent.used[queue][::-1])[::-1]
        kept[queue] = np.maximum.accumulate(sent.made[queue])
    crosses = sent.source != sent.target
    for rank, sequence in enumerate(sequences):
        spare = _spare(stages, rank, sequence, own)
        if offloads:
            spare += offloads[rank].absent_bytes(stages, len(sequence))
        for message in np.flatnonzero(~crosses & (sent.source == rank)).tolist():
            spare[2 * sent.made[message] + 2 : 2 * sent.used[message] + 1] -= sent.size[message]
        made, used = (np.flatnonzero(crosses & (ranks == rank)).tolist() for ranks in (sent.source, sent.target))
        if stages.blocks:  # what is sent is gone when its op is over
            made, gone = [], made
            for message in gone:
                _goes_before(posts, message, sequence, int(sent.made[message]) + 1)
        for message in made:
            spare[2 * sent.made[message] + 2 : 2 * kept[message] + 3] -= sent.size[message]
        for message in used:
            spare[2 * taken[message] : 2 * sent.used[message] + 1] -= sent.size[message]
        _take_turns(posts, spare, sent, {m: int(kept[m]) for m in made}, {m: int(taken[m]) for m in used})
        spans = [(int(kept[m]), 1, float(sent.size[m])) for m in made]
        spans += [(int(taken[m]), -1, float(sent.size[m])) for m in used]
        places = _extended(spare.tolist(), spans)
        for message, last in zip(made, places[: len(made)], strict=True):
            _goes_before(posts, message, sequence, last + 1)
        for message, first in zip(used, places[len(made) :], strict=True):
            if first:
                posts.after[message] = sequence[first - 1]
    return posts


def offloads_at(
    stages: Stages, sequences: tuple[Ints, ...], hop_modes: Ints, messages: int, start_s: Floats, end_s: Floats
) -> list[Offloads] | None:  # fmt: skip
    """What each rank copies to its host, None where some rank has no room for all that; `messages`: for how many of
    them there is to be room besides those of an op. Times: of ops, about."""
    own, found = op_message_bytes(stages, hop_modes).reshape(-1), list[Offloads]()
    for rank, sequence in enumerate(sequences):
        largest = float(stages.forward_message_bytes[stages.rank == rank].max())
        spare = _spare(stages, rank, sequence, own) - messages * largest
        offloads = offloads_of(stages, sequence, spare, start_s, end_s)
        if offloads is None:
            return None
        found.append(offloads)
    return found


def posts_at(
    stages: Stages,
    sequences: tuple[Ints, ...],
    queues: tuple[Ints, ...],
    start_s: Floats,
    end_s: Floats,
    sent_s: Floats,
) -> Posts:
    """As they are where ops start and end then, and plain messages leave: what follows one another goes on doing so."""
    modes = np.zeros((stages.count - 1, stages.micro_batches), dtype=np.int64)
    sent = _Sent.of(stages, sequences, modes)
    posts = Posts(np.full(len(sent.size), -1, dtype=np.int64), _links(stages, sent, queues))
    hop_s = np.stack([stages.forward_hop_s, stages.hop_s[0]])
    arrived_s, sent_s = (sent_s + hop_s[:, :, None]).reshape(-1), sent_s.reshape(-1)
    leaving: dict[tuple[int, int], list[int]] = {}
    coming: list[tuple[int, int, int]] = []
    for message in np.flatnonzero(sent.source != sent.target).tolist():
        ops = sequences[sent.target[message]]
        first = int(np.searchsorted(end_s[ops], sent_s[message], side="right"))
        posts.after[message] = ops[min(first, sent.used[message]) - 1] if first else -1
        ops = sequences[sent.source[message]]
        then = max(int(np.searchsorted(start_s[ops], arrived_s[message], side="left")), int(sent.made[message]) + 1)
        _goes_before(posts, message, ops, then)
        leaving.setdefault((int(sent.source[message]), then), []).append(message)
        coming.append((message, int(sent.target[message]), min(first, int(sent.used[message]))))
    for message, rank, first in coming:
        there = [*leaving.get((rank, first), ()), *leaving.get((rank, first + 1), ())]  # until then, or in the op
        gone = [other for other in there if arrived_s[other] <= sent_s[message] and sent_s[other] < sent_s[message]]
        if gone:
            posts.behind[message] = gone
    return posts


def _goes_before(posts: Posts, message: int, sequence: Ints, place: int) -> None:
    """A message is gone before the op at that place, if there is one."""
    if place < len(sequence):
        posts.before.setdefault(int(sequence[place]), []).append(message)


def _take_turns(posts: Posts, spare: Floats, sent: _Sent, kept: dict[int, int], taken: dict[int, int]) -> None:
    """Between two ops without room for what was made and what is used next, the one comes when the other has gone.

    `kept`, `taken`: the last place of messages that are made, the first of those that are used, by number.
    """
    short = set((np.flatnonzero(spare[::2] < 0)).tolist())
    gone: dict[int, list[int]] = {}
    for message, place in kept.items():
        gone.setdefault(place + 1, []).append(message)
    for message, place in taken.items():
        if place in short and place in gone:
            posts.behind.setdefault(message, []).extend(gone[place])
            spare[2 * place] += min(float(sent.size[message]), float(sent.size[gone[place]].sum()))


@dataclass(frozen=True)
class _Sent:
    """Messages by number. `source`, `target`: ranks; `made`, `used`: places of ops in their orders; `size`: bytes."""

    source: Ints
    target: Ints
    made: Ints
    used: Ints
    size: Floats

    @classmethod
    def of(cls, stages: Stages, sequences: tuple[Ints, ...], hop_modes: Ints) -> _Sent:
        """Those of an order."""
        count, micro_batches = stages.count, stages.micro_batches
        place = np.zeros(sum(map(len, sequences)), dtype=np.int64)
        for sequence in sequences:
            place[sequence] = np.arange(len(sequence))
        kind, hop, micro_batch = (column.reshape(-1) for column in np.indices((2, count - 1, micro_batches)))
        makers, users = hop + kind, hop + 1 - kind
        size = stages.message_bytes[np.where(kind == 1, hop_modes[hop, micro_batch], 0), hop]
        made, used = (place[(kind * count + ends) * micro_batches + micro_batch] for ends in (makers, users))
        target = np.where(stages.crosses[hop], stages.rank[users], stages.rank[makers])
        return cls(stages.rank[makers], target, made, used, size)


def _links(stages: Stages, sent: _Sent, queues: tuple[Ints, ...]) -> list[Ints]:
    """The messages of each link in the order in which they leave."""
    known = {(sent.source[queue[0]].item(), sent.target[queue[0]].item()): queue for queue in queues}
    links, crosses = dict(known), sent.source != sent.target
    for pair in sorted(set(zip(sent.source[crosses].tolist(), sent.target[crosses].tolist(), strict=True))):
        messages = np.flatnonzero((sent.source == pair[0]) & (sent.target == pair[1]))
        links.setdefault(pair, messages[np.argsort(sent.made[messages], kind="stable")])
    return list(links.values())


def _spare(stages: Stages, rank: int, sequence: Ints, own: Floats) -> Floats:
    """What is left on a rank besides what micro-batches keep and an op's own messages: before each of its n ops (2 k)
    and while it runs (2 k + 1), and after all of them; float of shape (2 n + 1,).
    """
    per_kind = stages.count * stages.micro_batches
    kind, stage = sequence // per_kind, sequence // stages.micro_batches % stages.count
    takes, leaves = stages.changes
    live, left = np.zeros(2 * len(sequence) + 1), leaves[kind, stage]
    live[2::2] = np.cumsum(takes[kind, stage]) - np.cumsum(left)
    during = live[2::2] + left
    during[kind < Kind.WEIGHT] += own[sequence[kind < Kind.WEIGHT]]
    live[1::2] = during
    return np.asarray(stages.room_bytes[rank] - live)


def _extended(spare: list[float], spans: list[tuple[int, int, float]]) -> list[int]:
    """The place to which each span (its end, direction, bytes) is extended: over an op, and over what is beyond it."""
    found = [place for place, _, _ in spans]
    growing = sorted(range(len(spans)), key=lambda k: (spans[k][0], -spans[k][1]))
    for _ in range(_AHEAD):
        going = []
        for k in growing:
            _, step, size = spans[k]
            op = 2 * (found[k] + step) + 1
            if 0 <= op < len(spare) and spare[op] >= size and spare[op + step] >= size:
                spare[op] -= size
                spare[op + step] -= size
                found[k] += step
                going.append(k)
        growing = going
    return found
