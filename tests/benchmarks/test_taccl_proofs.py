"""A search for false proofs: 300 random routings, at any scale, with and without presolve and by CBC, where it is.

No solver's optimum differs from another's, and no bound of a phase from a replayed plan. Run with
`pytest tests/benchmarks/test_taccl_proofs.py`.
"""

from __future__ import annotations

import pytest
from cbc_here import needs_cbc
from random_routings import optima_s, random_question

import gapless
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.options import SolveOptions
from gapless.solvers.registry import backends

SEEDS = range(1000, 1300)
CBC_NAMES = ("pulp:PULP_CBC_CMD", "pulp:COIN_CMD")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_routing_is_as_long_without_presolve(seed: int) -> None:
    problem = random_question(seed)
    assert optima_s(problem) == pytest.approx(optima_s(problem, presolve=False), rel=1e-6)


@needs_cbc
@pytest.mark.parametrize("seed", SEEDS)
def test_a_routing_is_as_long_by_another_solver(seed: int) -> None:
    problem = random_question(seed)
    cbc = next(backend.name for backend in backends(look_inside=True) if backend.name in CBC_NAMES)
    assert optima_s(problem) == pytest.approx(optima_s(problem, cbc), rel=1e-6)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_shorter_than_a_bound(seed: int) -> None:
    problem = random_question(seed)
    result = gapless.solve(problem, SolveOptions(threads=1, gap=0.0))
    assert result.valid
    assert result.report is not None
    assert result.solution.bound is not None
    bounds, end_s = bounds_of(problem), result.report.makespan_s * (1 + 1e-9)
    assert result.solution.bound <= end_s
    assert bounds.any_grouping_s <= end_s
    assert bounds.any_chunking_s <= end_s
