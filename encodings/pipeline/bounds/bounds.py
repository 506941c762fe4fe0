"""Lower bounds on the step time, or on the longest span of a rank, by name: what no order of these stages can beat.

All but the first rest on heads and tails. `path` takes the longest chain, `one-machine` a rank with all of its ops
between their heads and tails, `one-link` a link with all of its messages; `memory` does the first two where heads and
tails know how many micro-batches a rank has room for. Of spans, a rank is looked at from its first op to its own end.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from gapless.encodings.pipeline.bounds.activities import of_links, of_rank
from gapless.encodings.pipeline.bounds.heads import Heads, heads_and_tails
from gapless.encodings.pipeline.bounds.one_machine import one_machine_s
from gapless.encodings.pipeline.order.stages import Stages

__all__ = ["bounds_of", "load_s", "some_ranks"]

_RANKS = 8
"""Ranks whose spans are bounded, besides that with most to do."""


def bounds_of(stages: Stages) -> dict[str, float]:
    """Seconds, by name; each holds for every order within memory and every choice of modes."""
    if stages.by_span:
        return {"load": max(_loads_s(stages)), "one-link": _links_s(stages), "memory": _spans_s(stages)}
    free, kept = heads_and_tails(stages, remembers=False), heads_and_tails(stages)
    return {
        "load": load_s(stages),
        "path": free.path_s,
        "one-machine": _ranks_s(free),
        "one-link": max((one_machine_s(each) for each in of_links(kept)), default=0.0),
        "memory": max(kept.path_s, _ranks_s(kept)),
    }


def _ranks_s(heads: Heads) -> float:
    return max(one_machine_s(of_rank(heads, rank)) for rank in range(heads.stages.ranks))


def some_ranks(stages: Stages, most: int) -> list[int]:
    """The one with most to do, the last, the first, and then between ranks so far: one that bounds much comes early."""
    halves = [stages.ranks - 1, 0]
    gaps = deque([(0, stages.ranks - 1)])
    while gaps and len(halves) < most:
        a, b = gaps.popleft()
        if b - a > 1:
            halves.append((a + b) // 2)
            gaps.extend([(halves[-1], b), (a, halves[-1])])
    return list(dict.fromkeys([int(np.argmax(stages.compute_s)), *halves[:most]]))


def _spans_s(stages: Stages) -> float:
    """Of a rank, the longest chain from its first op to its end; and all of its ops between, or those of another rank
    that come after its first one and before its end."""
    ranks = some_ranks(stages, _RANKS)
    heads = [heads_and_tails(stages, rank=rank) for rank in ranks]
    return max(max(each.path_s, *(one_machine_s(of_rank(each, rank)) for rank in ranks)) for each in heads)


def _links_s(stages: Stages) -> float:
    """All messages of a link, one after the other."""
    each_s, rank = np.zeros((stages.ranks, stages.ranks)), stages.rank
    np.add.at(each_s, (rank[:-1], rank[1:]), stages.forward_hop_s)
    np.add.at(each_s, (rank[1:], rank[:-1]), stages.hop_s.min(axis=0))
    return float(stages.micro_batches * each_s.max())


def _loads_s(stages: Stages) -> list[float]:
    """Of each rank, all of its ops, and a sum."""
    reduce_s, busy_s = stages.reduce_s.min(axis=0), stages.micro_batches * stages.compute_s
    return [float(busy_s[rank] + reduce_s[stages.rank == rank].min()) for rank in range(stages.ranks)]


def load_s(stages: Stages) -> float:
    """A rank's first forward has to arrive, it computes all of its ops, and its gradients are summed."""
    each_s = stages.forward_s + np.append(stages.forward_hop_s, 0.0)
    arrival_s = np.concatenate([np.cumsum(each_s[chain]) - each_s[chain] for chain in stages.chains])
    return max(float(arrival_s[stages.rank == rank].min()) + own_s for rank, own_s in enumerate(_loads_s(stages)))
