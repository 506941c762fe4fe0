"""What ranks keep of micro-batches from one op to another."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.pipeline.order.messages import held
from gapless.encodings.pipeline.order.stages import Stages

__all__ = ["Kept", "kept_between"]


class Kept(NamedTuple):
    """What micro-batches keep: what stands for the ops with which each part comes and goes, how long the latter hold
    their rank, and bytes."""

    begins: Ints
    ends: Ints
    delays: Floats
    sizes: Ints

    @classmethod
    def none(cls) -> Kept:
        """Nothing."""
        return cls.even(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), 0.0, 0)

    @classmethod
    def even(cls, begins: Ints, ends: Ints, delay: float, size: int) -> Kept:
        """Parts of one size."""
        return cls(begins, ends, np.full(len(begins), delay), np.full(len(begins), size, dtype=np.int64))

    def with_more(self, other: Kept) -> Kept:
        """These and others."""
        begins, ends, delays, sizes = (np.concatenate(columns) for columns in zip(self, other, strict=True))
        return Kept(begins, ends, delays, sizes)

    def where(self, chosen: Mask) -> Kept:
        """Some of the parts."""
        return Kept(self.begins[chosen], self.ends[chosen], self.delays[chosen], self.sizes[chosen])


def kept_between(stages: Stages, here: Ints, ops: Ints, ends_of: Ints | None = None) -> Kept:
    """What micro-batches keep on some stages. `ops[kind, s, m]`: what stands for an op, its number or its column;
    `ends_of`: likewise, where something else stands for its end."""
    ended = ops if ends_of is None else ends_of
    held_s, shape = held(stages), (len(here), stages.micro_batches)
    parts = [
        Kept(ops[span.begin, here], ended[span.end, here], np.broadcast_to(held_s[span.end, here, None], shape),
             np.broadcast_to(span.size_bytes[here, None], shape))
        for span in stages.spans
    ]  # fmt: skip
    begins, ends, delays, sizes = (np.concatenate([part[k].reshape(-1) for part in parts]) for k in range(4))
    return Kept(begins, ends, delays, sizes).where(sizes > 0)
