"""Lines below a plan: why there is none, and of what its errors are."""

from __future__ import annotations

from collections.abc import Mapping

from gapless.units import format_bytes

__all__ = ["remarks"]


def remarks(details: Mapping[str, object]) -> tuple[str, ...]:
    """Why there is no plan, where there is none; where errors are of sequences of another length."""
    least, tokens, sequence = (details.get(name) for name in ("least_bytes", "tokens", "sequence"))
    if isinstance(least, int):
        return (f"the smallest cache that the modes allow takes {format_bytes(least)}; a baseline may take more",)
    if not isinstance(tokens, int) or not isinstance(sequence, int) or tokens == sequence:
        return ()
    said = f"errors were measured on sequences of {sequence:,} tokens, and the cache is of {tokens:,}"
    others = ": its windows drop more than was measured" if details.get("windows") and tokens > sequence else ""
    return (f"{said}{others}; `gapless profile cache --sequence {tokens}` measures those",)
