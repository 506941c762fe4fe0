"""What a rank waits while its memory is full: before its first backward, and behind its last forward.

Until a rank's first backward can start it runs forwards alone, and nothing frees memory: no more than fit in. Once its
last forward has to be over it runs backwards alone, of micro-batches that it holds by then. All stages of a rank share
its room, so that with several of them little is done in these times.
"""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.heads import Heads
from gapless.encodings.pipeline.order.stages import Kind

__all__ = ["full_memory_s"]


def full_memory_s(heads: Heads, arrivals_s: list[float]) -> float:
    """Seconds that no order takes less: a rank's ops, and what it waits at both ends; 0 where there are cells, in which
    a forward can run beside a backward. `heads`: valid for every order within memory.
    """
    if heads.stages.has_cells:
        return 0.0
    return max(_rank_s(heads, rank, arrival_s) for rank, arrival_s in enumerate(arrivals_s))


def _rank_s(heads: Heads, rank: int, arrival_s: float) -> float:
    """The waits of both ends count where a step, which has the longer of them in it, is no shorter than both ends."""
    stages, here = heads.stages, np.flatnonzero(heads.stages.rank == rank)
    room_bytes = float(max(stages.room_bytes[rank], 0.0))
    forward_s, after_s = heads.own_s[Kind.FORWARD, here], heads.own_s[Kind.BACKWARD :, here].sum(axis=0)
    before_s = float(heads.head_s[Kind.BACKWARD, here].min())
    behind_s = float(heads.tail_s[Kind.FORWARD, here].min())
    kept, deferred = stages.kept_bytes[here], stages.deferred_bytes[here]
    first_s = _most_s(room_bytes, kept, forward_s, stages.micro_batches)
    if stages.splits:
        kept, after_s = np.append(kept, deferred), np.append(after_s, heads.own_s[Kind.WEIGHT, here])
    last_s = _most_s(room_bytes, kept, after_s, stages.micro_batches)
    waits_s = max(before_s - arrival_s - first_s, 0.0), max(behind_s - last_s, 0.0)
    least_s = arrival_s + stages.micro_batches * float(heads.own_s[:, here].sum())
    one_s = least_s + max(waits_s)
    return least_s + sum(waits_s) if one_s >= before_s + behind_s else one_s


def _most_s(room_bytes: float, sizes: Ints, each_s: Floats, most: int) -> float:
    """The most seconds of work that fit into so much room: parts of these sizes, each at most so often, and of the last
    one a share."""
    unit = int(np.gcd.reduce(sizes))
    left, total_s = room_bytes // unit * unit if unit and np.isfinite(room_bytes) else room_bytes, 0.0
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # what takes no time comes last
        by_rate = np.argsort(sizes / each_s, kind="stable").tolist()
    for at in by_rate:
        count = min(float(most), left / float(sizes[at])) if sizes[at] else float(most)
        left, total_s = left - count * float(sizes[at]), total_s + count * float(each_s[at])
    return total_s
