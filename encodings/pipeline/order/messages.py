"""Messages: which link carries which, in which order, and where one can wait for another.

A message is numbered kind * (S - 1) * M + hop * M + micro-batch: kind 0 is the activation that goes from stage hop to
hop + 1, kind 1 the gradient that goes back. It is posted when its op ends; a directed link carries one at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.order.orders import Order
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["held", "hops_s", "in_their_turn", "makers", "queues_of", "users", "waiting_links", "with_queues"]

Queues = dict[tuple[int, int], Ints]
"""Numbers of messages by link (source, target), int64, in the order in which they leave."""


def makers(stages: Stages, messages: Ints) -> Ints:
    """The op that each message comes from."""
    kind, hop, micro_batch = _parts(stages, messages)
    return np.asarray((kind * stages.count + hop + kind) * stages.micro_batches + micro_batch)


def users(stages: Stages, messages: Ints) -> Ints:
    """The op that waits for each message."""
    kind, hop, micro_batch = _parts(stages, messages)
    return np.asarray((kind * stages.count + hop + 1 - kind) * stages.micro_batches + micro_batch)


def _parts(stages: Stages, messages: Ints) -> tuple[Ints, Ints, Ints]:
    kind_hop, micro_batch = np.divmod(messages, stages.micro_batches)
    kind, hop = np.divmod(kind_hop, stages.count - 1)
    return kind, hop, micro_batch


def held(stages: Stages) -> Floats:
    """How long each op of a kind and stage holds its rank, shape (kinds, S): with its message, where sends block."""
    held_s = np.stack([stages.forward_s, stages.backward_s, stages.weight_s][: 3 if stages.splits else 2]).copy()
    if stages.blocks:
        held_s[Kind.FORWARD, :-1] += stages.forward_hop_s
        held_s[Kind.BACKWARD, 1:] += stages.hop_s[0]
    return held_s


def hops_s(stages: Stages) -> Floats:
    """How long a plain message of each kind holds its link, shape (2, S - 1)."""
    return np.stack([stages.forward_hop_s, stages.hop_s[0]])


def waiting_links(stages: Stages) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The messages (kind, hop), by directed link, of those links on which one could wait for another.

    A message leaves when its op ends, and the next op on its rank ends no sooner than it takes itself: where no hop
    over a link is longer than the shortest of the ops that send over it, the link is free whenever one of them ends.
    So it is where sends block: the hop is part of the op then. Where ranks lack room for all messages, each may wait.
    A forward and a backward in one cell end at once.
    """
    if stages.blocks:
        return {}
    if stages.is_pressed:
        return _senders(stages)
    hop_s, held_s = hops_s(stages), held(stages)

    def apart_s(sends: list[tuple[int, int]]) -> float:
        """The least between the ends of two ops that send."""
        are_at_once = stages.has_cells and len({kind for kind, _ in sends}) > 1
        return 0.0 if are_at_once else float(min(held_s[kind, hop + kind] for kind, hop in sends))

    links = _senders(stages)
    return {link: sends for link, sends in links.items() if max(hop_s[send] for send in sends) > apart_s(sends)}


def _senders(stages: Stages) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """The messages (kind, hop) by directed link."""
    senders: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for hop in np.flatnonzero(stages.crosses).tolist():
        a, b = stages.rank[hop : hop + 2].tolist()
        senders.setdefault((a, b), []).append((Kind.FORWARD, hop))
        senders.setdefault((b, a), []).append((Kind.BACKWARD, hop))
    return senders


def queues_of(stages: Stages, order: Order) -> Queues:
    """Every link's messages in the order in which they leave: the plan's own, elsewhere that in which ops make them."""
    own = {_link_of(stages, queue): queue for queue in order.messages if not stages.blocks}
    return {link: own.get(link, queue) for link, queue in _as_computed(stages, order).items()}


def with_queues(stages: Stages, order: Order, queues: Mapping[tuple[int, int], Ints]) -> Order:
    """The order with these queues; those that are as ops make them go without saying."""
    computed = _as_computed(stages, order)
    kept = (queues[link] for link in sorted(queues) if not np.array_equal(queues[link], computed[link]))
    return replace(order, messages=tuple(kept))


def in_their_turn(stages: Stages, messages: Ints, sent: Floats, posted: Floats) -> Ints:
    """Messages by when they leave; of those that leave at once what takes no time first, as it was posted."""
    hop_s = hops_s(stages).reshape(-1)[messages // stages.micro_batches]
    return np.asarray(messages[np.lexsort((messages, posted, hop_s, sent))])


def _as_computed(stages: Stages, order: Order) -> Queues:
    place = np.zeros(sum(map(len, order.sequences)), dtype=np.int64)
    for sequence in order.sequences:
        place[sequence] = np.arange(len(sequence))
    queues = {}
    for link, sends in _senders(stages).items():
        firsts = np.array([(kind * (stages.count - 1) + hop) * stages.micro_batches for kind, hop in sends])
        messages = (firsts[:, None] + np.arange(stages.micro_batches)).reshape(-1)
        queues[link] = messages[np.argsort(place[makers(stages, messages)])]
    return queues


def _link_of(stages: Stages, queue: Ints) -> tuple[int, int]:
    ends = [ops(stages, queue[:1]).item() // stages.micro_batches % stages.count for ops in (makers, users)]
    source, target = stages.rank[ends].tolist()
    return source, target
