"""Cupcake: which neighbouring gradients to compress and communicate together."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.cupcake.problem import Problem
    from gapless.encodings.cupcake.question import METHODS

__all__ = ["METHODS", "Problem"]

__getattr__ = names_of(__name__, {
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
