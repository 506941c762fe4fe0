"""Micro-batches of unequal work: in which order they are fed, on an order that was made for equal ones.

Where each has the least work of all, every plan can be played as fast, so the bounds of such costs hold; and a rank
computes what all of them have together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.bounds import arrivals_s
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.order.orders import Candidate, Order
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import has_room, timed

__all__ = ["with_work", "work_bound_s"]


def work_bound_s(relaxed: Stages, total: float) -> float:
    """Seconds that no order takes less. `relaxed`: each micro-batch with the least work; `total`: of all, in units of
    that.

    A rank's first forward has to arrive. Then it computes all and sums its gradients; or it computes all but the
    gradients of weights, the last of which has to get back to the first stage; or its memory has as many micro-batches
    at once as it has room for, each until it is back, or until its gradient of weights.
    """
    tails_s = heads_and_tails(relaxed, remembers=False).tail_s[Kind.BACKWARD, :, -1]
    sums_s, chain_s = relaxed.reduce_s.min(axis=0), relaxed.forward_s + relaxed.backward_s
    back_s = total * np.cumsum(chain_s[::-1])[::-1]
    hops_s = relaxed.forward_hop_s + relaxed.hop_s.min(axis=0)
    back_s[:-1] += relaxed.micro_batches * np.cumsum(hops_s[::-1])[::-1]
    found = []
    for rank, arrival_s in enumerate(arrivals_s(relaxed)):
        here = np.flatnonzero(relaxed.rank == rank)
        sum_s, tail_s = float(sums_s[here].min()), float(tails_s[here].min())
        kept, lasting = relaxed.kept_bytes[here], np.minimum(relaxed.kept_bytes, relaxed.deferred_bytes)[here]
        done_s = back_s[here] + total * relaxed.weight_s[here]
        room = float(relaxed.room_bytes[rank])
        found += [
            arrival_s + total * float(relaxed.compute_s[rank]) + sum_s,
            arrival_s + total * float(chain_s[here].sum()) + tail_s,
            arrival_s + _turns_s(kept, back_s[here], room) + tail_s,
            arrival_s + _turns_s(lasting, done_s, room) + sum_s,
        ]
    return max(found)


def _turns_s(sizes: Ints, each_s: Floats, room: float) -> float:
    """How long it takes until bytes of each stage were kept for so many seconds in all, as many at once as fit."""
    if np.isinf(room):
        return 0.0
    if len(sizes) == 1 and sizes[0]:
        room = room // sizes[0] * sizes[0]
    return float((sizes * each_s).sum() / room) if room > 0 else 0.0


def with_work(candidate: Candidate, stages: Stages, most_ops: int) -> Candidate | None:
    """The candidate's order on stages whose micro-batches have work of their own, fed in a good order; None where it
    has no room.

    It starts from the fastest of a few: as given, by their work up or down, the largest ones in the middle. Then two
    micro-batches are exchanged, or two ops of a rank, as long as that helps, and until `most_ops` have been timed.
    """
    assert stages.work is not None
    work, alike = stages.work, np.arange(stages.micro_batches)
    up = np.argsort(work, kind="stable")
    starts = [alike, up, up[::-1], np.concatenate([up[::2], up[1::2][::-1]])]
    made = [_played(candidate, _fed(stages, feed), candidate.order) for feed in starts]
    best = min((each for each in made if each is not None), key=lambda each: each.rank, default=None)
    if best is None:
        return None
    left = max(most_ops // len(best.timeline.start_s), 1)
    before = None
    while best is not before:
        before = best
        for moved, order in _moves(best, stages):
            if not left:
                return best
            left -= 1
            tried = _played(candidate, moved, order)
            if tried is not None and tried.rank < best.rank:
                best = tried
                break
    return best


def _fed(stages: Stages, feed: Ints) -> Stages:
    assert stages.work is not None
    return replace(stages, work=stages.work[feed], feed=tuple(feed.tolist()))


def _moves(best: Candidate, stages: Stages) -> Iterator[tuple[Stages, Order]]:
    """Two micro-batches exchanged; then two neighbours in the order of a rank, of other kinds or stages."""
    feed = np.array(best.stages.feed)
    for a, b in combinations(range(len(feed)), 2):
        other = feed.copy()
        other[[a, b]] = feed[[b, a]]
        if stages.work is not None and stages.work[feed[a]] != stages.work[feed[b]]:
            yield _fed(stages, other), best.order
    for rank, sequence in enumerate(best.order.sequences):
        family = sequence // stages.micro_batches
        for at in np.flatnonzero(family[1:] != family[:-1]).tolist():
            changed = sequence.copy()
            changed[[at, at + 1]] = sequence[[at + 1, at]]
            sequences = (*best.order.sequences[:rank], changed, *best.order.sequences[rank + 1 :])
            yield best.stages, replace(best.order, sequences=sequences, messages=(), posts=None)


def _played(candidate: Candidate, stages: Stages, order: Order) -> Candidate | None:
    timeline = timed(stages, order)
    if timeline is None or not has_room(stages, order, timeline):
        return None
    return replace(candidate, stages=stages, order=order, timeline=timeline)
