"""Pipelines: where to cut a model, in which order ranks run micro-batches, what to recompute and to compress."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.pipeline.execution.training import training
    from gapless.encodings.pipeline.problem import Problem
    from gapless.encodings.pipeline.question import METHODS

__all__ = ["METHODS", "Problem", "training"]

__getattr__ = names_of(__name__, {
    "problem": ("Problem",),
    "execution.training": ("training",),
    "question": ("METHODS",),
})  # fmt: skip
