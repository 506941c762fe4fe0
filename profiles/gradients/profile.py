"""Fusion profile: the gradients of one training step as they become ready, and what it costs to send them.

A large gradient is ready at once, but need not be encoded and sent at once: it may be cut into pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.errors import InputError
from gapless.io.record import check_known
from gapless.profiles.gradients.modes import PLAIN, Mode
from gapless.report.short_repr import Brief

__all__ = ["FusionProfile", "in_pieces"]


_LARGEST_BYTES = 2**53  # up to which sums of sizes are exact in floating point

_LONGEST_S = 1e100
"""Short enough for sums and multiples of times to stay finite."""


@dataclass(frozen=True, repr=False)
class FusionProfile(Brief):
    """A training step with data parallelism, seen from one worker.

    Letters in the paper are those of *A compression scheduler for scalable communication-efficient distributed
    training*, section 4.1.

    `size_bytes[k]`: int64, shape (tensors,), x_k in the paper: gradients in the order in which they become ready.
    `backward_s[k]`: float, B(T_k): the backward time between gradient k - 1 and gradient k. `forward_s`: A.
    `modes`: how a group may be sent, with the costs of each (h is encode plus decode, g the collective). `source`:
    where the numbers are from. `shapes[k]`: of the tensor, empty where they aren't known. `cores`: that the work of a
    rank shares, backward pass, encoding, collectives and decoding; None for as many as it needs.
    Raises `InputError` where lengths differ, a name stands twice, or a number is negative or not finite.
    """

    name: str
    forward_s: float
    tensor_names: tuple[str, ...]
    size_bytes: Ints
    backward_s: Floats
    modes: tuple[Mode, ...]
    source: str = ""
    shapes: tuple[tuple[int, ...], ...] = ()
    batch: int = 0
    cores: float | None = None

    def __post_init__(self) -> None:
        where = f"profile {self.name!r}"
        count = len(self.tensor_names)
        if not count:
            raise InputError(f"{where}: tensors must hold at least one, got none")
        if self.size_bytes.shape != (count,) or self.backward_s.shape != (count,):
            raise InputError(f"{where}: size_bytes and backward_s must have one entry for each of {count} tensors")
        _check_differ(f"{where}: names of tensors", self.tensor_names)
        self._check_modes(where)
        if self.shapes and len(self.shapes) != count:
            raise InputError(f"{where}: shapes must be of all {count} tensors or of none, got {len(self.shapes)}")
        if self.batch < 0:
            raise InputError(f"{where}: batch must be >= 0, got {self.batch}")
        if self.cores is not None and not 1 <= self.cores < math.inf:
            raise InputError(f"{where}: cores must be finite and at least 1, for the backward pass, got {self.cores}")
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
        self._check_longest(where)

    def _check_modes(self, where: str) -> None:
        if not self.modes:
            raise InputError(f"{where}: modes must hold at least one, got none")
        _check_differ(f"{where}: names of modes", tuple(mode.name for mode in self.modes))
        for mode in self.modes:
            for title in ("encoded_bytes", "sent_bytes"):
                sizes = getattr(mode, title)
                if sizes is not None and len(sizes) != self.tensor_count:
                    rule = f"have one entry for each of {self.tensor_count} tensors"
                    raise InputError(f"{where}: mode {mode.name!r}: {title} must {rule}, got {len(sizes)}")

    def _check_longest(self, where: str) -> None:
        """No fusion takes so long that sums of times leave the floating-point numbers."""
        group_s = sum(mode.highest_s(self.size_bytes) for mode in self.modes)
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

    @property
    def mode_names(self) -> tuple[str, ...]:
        """The names of the modes, in their order."""
        return tuple(mode.name for mode in self.modes)

    def mode(self, name: str) -> Mode:
        """The mode of that name. Raises `InputError` for one that the profile doesn't have."""
        check_known("mode", name, self.mode_names)
        return next(mode for mode in self.modes if mode.name == name)

    @property
    def compressing(self) -> tuple[str, ...]:
        """The names of the modes that compress."""
        return tuple(name for name in self.mode_names if name != PLAIN)


def _check_differ(what: str, names: tuple[str, ...]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise InputError(f"{what} must differ, got {twice!r} twice")


_MOST_PIECES = 100_000


def in_pieces(profile: FusionProfile, most_bytes: int) -> FusionProfile:
    """The profile with gradients above `most_bytes` cut into as few equal pieces as can be, of whole rows.

    Pieces are named `weight[0]`, `weight[1]`, ...; all are ready with the gradient. A gradient whose shape isn't known
    counts as bytes. Raises `InputError` for a mode with vectors of its own, which don't say what a piece costs.
    """
    if most_bytes < 1:
        raise InputError(f"pieces: must be at least 1 B, got {most_bytes}")
    for mode in profile.modes:
        if mode.encoded_bytes is not None or mode.sent_bytes is not None:
            raise InputError(f"pieces: mode {mode.name!r} has vectors of its own; give a network, to price its pieces")
    if sum(-(-size // most_bytes) for size in profile.size_bytes.tolist()) > _MOST_PIECES:
        raise InputError(
            f"pieces: must leave at most {_MOST_PIECES:,} of them, got pieces of {most_bytes} B; take larger ones"
        )
    names, sizes, gaps_s, shapes = [], [], [], []
    for k, name in enumerate(profile.tensor_names):
        size, gap_s = int(profile.size_bytes[k]), float(profile.backward_s[k])
        shape = profile.shapes[k] if profile.shapes else (size,)
        rows = shape[0] if shape else 1
        count = max(1, min(rows, -(-size // most_bytes)))
        for number in range(count):
            begin, end = rows * number // count, rows * (number + 1) // count
            names.append(name if count == 1 else f"{name}[{number}]")
            sizes.append(size * end // rows - size * begin // rows if rows else size)
            gaps_s.append(0.0 if number else gap_s)
            shapes.append((end - begin, *shape[1:]) if shape else shape)
    return replace(
        profile,
        tensor_names=tuple(names),
        size_bytes=np.array(sizes, dtype=np.int64),
        backward_s=np.array(gaps_s),
        shapes=tuple(shapes) if profile.shapes else (),
    )
