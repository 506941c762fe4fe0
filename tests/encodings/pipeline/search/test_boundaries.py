"""Boundaries that are moved: what lies beside a cut, and that moving them ends no worse."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from examples import share

from gapless.checker import check
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import EvenHops, Problem
from gapless.encodings.pipeline.search.boundaries import nearby
from gapless.encodings.pipeline.solve import solve
from gapless.methods import MethodChoice
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile

FEW = Parameters(
    heuristic_ops=1000, quick_ops=500, partial_cuts=1, refined_cuts=1, methods=MethodChoice(only=("zero-bubble",))
)


def uneven(seed: int) -> Problem:
    """A V on two ranks, of twelve layers that take one to nine seconds."""
    rng = np.random.default_rng(seed)
    times = [rng.integers(1, 10, 12).astype(float) for _ in range(3)]
    sizes = [np.ones(12, dtype=np.int64)] * 4
    profile = PipelineProfile("uneven", tuple(map(str, range(12))), *times, *sizes)
    return Problem(profile, 2, 4, placement=("v", "looped")[seed % 2], chunks=2, hops=EvenHops(0.5, 0.0))


def test_cuts_beside_a_cut_leave_a_layer_to_each_stage() -> None:
    found = list(nearby((2, 4, 5), 7))
    assert len(found) == len(set(found))
    assert (2, 4, 5) not in found
    assert {(1, 4, 5), (3, 4, 5), (2, 3, 5), (2, 4, 6), (1, 3, 4), (3, 5, 6), (2, 3, 4), (2, 5, 6), (1, 3, 5)} <= set(
        found
    )
    assert all(a < b for cut in found for a, b in pairwise((0, *cut, 7)))


@pytest.mark.parametrize("seed", range(share(100)))
def test_moving_boundaries_never_ends_worse(seed: int) -> None:
    problem, options = uneven(seed), SolveOptions(gap=0.0)
    before, after = (solve(problem, options, replace(FEW, moved_cuts=moved)) for moved in (1, 12))
    assert before.solution.objective is not None
    assert after.solution.objective is not None
    assert after.solution.objective <= before.solution.objective
    assert after.schedule is not None
    assert check(after.schedule).valid


def test_a_boundary_that_is_moved_makes_a_step_shorter() -> None:
    first, moved = (solve(uneven(0), SolveOptions(), replace(FEW, moved_cuts=count)) for count in (1, 24))
    assert moved.solution.objective is not None
    assert first.solution.objective is not None
    assert moved.solution.objective < first.solution.objective
