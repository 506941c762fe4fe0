"""What ranks hold of micro-batches, bytes times seconds: no step is over before there was room for all of it."""

from __future__ import annotations

import math

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.bounds.activities import passes_s
from gapless.encodings.pipeline.bounds.heads import Heads
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["held_s", "kept_s"]


def held_s(stages: Stages, heads: Heads, arrivals_s: list[float]) -> float:
    """Seconds that no order takes less, by what ranks hold of micro-batches: bytes times seconds.

    That is while ops run, and between forward and backward for as long as later stages take, or for two copies. Copies
    are made one after the other. `heads`: of these stages without a link, where nothing is remembered.
    """
    return max(_held_s(stages, heads, rank, arrival_s) for rank, arrival_s in enumerate(arrivals_s))


def _byte_seconds(stages: Stages, heads: Heads) -> tuple[Floats, Floats]:
    """What a micro-batch holds of each stage at least, and for how long between its forward and its backward, float of
    shape (S,)."""
    passes = passes_s(heads)
    between_s = passes[Kind.BACKWARD] - passes[Kind.FORWARD] - heads.own_s[Kind.FORWARD]
    kept, sizes = stages.kept_bytes, [stages.kept_bytes, stages.full_bytes, stages.deferred_bytes]
    own = [size * own_s for size, own_s in zip(sizes, heads.own_s, strict=False)]
    return np.sum(own, axis=0) + kept * between_s, between_s


def kept_s(stages: Stages, heads: Heads, arrivals_s: list[float]) -> float:
    """The same where everything stays on its rank, whose stages share its room; 0 where there are cells.

    Memory fills no faster than one forward after the other, and empties no faster than one of the last ops of
    micro-batches after the other. `heads`: where nothing is remembered.
    """
    if stages.has_cells:  # a forward may take less there than by itself
        return 0.0
    each, _ = _byte_seconds(stages, heads)
    held, found_s = stages.micro_batches * np.bincount(stages.rank, each, stages.ranks), 0.0
    for rank in np.flatnonzero(stages.room_bytes > 0).tolist():
        after_s = float(heads.tail_s[:, stages.rank == rank].min())
        found_s = max(found_s, arrivals_s[rank] + _filled_s(stages, heads, rank, float(held[rank])) + after_s)
    return found_s


def _filled_s(stages: Stages, heads: Heads, rank: int, held: float) -> float:
    """How long a rank takes to hold so many byte-seconds. What is lost while it fills, and while it empties, counts
    where that takes too long to be done at once."""
    here, room = stages.rank == rank, float(stages.room_bytes[rank])
    most, whole_s = float(stages.full_bytes[here].max()), held / room
    steps = room // most if most else math.inf
    step_s = float(heads.own_s[0, here].min() + heads.own_s[-1, here].min())
    if not math.isfinite(steps) or whole_s < step_s * steps:
        return whole_s
    return whole_s + step_s * (steps - most / room * steps * (steps + 1) / 2)


def _held_s(stages: Stages, heads: Heads, rank: int, arrival_s: float) -> float:
    assert stages.offload_s is not None
    here, kept = np.flatnonzero(stages.rank == rank), stages.kept_bytes.astype(np.float64)
    each, between_s = _byte_seconds(stages, heads)
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
