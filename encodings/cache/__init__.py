"""Cache: how each layer and head keeps its keys and values: in few bits, shared, for a window of tokens."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.cache.decision import CacheDecision
    from gapless.encodings.cache.problem import Problem
    from gapless.encodings.cache.question import METHODS

__all__ = ["METHODS", "CacheDecision", "Problem"]

__getattr__ = names_of(__name__, {
    "decision": ("CacheDecision",),
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
