"""States of an optimiser, and gradients that go as they are applied: held against a ledger of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

import gapless
from gapless import InputError, SolveOptions
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.lowering import to_schedule
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build
from gapless.profiles.training.optimizer import OPTIMIZERS, with_optimizer


def held_bytes(graph: TrainingGraph, states: int, are_applied: bool) -> int:
    """The most that a step which keeps all holds, event by event, with states, and gradients that may go at once."""
    schedule = to_schedule(graph, keep_all(graph))
    sizes, ops = schedule.graph.size_bytes.tolist(), schedule.graph.ops
    gradients = {k for k, name in enumerate(schedule.graph.tensor_names) if name.startswith("parameter gradients")}
    there = set(schedule.graph.initial.tensors.tolist())
    most, beside = 0, states * sum(sizes[k] for k in gradients)
    for event in schedule.events():
        op, impl = ops[event.op], ops[event.op].implementations[event.implementation]
        there = (there - set(impl.overwrites)) | set(op.outputs)
        most = max(most, beside + sum(sizes[k] for k in there) + impl.workspace_bytes)
        there -= {tensor for tensor, _ in event.frees}
        if are_applied:
            there -= gradients
    return most


@examples(100)
@given(training_graphs(5), st.sampled_from(sorted(OPTIMIZERS)), st.booleans())
def test_the_replay_holds_what_a_ledger_says(graph: TrainingGraph, optimizer: str, are_applied: bool) -> None:
    """No operator gives back more than it takes over, as drawn ones may: that is no sum of what is there."""
    graph = graph.with_implementations(lambda _, impl: replace(impl, workspace_bytes=max(impl.workspace_bytes, 0)))
    found = with_optimizer(graph, optimizer, are_applied)
    report = check(to_schedule(found, keep_all(found)))
    assert report.valid
    assert report.peak_bytes[0] == held_bytes(graph, OPTIMIZERS[optimizer], are_applied)
    assert evaluate(found, keep_all(found)).cost_s == evaluate(graph, keep_all(graph)).cost_s


def test_adam_holds_twice_the_gradients_and_applied_ones_never_add_up() -> None:
    graph = build("vgg16", 2)
    gradients_bytes = graph.backward[-1].fixed_bytes - graph.fixed_bytes
    kept, applied = with_optimizer(graph, "adamw"), with_optimizer(graph, "adamw", are_applied=True)
    assert kept.fixed_bytes == applied.fixed_bytes == graph.fixed_bytes + 2 * gradients_bytes
    assert kept.backward[-1].fixed_bytes == graph.fixed_bytes + 3 * gradients_bytes
    assert {node.fixed_bytes for node in applied.backward} == {applied.fixed_bytes}
    less_bytes = peak_without_saving_bytes(kept) - peak_without_saving_bytes(applied)
    assert 0 < less_bytes <= gradients_bytes
    assert with_optimizer(graph, "sgd").backward == graph.backward


def test_gradients_without_an_optimizer_are_refused_and_its_share_is_of_a_step_with_it() -> None:
    with pytest.raises(InputError, match="gradients: must be kept"):
        gapless.monet.problem("vgg16", batch=2, budget="0.5x", gradients="applied")
    asked = gapless.monet.problem("vgg16", batch=2, budget="0.5x", optimizer="adamw", gradients="applied")
    applied = with_optimizer(build("vgg16", 2, "p100"), "adamw", are_applied=True)
    assert asked.graph == applied
    assert asked.budget_bytes == peak_without_saving_bytes(applied) // 2


@pytest.mark.thorough
@examples(40, suppress_health_check=[HealthCheck.too_slow])
@given(training_graphs(4), st.booleans(), st.integers(0, 12))
def test_a_solve_with_an_optimizer_is_brute_force_on_what_is_left(
    graph: TrainingGraph, are_applied: bool, less_mib: int
) -> None:
    """States take their bytes from the budget; gradients that are applied never stand beside those of others."""
    found = with_optimizer(graph, "adamw", are_applied)
    states_bytes = found.fixed_bytes - graph.fixed_bytes
    left_bytes = max(
        1, evaluate(with_optimizer(graph, "sgd", are_applied), keep_all(graph)).peak_bytes - less_mib * MIB
    )
    best_s = cheapest_s(with_optimizer(graph, "sgd", are_applied), left_bytes)
    result = gapless.solve(Problem(found, left_bytes + states_bytes), SolveOptions(gap=0.0, threads=1))
    assert "alarm" not in result.details
    if best_s is None:
        assert result.report is None
    elif result.report is not None:
        assert result.solution.bound is not None
        assert result.solution.bound <= best_s * (1 + 1e-9) + 1e-12
        assert result.report.makespan_s >= best_s * (1 - 1e-9) - 1e-12
