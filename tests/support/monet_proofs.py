"""What a whole solve says of a tiny training graph, held against a dynamic programme that knows no model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from tiny_offload import TICK_S, quickest_s
from tiny_training import cheapest_s, in_units, keep_all, training_graphs

import gapless
from gapless import SolveOptions, Status, StopReason
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds.must_hold import is_refuted
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Bounding, Cooling, Parameters
from gapless.profiles.training.graph import TrainingGraph
from gapless.topologies.host import HostLink

__all__ = [
    "UNITS_BYTES", "assert_the_proof_is_true", "assert_the_proof_with_a_link_is_true", "questions",
    "questions_with_a_link",
]  # fmt: skip

PARAMETERS = Parameters(least_budget_steps=100)
"""With little of the search for the least budget that is possible, which comes after a proof that nothing fits."""

LINK_PARAMETERS = Parameters(
    bounding=Bounding(steps=50), cooling=Cooling(steps_per_node=10, patience=2), least_budget_steps=0
)
MOST_STATES = 15_000
"""That trying everything tick by tick may look at."""

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


@st.composite
def questions_with_a_link(draw: st.DrawFn) -> tuple[TrainingGraph, int, int]:
    """A graph of few operators whose first tensor is large, so that it is worth a journey; a budget; bytes a tick.

    All takes whole ticks.
    """
    unit_bytes = draw(st.sampled_from(UNITS_BYTES))
    graph = in_units(draw(training_graphs(3)), unit_bytes)
    first = graph.forward[0]
    if all(node.overwrites != 0 for node in graph.forward):
        first = replace(first, output_bytes=8 * unit_bytes)
    graph = replace(graph, forward=(first, *graph.forward[1:])).with_implementations(
        lambda _, impl: replace(impl, duration_s=(1 + round(impl.duration_s / TICK_S / 2)) * TICK_S)
    )
    budget_bytes = evaluate(graph, keep_all(graph)).peak_bytes - draw(st.integers(2, 12)) * unit_bytes
    return graph, max(1, budget_bytes), draw(st.sampled_from([4, 8])) * unit_bytes


def assert_the_proof_with_a_link_is_true(graph: TrainingGraph, budget_bytes: int, bytes_a_tick: int) -> Status | None:
    """The same beside all that can be done with a link, tick by tick; None where that is too much to look at.

    The replay judges plans with copies, which charges less than the rows: they may be quicker than what rows allow.
    """
    try:
        best_s = quickest_s(graph, budget_bytes, bytes_a_tick, most_states=MOST_STATES)
    except OverflowError:
        return None
    problem = Problem(graph, budget_bytes, link=HostLink(bytes_a_tick / TICK_S, 2**62))
    result = gapless.solve(problem, SolveOptions(gap=0.0, threads=1), LINK_PARAMETERS)
    assert "alarm" not in result.details
    if best_s is None:
        return result.status
    assert result.status is not Status.INFEASIBLE
    assert result.solution.bound is not None
    assert result.solution.bound <= best_s * (1 + 1e-6) + 1e-12
    if result.status is Status.OPTIMAL:
        assert result.solution.objective is not None
        assert result.solution.objective <= best_s * (1 + 2e-6) + 1e-12
    return result.status
