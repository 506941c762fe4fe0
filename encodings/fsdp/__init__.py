"""FSDP: which sharded parameters are gathered together, when, in which precision, and which of them are kept."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.fsdp.problem import Problem
    from gapless.encodings.fsdp.question import METHODS

__all__ = ["METHODS", "Problem"]

__getattr__ = names_of(__name__, {
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
