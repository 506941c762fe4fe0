"""Plans whose tensors travel: what the search says of them is what the replay finds; never worse than without."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

import gapless
from gapless import InputError, SolveOptions
from gapless.checker import Rule, check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.offload.keeper import OffloadKeeper
from gapless.encodings.monet.offload.search import first_offloaded
from gapless.encodings.monet.parameters import Bounding, Cooling, Parameters
from gapless.encodings.monet.search.keepset import KeepSet, Move
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build
from gapless.topologies.host import HostLink

QUICK = Parameters(
    bounding=Bounding(steps=2, small_cells=0), cooling=Cooling(steps_per_node=2, patience=1), least_budget_steps=100
)
UNET = build("unet", 2)


def wandered(keeper: OffloadKeeper, seed: int, moves: int) -> KeepSet:
    """A keep-set after random moves from one that keeps all."""
    draw = random.Random(seed)
    graph = keeper.graph
    state = keeper.state(
        KeepSet.just_in_time(np.ones(len(graph.forward), bool), np.zeros(len(graph.backward), np.int64))
    )
    for _ in range(moves):
        kept, dropped, offloaded = (
            (draw.randrange(graph.loss),) if draw.random() < share else () for share in (0.2, 0.1, 0.7)
        )
        state = keeper.moved(state, Move(kept=kept, dropped=dropped, offloaded=offloaded))
    return state.keep


def without_giving_back(graph: TrainingGraph) -> TrainingGraph:
    """The graph without what a replay may hold more of than a row does: nothing runs in place, no workspace is below
    zero, and no fixed bytes are missing in the backward pass.
    """
    forward = tuple(replace(node, overwrites=None, in_place=()) for node in graph.forward)
    graph = replace(graph, forward=forward, fixed_bytes=0)
    return graph.with_implementations(lambda _, impl: replace(impl, workspace_bytes=max(impl.workspace_bytes, 0)))


@examples(200, suppress_health_check=[HealthCheck.too_slow])
@given(training_graphs(6), st.integers(0, 2**30), st.integers(0, 25), st.sampled_from([1, 4, 50]), st.integers(0, 12))
def test_a_plan_takes_the_time_that_was_said_and_no_more_memory(
    graph: TrainingGraph, seed: int, moves: int, mib_a_tick: int, less_mib: int
) -> None:
    graph = without_giving_back(graph)
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    keeper = OffloadKeeper(graph, budget_bytes, HostLink(mib_a_tick * MIB / 1e-5, 2**62))
    keep = wandered(keeper, seed, moves)
    outcome, decisions = keeper.state(keep).outcome, keeper.decide(keep)
    report = check(to_schedule(graph, decisions, None, keeper.link))
    assert report.valid, report.summary()
    assert report.makespan_s == pytest.approx(outcome.cost_s, rel=1e-9, abs=1e-12)
    assert report.peak_bytes[0] <= budget_bytes + outcome.overflow_bytes + 1e-6
    assert decisions.decision.on(graph).copies == decisions.copies


def test_a_neighbour_is_what_it_is_from_scratch() -> None:
    keeper = OffloadKeeper(UNET, int(0.5 * peak_without_saving_bytes(UNET)), HostLink(5e9, 2**40))
    for seed in range(10):
        keep = wandered(keeper, seed, 30)
        again = keeper.state(keep)
        assert again.keep.offloaded is not None
        assert keeper.moved(again, Move()) is again
        assert not (again.keep.offloaded & ~again.keep.kept).any()


def test_what_comes_back_too_late_is_seen_by_the_replay() -> None:
    keeper = OffloadKeeper(UNET, int(0.4 * peak_without_saving_bytes(UNET)), HostLink(5e9, 2**40))
    decisions = keeper.decide(first_offloaded(keeper))
    assert decisions.copies
    copy = decisions.copies[0]
    late = replace(copy, needed_by=copy.needed_by + 1)
    schedule = to_schedule(UNET, replace(decisions, copies=(late, *decisions.copies[1:])), None, keeper.link)
    broken = check(schedule)
    assert not broken.valid
    assert set(broken.violation_counts) <= {Rule.INPUT_LATE, Rule.INPUT_MISSING, Rule.NOT_FREE}


def test_the_host_holds_no_more_than_it_has() -> None:
    budget_bytes = int(0.4 * peak_without_saving_bytes(UNET))
    amply = OffloadKeeper(UNET, budget_bytes, HostLink(1e12, 2**40))
    keep = first_offloaded(amply)
    assert amply.state(keep).outcome.overflow_bytes == 0
    assert keep.offloaded is not None
    needed = int(UNET.output_bytes[keep.offloaded].sum())
    assert OffloadKeeper(UNET, budget_bytes, HostLink(1e12, needed - 5)).state(keep).outcome.overflow_bytes == 5


@pytest.mark.thorough("auto", "blocks")
@pytest.mark.parametrize("method", ["auto", "offload-all", "offload-layers", "offload-blocks"])
def test_a_solve_with_a_link_replays_clean_and_is_not_behind_the_one_without(method: str) -> None:
    budget_bytes, options = int(0.45 * peak_without_saving_bytes(UNET)), SolveOptions(gap=0.02, threads=1)
    found = gapless.solve(Problem(UNET, budget_bytes, method=method, link=HostLink(12e9, 2**40)), options, QUICK)
    assert found.valid
    assert found.report is not None
    assert found.report.peak_bytes[0] <= budget_bytes
    assert found.details["offloaded_tensors"]
    assert found.solution.objective == pytest.approx(found.report.makespan_s)
    assert found.solution.bound is not None
    assert found.solution.bound <= found.report.makespan_s * (1 + 1e-9)
    if method == "auto":
        without_s = found.details["without_offload_s"]
        assert isinstance(without_s, float)
        assert found.report.makespan_s < 0.99 * without_s
        decisions = StepDecision(*vars(found.decision).values()).on(UNET)  # type: ignore[arg-type]
        assert keep_set_of(UNET, decisions).offloaded is not None


@examples(60, suppress_health_check=[HealthCheck.too_slow])
@given(training_graphs(4), st.integers(0, 12))
def test_a_link_of_next_to_nothing_changes_nothing(graph: TrainingGraph, less_mib: int) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    best_s = cheapest_s(graph, budget_bytes)
    slow = Problem(graph, budget_bytes, link=HostLink(1.0, 2**62))
    found = gapless.solve(slow, SolveOptions(gap=0.0, threads=1), QUICK)
    assert "alarm" not in found.details
    if best_s is None:
        assert found.report is None or found.report.makespan_s > 1.0
    elif found.report is not None:
        assert found.report.makespan_s >= best_s * (1 - 1e-9) - 1e-12


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"method": "offload-all", "offload": None}, "needs a link"),
        ({"method": "checkmate"}, "method must be one of auto, offload-all"),
        ({"objective": "energy"}, "objective must be time"),
        ({"offload": None, "host_memory": "1GB"}, "goes with offload"),
        ({"offload": "fast"}, "offload"),
    ],
)
def test_what_doesnt_go_with_a_link_is_refused(changed: dict[str, object], words: str) -> None:
    asked: dict[str, object] = {"batch": 2, "budget": "0.5x", "offload": "25GB/s", **changed}
    with pytest.raises(InputError, match=words):
        gapless.monet.problem("unet", **{name: value for name, value in asked.items() if value is not None})
