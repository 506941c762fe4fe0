"""The stages of a transformer as frameworks count them: blocks, with the embedding before and the head after them."""

from __future__ import annotations

from itertools import pairwise

from gapless.errors import InputError
from gapless.io.record import Record

__all__ = ["blocks_of"]


def blocks_of(asked: Record, cut: tuple[int, ...], framework: str) -> tuple[list[int], list[int]]:
    """How many layers each stage has, and how many of them are transformer blocks. `asked`: the plan's question.

    Raises `InputError` for layers of something else.
    """
    names = asked.array("layer_names")
    if len(names) < 3 or names[0] != "embedding" or names[-1] != "head":
        raise InputError(f"{framework} needs the layers of a transformer: embedding, ..., head; use such a profile")
    sizes = [last - first for first, last in pairwise((0, *cut, len(names)))]
    return sizes, [size - (stage == 0) - (stage == len(sizes) - 1) for stage, size in enumerate(sizes)]
