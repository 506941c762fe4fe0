from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import MIB, training_graphs

from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.study import checkmate
from gapless.encodings.monet.study.checkmate import Rematerialisation
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model

REFERENCE = Path(__file__).resolve().parents[5] / "shared" / "data" / "monet" / "reference"


def keep_everything(count: int) -> Rematerialisation:
    stored = np.tril(np.ones((count, count), dtype=np.bool_), -1)
    return Rematerialisation(np.eye(count, dtype=np.bool_), stored)


def replayed_bytes(graph, plan: Rematerialisation) -> int:
    """The peak, by running the plan: an output is freed once nothing in the stage reads it and the next lacks it."""
    nodes = [*graph.forward, *graph.backward]
    reads = [node.inputs for node in graph.forward]
    reads += [(*node.gradients, *node.variants[0].needs) for node in graph.backward]
    fixed, peak = graph.backward[-1].fixed_bytes, 0
    for stage in range(len(nodes)):
        there = set(np.flatnonzero(plan.stored[stage]).tolist())
        after = set(np.flatnonzero(plan.stored[stage + 1]).tolist()) if stage + 1 < len(nodes) else set()
        runs = np.flatnonzero(plan.runs[stage]).tolist()
        peak = max(peak, fixed + sum(nodes[k].output_bytes for k in there))
        for position, k in enumerate(runs):
            assert set(reads[k]) <= there
            there.add(k)
            peak = max(peak, fixed + sum(nodes[j].output_bytes for j in there))
            later = {j for user in runs[position + 1 :] for j in reads[user]}
            there -= {j for j in (*reads[k], k) if j not in later and j not in after}
        assert after <= there
    return peak


def test_budget_must_not_be_negative(measured):
    with pytest.raises(InputError, match="budget_bytes must be >= 0, got -1"):
        checkmate.encode(measured("vgg16_176_inplace_normal"), -1)


@examples(25)
@given(training_graphs(3))
def test_plans_fit_as_the_model_says(graph):
    all_kept = checkmate.encode(graph, 1000 * MIB)
    plan = keep_everything(all_kept.count)
    peak = int(checkmate.memory_bytes(all_kept.graph, plan).max())
    model = checkmate.encode(graph, max(0, peak - 2 * MIB))
    solution = solve_model(model.milp, SolveOptions(threads=1))
    if solution.values is None:
        assert solution.status is Status.INFEASIBLE
        return
    found = checkmate.decode(model, solution.values)
    peak, charged = replayed_bytes(model.graph, found), checkmate.memory_bytes(model.graph, found).max()
    assert peak <= charged <= model.budget_bytes
    assert peak == charged or (found.runs & found.stored).any()  # what runs though it is stored is charged twice
    point = checkmate.first_point(model, found)
    assert model.milp.arrays().violation(point) < 1e-9
    assert model.milp.arrays().objective(point) == pytest.approx(solution.objective)


@examples(25)
@given(training_graphs(4))
def test_keeping_everything_costs_each_operator_once(graph):
    model = checkmate.encode(graph, 1000 * MIB)
    plan = keep_everything(model.count)
    point = checkmate.first_point(model, plan)
    assert model.milp.arrays().violation(point) < 1e-9
    decisions = checkmate.to_decisions(model.graph, plan)
    cost_s = evaluate(model.graph, decisions).cost_s
    assert model.milp.arrays().objective(point) * model.unit == pytest.approx(cost_s)
    assert solve_model(model.milp).objective * model.unit == pytest.approx(cost_s)


@examples(25)
@given(training_graphs(4), st.integers(0, 12))
def test_search_finds_plans_of_the_model(graph, less_mib):
    single = checkmate.single_choice(graph)
    peak = int(checkmate.memory_bytes(single, keep_everything(len(single.forward) + len(single.backward))).max())
    plan = checkmate.search(
        single, max(1, peak - less_mib * MIB), SolveOptions(gap=1e-6, threads=1, time_limit_s=0.2), Parameters()
    )
    if plan is None:
        return
    claimed = int(checkmate.memory_bytes(single, plan).max())
    model = checkmate.encode(graph, claimed)
    point = checkmate.first_point(model, plan)
    assert model.milp.arrays().violation(point) < 1e-9
    again = checkmate.from_decisions(single, checkmate.to_decisions(single, plan))
    assert (again.runs == plan.runs).all()
    assert (again.stored == plan.stored).all()


@pytest.mark.thorough
def test_search_comes_as_close_as_the_reference_on_vgg16(measured):
    graph = checkmate.single_choice(measured("checkmate_vgg16_176_normal"))
    plan = checkmate.search(graph, 8 * 2**30, SolveOptions(gap=0.005, threads=1, time_limit_s=20), Parameters())
    assert checkmate.memory_bytes(graph, plan).max() <= 8 * 2**30
    cost = evaluate(graph, checkmate.to_decisions(graph, plan)).cost_s * 1e5
    assert cost <= 255_828 * 1.005  # what the authors' solver found


def test_plans_that_recompute_gradients_are_not_montes(measured):
    graph = checkmate.encode(measured("vgg16_176_inplace_normal"), 0).graph
    plan = keep_everything(len(graph.forward) + len(graph.backward))
    plan.runs[-1, -2] = True
    assert checkmate.to_decisions(graph, plan) is None


@pytest.mark.parametrize("name", ["vgg16_176_normal_8.00", "vgg16_176_normal_10.00", "un_11_normal_6.00"])
def test_reference_plans_fit_but_for_their_workspace(measured, name):
    graph = measured(f"checkmate_{name.rpartition('_')[0]}")
    record = json.loads(gzip.decompress((REFERENCE / f"checkmate_{name}.json.gz").read_bytes()))
    runs, stored = (np.zeros(record["r"]["shape"], dtype=np.bool_) for _ in "rs")
    runs[tuple(np.array(record["r"]["ones"]).T)] = True
    stored[tuple(np.array(record["s"]["ones"]).T)] = True
    plan = Rematerialisation(runs, stored)
    model = checkmate.encode(graph, int(record["budget_gb"] * 2**30))
    point = checkmate.first_point(model, plan)
    assert model.milp.arrays().violation(point) < 1e-9
    rounding = model.count  # the reference rounds each operator's time down, the reader up
    assert 0 <= model.milp.arrays().objective(point) - record["runtime_expected"] <= rounding
    found = evaluate(model.graph, checkmate.to_decisions(model.graph, plan))
    assert found.faults == ()
    assert name != "vgg16_176_normal_8.00" or found.peak_bytes > 9 * 2**30
