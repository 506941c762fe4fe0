"""States and gradients that travel: what is said of them is what the replay finds; none quicker than trying all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tiny_training import MIB
from tiny_updates import Step, quickest_ticks

import gapless
from gapless import InputError, SolveOptions, Status
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds.updates import least_bytes, travelling_s
from gapless.encodings.monet.evaluate import Evaluation, evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.offload.keeper import OffloadKeeper
from gapless.encodings.monet.offload.trips import HOST, RESIDENT, VISITS, Trips
from gapless.encodings.monet.parameters import Bounding, Cooling, Parameters
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.profiles.training.optimizer import Updates, updates_of, with_optimizer
from gapless.solution import StopReason
from gapless.topologies.host import HostLink

QUICK = Parameters(
    bounding=Bounding(steps=2, small_cells=0), cooling=Cooling(steps_per_node=2, patience=1), least_budget_steps=100
)
TICK_S = 1e-5
UNIT = 4 * MIB
"""Sizes are whole units, so that copies take whole ticks."""


@st.composite
def chains(draw: st.DrawFn, most: int = 3) -> TrainingGraph:
    """A chain whose operators have parameters of 0 to 2 units, and run for whole ticks."""
    ops = draw(st.integers(2, most))
    ticks, sizes = st.integers(0, 3), st.integers(0, 3).map(lambda size: size * UNIT)

    def run() -> tuple[Implementation, ...]:
        return (Implementation(draw(ticks) * TICK_S),)

    forward = [ForwardNode(f"op{k}", "op", draw(sizes), (k - 1,) if k else (), run()) for k in range(ops)]
    forward.append(ForwardNode("loss", "loss", 0, (ops - 1,), (Implementation(0.0),)))
    backward, fixed_bytes = list[BackwardNode](), draw(sizes)
    graph_bytes = fixed_bytes
    for b in range(ops):
        fixed_bytes += draw(st.integers(0, 2)) * UNIT
        variants = (Variant((ops - 1 - b,), run()),)
        backward.append(BackwardNode(f"grad{b}", "grad", ops - 1 - b, draw(sizes), (ops + b,), variants, fixed_bytes))
    return TrainingGraph("chain", 1, tuple(forward), tuple(backward), graph_bytes)


def all_trips(updates: Updates) -> Iterator[Trips]:
    """All places of states and of gradients."""
    with_states = [(RESIDENT, VISITS, HOST) if size else (RESIDENT,) for size in updates.states_bytes]
    may_go = updates.gradients == "offloaded"
    with_gradients = [(False, True) if may_go and size else (False,) for size in updates.gradients_bytes]
    for states, gradients in product(product(*with_states), product(*with_gradients)):
        yield Trips(updates, states, gradients)


def keeping_all(graph: TrainingGraph) -> KeepSet:
    return KeepSet.just_in_time(np.ones(len(graph.forward), bool), np.zeros(len(graph.backward), np.int64))


def rows_of(graph: TrainingGraph) -> Evaluation:
    return evaluate(graph, OffloadKeeper(graph, 2**40, HostLink(1.0, 1)).decide(keeping_all(graph)))


def peak_bytes(graph: TrainingGraph) -> int:
    return rows_of(graph).peak_bytes


def steps_of(graph: TrainingGraph, apart: TrainingGraph, updates: Updates) -> tuple[list[Step], list[int], int]:
    """The step that keeps all as a sequence of operators, the sizes of states and gradients, how many are states.

    `apart`: the graph without the gradients that may travel.
    """
    rows = rows_of(apart)
    first = [
        Step(round(node.implementations[0].duration_s / TICK_S), int(row))
        for node, row in zip(graph.forward, rows.forward_bytes, strict=True)
    ]
    there = [b for b, size in enumerate(updates.states_bytes) if size]
    sizes = [updates.states_bytes[b] for b in there]
    goes = [b for b in range(len(graph.backward)) if updates.gradients == "offloaded" and updates.gradients_bytes[b]]
    made = {b: (len(there) + k,) for k, b in enumerate(goes)}
    last = []
    for b, (node, row) in enumerate(zip(graph.backward, rows.backward_bytes.tolist(), strict=True)):
        own = tuple(k for k, other in enumerate(there) if other == b)
        ticks, makes = round(node.variants[0].implementations[0].duration_s / TICK_S), made.get(b, ())
        row -= updates.gradients_bytes[b] * bool(makes)
        first.append(Step(ticks, row, own if updates.are_applied else (), makes))
        if not updates.are_applied and (own or makes):
            last.append(Step(0, max(node.fixed_bytes for node in apart.backward), own, (), makes))
    return [*first, *last], [*sizes, *(updates.gradients_bytes[b] for b in goes)], len(there)


@examples(500, suppress_health_check=[HealthCheck.too_slow])
@given(
    chains(2), st.sampled_from(["kept", "applied", "offloaded"]), st.sampled_from([2, 4]), st.integers(0, 8),
    st.sampled_from(["adamw", "momentum"]),
)  # fmt: skip
def test_no_step_is_quicker_than_the_bound_and_no_plan_than_trying_all(
    graph: TrainingGraph, gradients: str, mib_a_tick: int, less_units: int, optimizer: str
) -> None:
    updates = updates_of(graph, optimizer, gradients)
    if gradients == "applied":
        graph = with_optimizer(graph, "sgd", are_applied=True)
    apart = with_optimizer(graph, "sgd", are_applied=True) if gradients == "offloaded" else graph
    steps, sizes, states = steps_of(graph, apart, updates)
    budget_bytes = max(peak_bytes(graph) + updates.total_bytes - less_units * UNIT, 1)
    link = HostLink(mib_a_tick * MIB / TICK_S, 2**60)
    best = quickest_ticks(steps, sizes, states, budget_bytes, mib_a_tick * MIB)
    found = [_checked_s(graph, budget_bytes, link, trips) for trips in all_trips(updates)]
    fitting = [cost_s for cost_s in found if cost_s is not None]
    if best is None:
        assert not fitting
        return
    bound_s = travelling_s(apart, updates, budget_bytes, link, sum(step.ticks for step in steps) * TICK_S)
    assert least_bytes(apart, updates) <= budget_bytes
    assert bound_s <= best * TICK_S * (1 + 1e-9)
    assert min(fitting, default=1.0) >= best * TICK_S * (1 - 1e-9)


def _checked_s(graph: TrainingGraph, budget_bytes: int, link: HostLink, trips: Trips) -> float | None:
    """What the keeper says, which the replay confirms; None where it doesn't fit."""
    keeper, keep = OffloadKeeper(graph, budget_bytes, link, trips), keeping_all(graph)
    outcome, decisions = keeper.state(keep).outcome, keeper.decide(keep)
    report = check(to_schedule(graph, decisions, None, link, trips.updates))
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(outcome.cost_s, rel=1e-9, abs=1e-12)
    assert report.peak_bytes[0] <= budget_bytes + outcome.overflow_bytes + 1e-6
    assert decisions.decision.on(graph).copies == decisions.copies
    return outcome.cost_s if outcome.overflow_bytes <= 0 else None


def three_operators() -> TrainingGraph:
    """Parameters take a unit, gradients three, and so AdamW's states six; every operator makes a unit in four ticks."""
    run = (Implementation(4 * TICK_S),)
    forward = [ForwardNode(f"op{k}", "op", UNIT, (k - 1,) if k else (), run) for k in range(3)]
    forward.append(ForwardNode("loss", "loss", 0, (2,), (Implementation(0.0),)))
    backward = [
        BackwardNode(f"grad{b}", "grad", 2 - b, UNIT, (3 + b,), (Variant((2 - b,), run),), (2 + b) * UNIT)
        for b in range(3)
    ]
    return TrainingGraph("three", 1, tuple(forward), tuple(backward), UNIT)


@pytest.mark.thorough("kept", "offloaded")
@pytest.mark.parametrize("gradients", ["kept", "applied", "offloaded"])
def test_a_solve_with_states_on_the_host_fits_where_they_have_no_room(gradients: str) -> None:
    graph = three_operators()
    updates, link = updates_of(graph, "adamw", gradients), HostLink(UNIT / TICK_S, 2**40)
    if gradients == "applied":
        graph = with_optimizer(graph, "sgd", are_applied=True)
    problem = Problem(graph, 8 * UNIT, link=link, updates=updates)
    found = gapless.solve(problem, SolveOptions(gap=0.0, threads=1), QUICK)
    assert found.valid
    assert found.report is not None
    assert found.report.peak_bytes[0] <= 8 * UNIT
    assert found.details["offloaded_states_bytes"]
    steps, sizes, states = steps_of(graph, problem.bound_graph, updates)
    best = quickest_ticks(steps, sizes, states, 8 * UNIT, UNIT)
    assert best is not None
    assert found.solution.bound is not None
    assert found.solution.bound <= best * TICK_S * (1 + 1e-9)
    assert best * TICK_S * (1 - 1e-9) <= found.report.makespan_s <= 1.15 * best * TICK_S


def test_a_gap_that_is_met_ends_the_search() -> None:
    graph = three_operators()
    updates, link = updates_of(graph, "adamw", "kept"), HostLink(UNIT / TICK_S, 2**40)
    problem = Problem(graph, 8 * UNIT, link=link, updates=updates)
    soon, late = (gapless.solve(problem, SolveOptions(gap=gap, threads=1), QUICK) for gap in (0.6, 0.0))
    assert soon.solution.gap is not None
    assert soon.solution.gap <= 0.6
    assert soon.solution.stop_reason is StopReason.GAP_REACHED
    assert late.solution.stop_reason is not StopReason.GAP_REACHED
    assert 10 * soon.details["states"] < late.details["states"]
    assert late.solution.objective <= soon.solution.objective


def test_less_than_an_update_takes_is_proven_to_be_too_little() -> None:
    graph, link = three_operators(), HostLink(UNIT / TICK_S, 2**40)
    updates = replace(updates_of(graph, "adamw", "kept"), states_bytes=(2 * UNIT, 3 * UNIT, 2 * UNIT))
    found = gapless.solve(
        Problem(graph, 7 * UNIT - 1, link=link, updates=updates), SolveOptions(threads=1, gap=0.0), QUICK
    )
    assert found.status is Status.INFEASIBLE
    assert found.details["least_budget_bound_bytes"] == (4 + 3) * UNIT


def test_a_share_is_of_a_step_with_its_states_and_gradients_need_a_link_to_be_offloaded() -> None:
    asked = {"batch": 2, "budget": "0.5x", "optimizer": "adamw"}
    alone = gapless.monet.problem("unet", **asked)
    linked = gapless.monet.problem("unet", **asked, offload="25GB/s")
    assert linked.budget_bytes == alone.budget_bytes
    assert linked.updates is not None
    assert alone.graph.fixed_bytes == linked.graph.fixed_bytes + linked.updates.total_bytes
    with pytest.raises(InputError, match="must have a link to be offloaded"):
        gapless.monet.problem("unet", **asked, gradients="offloaded")
    with pytest.raises(InputError, match="must have a link to travel over"):
        replace(linked, link=None)
