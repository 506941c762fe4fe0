"""What a whole solve says of a tiny training graph, held against a dynamic programme that knows no model."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from tiny_training import cheapest_s, in_units, keep_all, training_graphs

import gapless
from gapless import SolveOptions, Status, StopReason
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds.must_hold import is_refuted
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Parameters
from gapless.profiles.training.graph import TrainingGraph

__all__ = ["UNITS_BYTES", "assert_the_proof_is_true", "questions"]

PARAMETERS = Parameters(least_budget_steps=100)
"""With little of the search for the least budget that is possible, which comes after a proof that nothing fits."""

UNITS_BYTES = [1, 7, 1000, 2**13, 10**6, 2**20, 2**30]


@st.composite
def questions(draw: st.DrawFn) -> tuple[TrainingGraph, int]:
    """A graph with sizes from bytes to GiB, and a budget at or below what keeping all takes."""
    unit_bytes = draw(st.sampled_from(UNITS_BYTES))
    graph = in_units(draw(training_graphs(5)), unit_bytes)
    return graph, max(1, evaluate(graph, keep_all(graph)).peak_bytes - draw(st.integers(0, 20)) * unit_bytes)


def assert_the_proof_is_true(graph: TrainingGraph, budget_bytes: int) -> Status:
    """Solve to the end of all work, and compare; returns what the solve says."""
    best_s = cheapest_s(graph, budget_bytes)
    result = gapless.solve(Problem(graph, budget_bytes), SolveOptions(gap=0.0, threads=1), PARAMETERS)
    assert result.solution.stop_reason is not StopReason.TIME_LIMIT
    assert not {"alarm", "unconfirmed"} & result.details.keys()
    if best_s is None:
        assert result.status in (Status.INFEASIBLE, Status.NO_SOLUTION)
        return result.status
    assert result.status is not Status.INFEASIBLE
    assert not is_refuted(graph, budget_bytes)
    assert result.solution.bound is not None
    assert result.solution.bound <= best_s * (1 + 1e-6) + 1e-12
    if result.status is Status.OPTIMAL:
        assert result.solution.objective == pytest.approx(best_s, rel=2e-6, abs=1e-12)
    return result.status
