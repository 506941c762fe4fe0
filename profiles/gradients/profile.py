"""Fusion profile: the gradients of one training step as they become ready, and what it costs to send them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.gradients.cost_functions import CostFunction

__all__ = ["FusionProfile"]

_LARGEST_BYTES = 2**53  # up to which sums of sizes are exact in floating point

_LONGEST_S = 1e100
"""Short enough for sums and multiples of times to stay finite."""


@dataclass(frozen=True)
class FusionProfile:
    """A training step with data parallelism, seen from one worker.

    Letters in the paper are those of *A compression scheduler for scalable communication-efficient distributed
    training*, section 4.1.

    `size_bytes[k]`: int64, shape (tensors,), x_k in the paper: gradients in the order in which they become ready.
    `backward_s[k]`: float, B(T_k): the backward time between gradient k - 1 and gradient k. `forward_s`: A.
    `compression`: h, encode plus decode of a group. `communication`: g, a collective on a group, as a function of the
    bytes *before* compression. `uncompressed_communication`: the same for a group that isn't compressed, if known.
    `source`: where the numbers are from. `batch`: examples of a rank in the step, 0 where that isn't known.
    Raises `InputError` where lengths differ, a name stands twice, or a number is negative or not finite.
    """

    name: str
    forward_s: float
    tensor_names: tuple[str, ...]
    size_bytes: NDArray[np.int64]
    backward_s: NDArray[np.float64]
    compression: CostFunction
    communication: CostFunction
    uncompressed_communication: CostFunction | None = None
    source: str = ""
    batch: int = 0

    def __post_init__(self) -> None:
        where = f"profile {self.name!r}"
        count = len(self.tensor_names)
        if not count:
            raise InputError(f"{where}: tensors must hold at least one, got none")
        if self.size_bytes.shape != (count,) or self.backward_s.shape != (count,):
            raise InputError(f"{where}: size_bytes and backward_s must have one entry for each of {count} tensors")
        if len(set(self.tensor_names)) < count:
            twice = next(name for k, name in enumerate(self.tensor_names) if name in self.tensor_names[:k])
            raise InputError(f"{where}: names of tensors must differ, got {twice!r} twice")
        if self.batch < 0:
            raise InputError(f"{where}: batch must be >= 0, got {self.batch}")
        if not (math.isfinite(self.forward_s) and self.forward_s >= 0):
            raise InputError(f"{where}: forward_s must be finite and >= 0, got {self.forward_s}")
        for title, column in (("size_bytes", self.size_bytes), ("backward_s", self.backward_s)):
            wrong = ~(np.isfinite(column) & (column >= 0))
            if wrong.any():
                first = int(wrong.argmax())
                name = self.tensor_names[first]
                raise InputError(f"tensor {name!r}: {title} must be finite and >= 0, got {column[first]}")
        total = sum(self.size_bytes.tolist())
        if total > _LARGEST_BYTES:
            raise InputError(f"{where}: size_bytes must sum to at most 2^53, got {total}")
        self._check_longest(where, total)

    def _check_longest(self, where: str, total_bytes: int) -> None:
        """No fusion takes so long that sums of times leave the floating-point numbers."""
        costs = [cost for cost in (self.compression, self.communication, self.uncompressed_communication) if cost]
        group_s = sum(cost.highest_s(total_bytes) for cost in costs)
        longest_s = self.forward_s + sum(self.backward_s.tolist()) + self.tensor_count * group_s
        if not longest_s <= _LONGEST_S:
            raise InputError(f"{where}: a step must take at most {_LONGEST_S:g} s in any fusion, got {longest_s:g} s")

    @property
    def tensor_count(self) -> int:
        """N in the paper."""
        return len(self.tensor_names)

    @property
    def total_bytes(self) -> int:
        """The bytes of all gradients."""
        return int(self.size_bytes.sum())

    @property
    def compute_s(self) -> float:
        """Forward plus backward: a step of one worker alone."""
        return self.forward_s + float(self.backward_s.sum())
