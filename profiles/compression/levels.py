"""What a rank sends of one tensor's gradient in a mode such as `powersgd:2`, recomputed from the tensor's shape.

As the hooks of `gapless.torch.ddp` send a tensor by itself, in single precision. A low-rank mode sends rank (m + n)
numbers of an m x n matrix (the first axis, and all others), if those are less than half of it; else it goes as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from gapless.errors import InputError

__all__ = ["FLOAT_BYTES", "KINDS", "check_mode", "collectives", "sent_bytes"]

FLOAT_BYTES = 4
"""Of a number, and of a place in a tensor of less than 2^31 numbers."""

_LEVELS_BYTES = 2 * FLOAT_BYTES

_BYTES: dict[str, tuple[Callable[[tuple[int, ...], float], int], bool]] = {
    "plain": (lambda shape, _: FLOAT_BYTES * math.prod(shape), False),
    "fp16": (lambda shape, _: FLOAT_BYTES // 2 * math.prod(shape), False),
    "bf16": (lambda shape, _: FLOAT_BYTES // 2 * math.prod(shape), False),
    "topk": (lambda shape, kept: 2 * FLOAT_BYTES * _count(shape, kept), True),
    "rand-k": (lambda shape, kept: FLOAT_BYTES * _count(shape, kept), True),
    "rand-k-gathered": (lambda shape, kept: 2 * FLOAT_BYTES * _count(shape, kept), True),
    "ef-signsgd": (lambda shape, _: _LEVELS_BYTES + -(-math.prod(shape) // 8), False),
    "onebit": (lambda shape, _: _LEVELS_BYTES + -(-math.prod(shape) // 8), False),
    "powersgd": (lambda shape, rank: FLOAT_BYTES * _low_rank(shape, int(rank)), True),
}
"""By kind of mode: what is sent of a shape at a setting, and whether there is one."""

KINDS = tuple(
    f"{kind}:{'RANK' if kind == 'powersgd' else 'SHARE'}" if has else kind for kind, (_, has) in _BYTES.items()
)
"""The modes, as people write them."""


def sent_bytes(mode: str, shape: Sequence[int]) -> int:
    """What a rank sends of a tensor of this shape in this mode. Raises `InputError` for a mode that is none."""
    kind, setting = check_mode(mode)
    return _BYTES[kind][0](tuple(shape), setting)


def collectives(mode: str) -> tuple[bool, int]:
    """Whether messages in this mode are summed as they pass (all-reduce; else all-gather), and how many there are."""
    kind, _ = check_mode(mode)
    return kind in ("plain", "fp16", "bf16", "rand-k", "powersgd"), 2 if kind == "powersgd" else 1


def check_mode(mode: str) -> tuple[str, float]:
    """The kind of a mode and its setting, 0 where it has none. Raises `InputError` for what is no mode."""
    kind, colon, text = mode.partition(":")
    if kind not in _BYTES or bool(colon) != _BYTES[kind][1]:
        raise InputError(f"mode: must be one of {', '.join(KINDS)}, got {mode!r}")
    if not colon:
        return kind, 0.0
    if kind == "powersgd":
        if not (text.isdecimal() and text.isascii() and 1 <= int(text) < 10**6):
            raise InputError(f"mode: a rank must be a whole number in 1..999999, got {mode!r}")
        return kind, float(text)
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise InputError(f"mode: a share must be a number above 0, at most 1, got {mode!r}")
    return kind, share


def _count(shape: tuple[int, ...], kept: float) -> int:
    return max(1, round(kept * math.prod(shape)))


def _low_rank(shape: tuple[int, ...], rank: int) -> int:
    numbers = math.prod(shape)
    if len(shape) < 2:
        return numbers
    factors = rank * (shape[0] + math.prod(shape[1:]))
    return factors if 2 * factors < numbers else numbers
