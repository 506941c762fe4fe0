"""Lower bounds on the step time, by name: what no order of these stages can beat.

All but the first rest on heads and tails. `path` takes the longest chain, `one-machine` a rank with all of its ops
between their heads and tails, `one-link` a link with all of its messages; `memory` does the first two where heads and
tails know how many micro-batches a rank has room for.
"""

from __future__ import annotations

import numpy as np

from gapless.encodings.pipeline.bounds.activities import of_links, of_rank
from gapless.encodings.pipeline.bounds.heads import Heads, heads_and_tails
from gapless.encodings.pipeline.bounds.one_machine import one_machine_s
from gapless.encodings.pipeline.order.stages import Stages

__all__ = ["bounds_of", "load_s"]


def bounds_of(stages: Stages) -> dict[str, float]:
    """Seconds, by name; each holds for every order within memory and every choice of modes."""
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


def load_s(stages: Stages) -> float:
    """A rank's first forward has to arrive, it computes all of its ops, and its gradients are summed."""
    each_s = stages.forward_s + np.append(stages.forward_hop_s, 0.0)
    arrival_s = np.concatenate([np.cumsum(each_s[chain]) - each_s[chain] for chain in stages.chains])
    reduce_s = stages.reduce_s.min(axis=0)
    ends_s = []
    for rank in range(stages.ranks):
        here = np.flatnonzero(stages.rank == rank)
        busy_s = stages.micro_batches * float(stages.compute_s[rank])
        ends_s.append(float(arrival_s[here].min()) + busy_s + float(reduce_s[here].min()))
    return max(ends_s)
