"""Ranks: how strongly each layer's gradient is compressed in each epoch, under a budget on what is sent."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.ranks.problem import Problem
    from gapless.encodings.ranks.question import METHODS

__all__ = ["METHODS", "Problem"]

__getattr__ = names_of(__name__, {
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
