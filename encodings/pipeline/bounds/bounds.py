"""Lower bounds on the step time, or on the longest span of a rank, by name: what no order of these stages can beat.

All but the first rest on heads and tails. `path` takes the longest chain, `one-machine` a rank with all of its ops
between their heads and tails, `one-link` a link with all of its messages; `memory` does the first two where heads and
tails know how many micro-batches a rank has room for. `full-memory` is by what a
rank waits at both ends since all of its stages share its room, `byte-seconds` and, with hosts, `offload` by what ranks
hold, and for how long. Of spans, a rank is looked at from its first op to its own end.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from gapless.encodings.pipeline.bounds.activities import of_links, of_rank
from gapless.encodings.pipeline.bounds.byte_seconds import held_s, kept_s
from gapless.encodings.pipeline.bounds.full_memory import full_memory_s
from gapless.encodings.pipeline.bounds.heads import Heads, heads_and_tails
from gapless.encodings.pipeline.bounds.offload import without_link
from gapless.encodings.pipeline.bounds.one_machine import in_two_s, one_machine_s
from gapless.encodings.pipeline.order.stages import Stages, rooms

__all__ = ["arrivals_s", "bounds_of", "load_s", "some_ranks", "spans_s"]

_RANKS = 8
"""Ranks whose spans are bounded, besides that with most to do."""


def bounds_of(stages: Stages) -> dict[str, float]:
    """Seconds, by name; each holds for every order within memory and every choice of modes."""
    if stages.offloads:
        return _with_hosts(stages)
    if stages.by_span:
        return {"load": max(_loads_s(stages)), "one-link": _links_s(stages), "memory": max(spans_s(stages).values())}
    if stages.steps > 1:
        return _steps_s(stages)
    free = heads_and_tails(stages, remembers=False)
    is_tight = any((most < stages.micro_batches).any() for most in rooms(stages).values())
    kept, alone_s = heads_and_tails(stages) if is_tight else free, _ranks_s(free)
    return {
        "load": load_s(stages),
        "path": free.path_s,
        "one-machine": alone_s,
        "one-link": max((one_machine_s(each) for each in of_links(kept)), default=0.0),
        "memory": max(kept.path_s, _ranks_s(kept) if is_tight else alone_s),
        "full-memory": full_memory_s(kept, arrivals_s(stages)),
        "byte-seconds": kept_s(stages, free, arrivals_s(stages)),
    }


def _with_hosts(stages: Stages) -> dict[str, float]:
    """What may be on hosts between forward and backward: as if it were nothing, or they were part of the ranks."""
    every = list(without_link(stages))
    each = [bounds_of(other) for other in every]
    held = held_s(stages, heads_and_tails(every[0], remembers=False), arrivals_s(stages))
    return {name: max(bounds_s[name] for bounds_s in each) for name in each[0]} | {"offload": held}


def _ranks_s(heads: Heads) -> float:
    stages = heads.stages
    return max(
        one_machine_s(of_rank(heads, rank, parts_s)) for parts_s in stages.least_s for rank in range(stages.ranks)
    )


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


def spans_s(stages: Stages, is_last: bool = False) -> dict[int, float]:
    """Of some ranks, the longest chain from its first op to its end; and all of its ops between, or those of another
    rank that come after its first one and before its end. `is_last`: before the step's end, of a last step.
    """
    ranks = dict.fromkeys([*stages.rank[stages.firsts].tolist(), *some_ranks(stages, _RANKS)])
    heads = {rank: heads_and_tails(stages, rank=rank, is_last=is_last) for rank in ranks}
    return {rank: max(each.path_s, *(one_machine_s(of_rank(each, other)) for other in ranks))
            for rank, each in heads.items()}  # fmt: skip


def _steps_s(stages: Stages) -> dict[str, float]:
    """Of steps that follow one another, all but the last of which take a rank its span. All of the last one comes after
    a rank with a first stage has begun it, so that it takes what one step does."""
    others, spans, last = stages.steps - 1, spans_s(stages), spans_s(stages, is_last=True)
    first_s = others * min(spans[rank] for rank in stages.rank[stages.firsts].tolist())
    arrival_s = arrivals_s(stages)
    by_rank = (arrival_s[rank] + others * spans[rank] + last[rank] for rank in spans)
    one = {name: first_s + bound_s for name, bound_s in bounds_of(stages.one_step).items()}
    return {
        **one,
        "load": max(arrival_s[rank] + stages.steps * own_s for rank, own_s in enumerate(_loads_s(stages))),
        "one-link": max(one["one-link"], stages.steps * _links_s(stages)),
        "memory": max(one["memory"], *by_rank),
    }


def _links_s(stages: Stages) -> float:
    """All messages of a link, one after the other."""
    each_s, rank = np.zeros((stages.ranks, stages.ranks)), stages.rank
    np.add.at(each_s, (rank[:-1], rank[1:]), stages.forward_hop_s)
    np.add.at(each_s, (rank[1:], rank[:-1]), stages.hop_s.min(axis=0))
    return float(stages.micro_batches * each_s.max())


def _loads_s(stages: Stages) -> list[float]:
    """Of each rank, all of its ops and sums: that of a stage begins when its ops are done, and is one at a time."""
    reduce_s, weighted = stages.reduce_s.min(axis=0)[: stages.weighted], stages.weighted
    rank, found = stages.rank[:weighted], np.zeros(stages.ranks)
    for parts_s in stages.least_s:
        own_s = stages.micro_batches * (parts_s.sum(axis=0) + stages.weight_s).reshape(-1, weighted).sum(axis=0)
        each = [in_two_s(own_s[rank == here], reduce_s[rank == here]) for here in range(stages.ranks)]
        found = np.maximum(found, each)
    return [float(each) for each in found]


def load_s(stages: Stages) -> float:
    """A rank's first forward has to arrive, it computes all of its ops, and its gradients are summed."""
    return max(arrival_s + own_s for arrival_s, own_s in zip(arrivals_s(stages), _loads_s(stages), strict=True))


def arrivals_s(stages: Stages) -> list[float]:
    """Before which no rank has anything to do."""
    each_s = stages.forward_s + np.append(stages.forward_hop_s, 0.0)
    arrival_s = np.concatenate([np.cumsum(each_s[chain]) - each_s[chain] for chain in stages.chains])
    return [float(arrival_s[stages.rank == rank].min()) for rank in range(stages.ranks)]
