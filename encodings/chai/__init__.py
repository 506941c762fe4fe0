"""CHAI: which attention heads share one head's attention, so that the other keys needn't be cached."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.chai.head_map import HeadMap
    from gapless.encodings.chai.problem import Problem
    from gapless.encodings.chai.question import METHODS

__all__ = ["METHODS", "HeadMap", "Problem"]

__getattr__ = names_of(__name__, {
    "head_map": ("HeadMap",),
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
