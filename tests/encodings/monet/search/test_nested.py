"""Nested checkpoints: plans where hardly anything fits."""

from __future__ import annotations

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from monet_proofs import questions
from repeated_blocks import lstm

import gapless
from gapless import SolveOptions, Status
from gapless.checker import check
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import evaluate, unlimited_s
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.parameters import Nesting, Parameters
from gapless.encodings.monet.search.joint import first_plans, nested_plans
from gapless.encodings.monet.search.keepset import Keeper
from gapless.encodings.monet.search.nested import Passes, nested_checkpoints, smallest_variants
from gapless.encodings.monet.study.baselines import revolve
from gapless.methods import MethodChoice
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import BackwardNode, ForwardNode, Implementation, TrainingGraph, Variant
from gapless.profiles.training.networks import build

UNET = build("unet", 11)


def chain(length: int, read_by_loss: range | None = None) -> TrainingGraph:
    """Nodes of a second and a byte each; a backward node needs the output of the node before its own.

    `read_by_loss`: the last node alone by default.
    """
    run = (Implementation(1.0),)
    forward = [ForwardNode(f"f{k}", "op", 1, (k - 1,) if k else (), run) for k in range(length)]
    of_loss = (length - 1,) if read_by_loss is None else tuple(read_by_loss)
    loss = ForwardNode("loss", "loss", 0, of_loss, (Implementation(0.0),))
    backward = [
        BackwardNode(f"b{k}", "grad", k, 0, (length + step,), (Variant((k - 1,) if k else (), run),), 0)
        for step, k in enumerate(reversed(range(length)))
    ]
    return TrainingGraph("chain", 1, (*forward, loss), tuple(backward), 0)


def share_of_peak(graph: TrainingGraph, share: float) -> int:
    return int(share * peak_without_saving_bytes(graph))


@pytest.mark.parametrize("budget_bytes", [3, 4, 5, 8, 14])
def test_a_chain_is_recomputed_no_more_than_by_griewank(budget_bytes: int) -> None:
    graph = chain(12)
    variants, nesting = smallest_variants(graph), Nesting(levels=budget_bytes)
    nested = nested_checkpoints(graph, budget_bytes, variants, budget_bytes, nesting)
    assert nested is not None
    found = evaluate(graph, nested)
    assert not found.faults
    assert found.peak_bytes <= budget_bytes
    others = [evaluate(graph, revolve(graph, slots)) for slots in range(13)]
    assert found.cost_s <= min(other.cost_s for other in others if other.peak_bytes <= budget_bytes)


def test_a_checkpoint_holds_nothing_for_the_loss_alone_which_never_runs_again() -> None:
    last_alone, all_outputs = (
        Passes(graph, smallest_variants(graph), 6) for graph in (chain(12), chain(12, read_by_loss=range(12)))
    )
    assert all_outputs.border.tolist() == last_alone.border.tolist() == [0] + [1] * 11 + [0]
    assert all_outputs.row_again[0].tolist() == [*range(1, 13), 12]  # as the paper's rows charge
    assert last_alone.row_again[0].tolist() == [1, *[2] * 11, 1]


@examples(200, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions())
def test_what_is_found_can_be_executed(question: tuple[TrainingGraph, int]) -> None:
    graph, budget_bytes = question
    decisions = nested_checkpoints(graph, budget_bytes, smallest_variants(graph), budget_bytes, Nesting())
    if decisions is not None:
        assert not evaluate(graph, decisions).faults
        assert check(to_schedule(graph, decisions)).valid


def test_it_fits_where_no_keep_set_of_a_simple_rule_does_and_less_memory_costs_more() -> None:
    keeper = Keeper(UNET, share_of_peak(UNET, 0.3))
    assert all(keeper.state(keep).outcome.overflow_bytes > 0 for keep in first_plans(keeper))
    costs_s = [
        next(
            evaluate(UNET, plan).cost_s
            for plan, _ in nested_plans(Problem(UNET, share_of_peak(UNET, share)), Nesting())
        )
        for share in (0.3, 0.35, 0.5, 1.0)
    ]
    assert costs_s == sorted(costs_s, reverse=True)
    assert costs_s[-1] < 1.1 * unlimited_s(UNET)


def test_nothing_is_found_where_nothing_fits() -> None:
    assert (
        next(nested_plans(Problem(UNET, share_of_peak(UNET, 0.2)), Nesting(levels=100, excess=(1.0, 1.1))), None)
        is None
    )


def test_where_none_is_found_the_least_budget_that_one_was_found_for_is_said() -> None:
    methods, nesting = MethodChoice(only=("rules", "nested")), Nesting(most_places=13, levels=100, excess=(1.0, 1.03))
    graph, parameters = lstm(12), Parameters(nesting=nesting, methods=methods)
    result = gapless.solve(Problem(graph, share_of_peak(graph, 0.62)), SolveOptions(threads=1, gap=0.0), parameters)
    assert result.status is Status.NO_SOLUTION
    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    assert bound <= share_of_peak(graph, 0.62) < found
    again = gapless.solve(Problem(graph, found), SolveOptions(threads=1, gap=0.0), parameters)
    assert again.valid
    assert again.report.peak_bytes[0] <= found


def test_a_solve_without_time_has_a_plan_near_the_least_budget() -> None:
    options = SolveOptions(time_limit_s=0.05, threads=1)
    result = gapless.solve(Problem(UNET, share_of_peak(UNET, 0.3)), options)
    assert result.status is Status.FEASIBLE
    assert result.report.peak_bytes[0] <= share_of_peak(UNET, 0.3)


def test_the_smallest_variants_need_least() -> None:
    taken = [
        sum(UNET.output_bytes[list(node.variants[int(number)].needs)])
        for node, number in zip(UNET.backward, smallest_variants(UNET), strict=True)
    ]
    first = [sum(UNET.output_bytes[list(node.variants[0].needs)]) for node in UNET.backward]
    assert np.sum(taken) < np.sum(first)
