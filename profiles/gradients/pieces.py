"""Gradients in pieces: a large one is ready at once, but need not be encoded and sent at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.errors import InputError
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["in_pieces"]

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
