"""Bounds where what micro-batches keep may be on hosts: stages without a link whose orders are no worse; byte-seconds.

With copies a micro-batch may overtake another: what has left last can be used first. Stages without a link have no use
for that, so that what first in, first out bounds there holds for all orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.bounds.activities import passes_s
from gapless.encodings.pipeline.bounds.heads import Heads
from gapless.encodings.pipeline.order.offload import kept_share
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["held_s", "without_link"]


def without_link(stages: Stages, step_s: float = math.inf) -> Iterator[Stages]:
    """Stages without a link to hosts; every order with copies that ends within `step_s` is one of theirs.

    Micro-batches keep nothing from their forward to their backward; or ranks have as much more room as can be on hosts
    at once: what has left by then, and comes back from then on.
    """
    yield kept_share(stages, 0.0)
    assert stages.offload_s is not None
    kept, copy_s = stages.kept_bytes, stages.offload_s
    least_s = np.where(kept > 0, copy_s / np.maximum(kept, 1), math.inf).min()  # of a byte
    more_bytes = min(stages.host_bytes, step_s / 2 / least_s if least_s > 0 else math.inf)
    if math.isfinite(more_bytes):
        yield stages.with_room(stages.memory_bytes + more_bytes)


def held_s(stages: Stages, heads: Heads, arrivals_s: list[float]) -> float:
    """Seconds that no order takes less, by what ranks hold of micro-batches: bytes times seconds.

    That is while ops run, and between forward and backward for as long as later stages take, or for two copies. Copies
    are made one after the other. `heads`: of these stages without a link, where nothing is remembered.
    """
    return max(_held_s(stages, heads, rank, arrival_s) for rank, arrival_s in enumerate(arrivals_s))


def _held_s(stages: Stages, heads: Heads, rank: int, arrival_s: float) -> float:
    assert stages.offload_s is not None
    here, passes = np.flatnonzero(stages.rank == rank), passes_s(heads)
    between_s = passes[Kind.BACKWARD] - passes[Kind.FORWARD] - heads.own_s[Kind.FORWARD]
    kept, sizes = stages.kept_bytes, [stages.kept_bytes, stages.full_bytes, stages.deferred_bytes]
    each = sum(size * own_s for size, own_s in zip(sizes, heads.own_s, strict=False)) + kept * between_s
    tail_s = float(heads.tail_s[:, here].min())
    return arrival_s + tail_s + _least_s(
        float(stages.micro_batches * each[here].sum()), float(stages.room_bytes[rank]),
        stages.micro_batches * (kept * np.maximum(between_s - 2 * stages.offload_s, 0.0))[here],
        stages.micro_batches * stages.offload_s[here],
    )  # fmt: skip


def _least_s(held: float, room: float, saved: Floats, copied_s: Floats) -> float:
    """How long it takes to hold so many byte-seconds in so much room; each stage's copies, one after the other, save
    some of them, first those that save most in their time."""
    room, passed_s = max(room, 0.0), 0.0
    for save, copy_s in sorted(zip(saved.tolist(), copied_s.tolist(), strict=True), key=_by_rate, reverse=True):
        if save and (copy_s == 0 or held > room * (passed_s + copy_s) + save):
            held, passed_s = held - save, passed_s + copy_s
        elif save:
            found_s: float = (held + passed_s * save / copy_s) / (room + save / copy_s)
            return max(passed_s, found_s)
    return max(passed_s, held / room) if room > 0 else passed_s


def _by_rate(part: tuple[float, float]) -> float:
    save, copy_s = part
    return save / copy_s if copy_s else math.inf
