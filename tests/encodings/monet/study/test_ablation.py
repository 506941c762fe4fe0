from __future__ import annotations

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import MIB, keep_all, training_graphs

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.search.retention import fit_implementations
from gapless.encodings.monet.study.ablation import ABLATIONS, ablation, restrict
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model

MODES = {
    "noop": "inplace_normal",
    "conv": "inplace_conv_normal",
    "output": "inplace_multiway",
    "intermediate": "inplace_newnode",
}


def optimum(graph, budget_bytes):
    model = ilp.encode(graph, budget_bytes)
    solution = solve_model(model.milp, SolveOptions(threads=1))
    assert solution.status in (Status.OPTIMAL, Status.INFEASIBLE)
    return float("inf") if solution.objective is None else solution.objective * model.unit


@pytest.mark.parametrize("name", MODES)
def test_restrictions_have_the_choices_of_the_measured_ablations(measured, name):
    restricted = ablation(measured("vgg16_176_inplace_conv_multiway_newnode"), name)
    genuine = measured(f"vgg16_176_{MODES[name]}")
    assert [node.op for node in restricted.forward] == [node.op for node in genuine.forward]
    assert [node.inputs for node in restricted.forward] == [node.inputs for node in genuine.forward]
    assert [node.overwrites for node in restricted.forward] == [node.overwrites for node in genuine.forward]
    assert [len(node.implementations) for node in restricted.forward] == [
        len(node.implementations) for node in genuine.forward
    ]
    for ours, theirs in zip(restricted.backward, genuine.backward, strict=True):
        assert (ours.forward, ours.gradients) == (theirs.forward, theirs.gradients)
        if name != "conv":  # in the genuine file of that ablation every ReLU needs its output
            assert [variant.needs for variant in ours.variants] == [variant.needs for variant in theirs.variants]


def test_in_place_can_be_left_out(measured):
    graph = restrict(measured("vgg16_176_inplace_normal"), in_place=False)
    assert all(node.overwrites is None and not node.in_place for node in graph.forward)


@examples(40)
@given(training_graphs(4), st.integers(0, 12))
def test_fewer_choices_are_never_cheaper(graph, less_mib):
    budget = max(0, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    full_s = optimum(graph, budget)
    cost = {name: optimum(ablation(graph, name), budget) for name in ABLATIONS}
    for name in ("conv", "output", "intermediate"):
        assert full_s <= cost[name] + 1e-12
        assert cost[name] <= cost["noop"] + 1e-12


@examples(40)
@given(training_graphs(4), st.integers(0, 12))
def test_fitted_implementations_lie_between_no_choice_and_full_choice(graph, less_mib):
    single = ablation(graph, "noop")
    budget = max(0, evaluate(single, keep_all(single)).peak_bytes - less_mib * MIB)
    model = ilp.encode(single, budget)
    solution = solve_model(model.milp, SolveOptions(threads=1))
    if solution.values is None:
        return
    decisions = ilp.decode(model, solution.values)
    choosing = ablation(graph, "conv")
    better = evaluate(choosing, fit_implementations(choosing, decisions, budget))
    assert better.faults == ()
    assert better.peak_bytes <= budget
    assert optimum(choosing, budget) - 1e-12 <= better.cost_s <= evaluate(single, decisions).cost_s + 1e-12
