"""Ok-Topk: which range of a sparse gradient each rank reduces, so that an allreduce is soon done."""

from typing import TYPE_CHECKING

from gapless.lazy import names_of

if TYPE_CHECKING:
    from gapless.encodings.oktopk.allreduce.balancing import balancing_moves
    from gapless.encodings.oktopk.cuts.boundaries import exact_boundaries
    from gapless.encodings.oktopk.cuts.loads import Loads
    from gapless.encodings.oktopk.problem import Problem
    from gapless.encodings.oktopk.question import METHODS

__all__ = ["METHODS", "Loads", "Problem", "balancing_moves", "exact_boundaries"]

__getattr__ = names_of(__name__, {
    "allreduce.balancing": ("balancing_moves",),
    "cuts.boundaries": ("exact_boundaries", "renewed_cuts"),
    "cuts.loads": ("Loads",),
    "problem": ("Problem",),
    "question": ("METHODS",),
})  # fmt: skip
