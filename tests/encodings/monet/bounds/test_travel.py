"""The bound with a link, against the quickest step that trying everything finds, tick by tick."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from examples import examples
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from tiny_offload import TICK_S, quickest_s
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.bounds.travel import deadlines, last_readers
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Bounding, Cooling, Parameters
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.profiles.training.networks import build
from gapless.solvers.registry import solve_model
from gapless.topologies.host import HostLink

QUICK = Parameters(bounding=Bounding(steps=50), cooling=Cooling(steps_per_node=10, patience=2), least_budget_steps=0)
MOST_STATES = 15_000


@st.composite
def travelling(draw: st.DrawFn) -> TrainingGraph:
    """A graph of few implementations whose first tensor is large, so that it is worth a journey, and short times."""
    graph = draw(training_graphs(3))
    assume(all(node.overwrites != 0 for node in graph.forward))
    forward = [
        replace(node, implementations=node.implementations[:1], again=node.again[:1], in_place=node.in_place[:1])
        for node in graph.forward
    ]
    forward[0] = replace(forward[0], output_bytes=8 * MIB)
    backward = tuple(
        replace(node, variants=tuple(replace(each, implementations=each.implementations[:1]) for each in node.variants))
        for node in graph.backward
    )
    graph = replace(graph, forward=tuple(forward), backward=backward)
    return graph.with_implementations(
        lambda _, impl: replace(impl, duration_s=(1 + round(impl.duration_s / TICK_S / 2)) * TICK_S)
    )


def quickest_or_none(graph: TrainingGraph, budget_bytes: int, bytes_a_tick: int | None) -> float | None:
    try:
        return quickest_s(graph, budget_bytes, bytes_a_tick, most_states=MOST_STATES)
    except OverflowError:
        assume(False)
        raise


@examples(2000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(travelling(), st.integers(2, 12), st.integers(1, 3), st.sampled_from([4, 8]))
def test_no_step_is_quicker_than_the_bound(graph: TrainingGraph, less_mib: int, windows: int, mib_a_tick: int) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    best_s = quickest_or_none(graph, budget_bytes, mib_a_tick * MIB)
    link = HostLink(mib_a_tick * MIB / TICK_S, 2**60)
    model = relaxation.encode(graph, budget_bytes, tuple(range(1, 1 + min(windows, len(graph.backward)))), link)
    solution = solve_model(model.milp, SolveOptions(threads=1))
    if solution.status is Status.INFEASIBLE:
        assert best_s is None
    elif best_s is not None:
        assert solution.bound is not None
        assert solution.bound * model.unit_s <= best_s * (1 + 1e-6) + 1e-12


@examples(300, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(travelling(), st.integers(2, 12), st.sampled_from([4, 8]))
def test_a_solve_is_between_its_bound_and_nothing_quicker(graph: TrainingGraph, less_mib: int, mib_a_tick: int) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    best_s = quickest_or_none(graph, budget_bytes, mib_a_tick * MIB)
    problem = Problem(graph, budget_bytes, link=HostLink(mib_a_tick * MIB / TICK_S, 2**60))
    found = gapless.solve(problem, SolveOptions(gap=0.0, threads=1), QUICK)
    assert "alarm" not in found.details
    if best_s is None:
        assert found.schedule is None
    else:
        assert found.status is not Status.INFEASIBLE
        assert found.solution.bound is not None
        assert found.solution.bound <= best_s * (1 + 1e-6) + 1e-12
        if found.report is not None:
            assert found.report.makespan_s >= best_s * (1 - 1e-9)


@examples(100, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(travelling(), st.integers(2, 12))
def test_without_a_link_trying_tick_by_tick_finds_what_the_dynamic_programme_does(
    graph: TrainingGraph, less_mib: int
) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    quickest, cheapest = quickest_or_none(graph, budget_bytes, None), cheapest_s(graph, budget_bytes)
    assert (quickest is None) == (cheapest is None)
    if quickest is not None and cheapest is not None:
        assert abs(quickest - cheapest) < 1e-9


def test_releases_and_deadlines_are_of_the_graph() -> None:
    graph = build("unet", 1)
    due, free = deadlines(graph), last_readers(graph)
    assert (free >= np.arange(len(graph.forward))).all()
    for stage, node in enumerate(graph.backward, 1):
        always = set.intersection(*(set(variant.needs) for variant in node.variants))
        assert all(due[need] <= stage for need in always)


def test_a_copy_that_the_loss_waits_for_is_in_the_bound() -> None:
    """The first tensor leaves between the end of the last operator and the start of the loss, which has no room for it.

    Its copies out and back take a tick each, which the step waits for; making it again takes five.
    """

    def node(name: str, mib: int, ticks: int, inputs: tuple[int, ...] = ()) -> ForwardNode:
        return ForwardNode(name, name, mib * MIB, inputs, (Implementation(ticks * TICK_S),))

    def back(of: int, mib: int, gradient: int, needs: tuple[int, ...]) -> BackwardNode:
        variant = Variant(needs, (Implementation(TICK_S),))
        return BackwardNode(f"grad{of}", "grad", of, mib * MIB, (gradient,), (variant,), 0)

    forward = (node("op0", 8, 5), node("op1", 2, 4, (0,)), node("loss", 8, 1, (1,)))
    graph = TrainingGraph("waits", 1, forward, (back(1, 0, 2, (1,)), back(0, 0, 3, (0,))), 0)
    best_s = quickest_s(graph, 17 * MIB, 8 * MIB)
    assert best_s == (5 + 4 + 1 + 1 + 1 + 1 + 1) * TICK_S
    assert best_s < quickest_s(graph, 17 * MIB, None)
    for cuts in ((1,), (2,), (1, 2)):
        model = relaxation.encode(graph, 17 * MIB, cuts, HostLink(8 * MIB / TICK_S, 2**60))
        bound = solve_model(model.milp, SolveOptions(threads=1)).bound
        assert bound is not None
        assert bound * model.unit_s <= best_s * (1 + 1e-6)
