"""Which stages run their forward again before their backward, to keep no more than their input until then."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.pipeline.problem import Problem

__all__ = ["are_all_choices", "recomputation_choices"]

Choice = NDArray[np.bool_]


def recomputation_choices(problem: Problem, most_stages: int) -> list[Choice]:
    """What stages may recompute, bool of shape (S,) each; those with fewest stages first.

    Where it is left to the search: every subset of up to `most_stages` stages; of more, only none, all, and the first
    so many, which are those that keep most micro-batches.
    """
    count = problem.stage_count
    if problem.recomputation != "auto":
        return [np.full(count, problem.recomputation == "all")]
    if count <= most_stages:
        subsets = sorted(product((False, True), repeat=count), key=lambda choice: (sum(choice), choice[::-1]))
        return [np.array(subset) for subset in subsets]
    return [np.arange(count) < recomputed for recomputed in range(count + 1)]


def are_all_choices(problem: Problem, most_stages: int) -> bool:
    """Whether `recomputation_choices` leaves nothing out."""
    return problem.recomputation != "auto" or problem.stage_count <= most_stages
