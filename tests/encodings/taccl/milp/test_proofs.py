"""What solvers claim of routings: the same with and without presolve and by another solver, at any scale."""

from __future__ import annotations

import math

import pytest
from random_routings import optima_s, random_question

import gapless
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.milp import synthesis
from gapless.encodings.taccl.milp.router import Router
from gapless.options import SolveOptions
from gapless.solution import Status


@pytest.mark.parametrize("seed", range(6))
def test_a_routing_is_as_long_without_presolve(seed: int) -> None:
    problem = random_question(seed)
    assert optima_s(problem) == pytest.approx(optima_s(problem, presolve=False), rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_no_plan_is_shorter_than_its_bound_and_the_gap_is_that_of_the_two(seed: int) -> None:
    result = gapless.solve(random_question(seed), SolveOptions(threads=1, gap=0.0))
    assert result.valid
    assert result.report is not None
    assert result.solution.bound is not None
    assert result.solution.bound <= result.report.makespan_s * (1 + 1e-9)
    proven = math.isclose(result.solution.bound, result.report.makespan_s, rel_tol=1e-6)
    assert (result.status is Status.OPTIMAL) == proven


def test_an_optimum_that_the_solver_does_not_repeat_is_not_called_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that is too high by itself, as a solver's wrong presolve would have it, up to the plan's own length."""
    problem = random_question(0)
    plan = synthesis.synthesise(problem, SolveOptions(threads=1))
    assert plan is not None
    end_s = plan.end_s
    least_s = bounds_of(problem).chunk_by_chunk_s
    assert least_s < end_s * (1 - 1e-3)

    def too_high(search: synthesis._Search, router: Router, bound: float | None) -> None:
        search.bounds = search.bounds.with_proven(end_s)

    monkeypatch.setattr(synthesis, "_note_bound", too_high)
    claimed = synthesis.synthesise(problem, SolveOptions(threads=1))
    assert claimed is not None
    assert claimed.gap is not None
    assert claimed.gap > 1e-6
    assert claimed.proven_s == pytest.approx(least_s)
