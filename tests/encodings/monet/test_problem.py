"""Energy as the objective: against brute force, against the plans of least time, and by the replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from powered_training import fast_or_frugal, powered_graphs, with_power
from tiny_training import MIB, cheapest_s

import gapless
from gapless import Progress, SolveOptions, Status
from gapless.checker import check
from gapless.encodings.monet import Objective, Problem
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.ilp import model as ilp
from gapless.encodings.monet.problem import costed
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, claim_data, read_plan, write_plan
from gapless.profiles.training.graph import Implementation, TrainingGraph
from gapless.profiles.training.networks import build, network_names
from gapless.recipe import Result
from gapless.solvers.registry import solve_model

AMPLE = 1000


def solved(graph: TrainingGraph, budget_bytes: int, objective: Objective, time_limit_s: float = 2.0) -> Result:
    options = SolveOptions(gap=1e-6, threads=1, time_limit_s=time_limit_s)
    return gapless.solve(Problem(graph, budget_bytes, objective=objective), options)


# -- the costed graph --------------------------------------------------------------------------------------------------


def test_time_costs_the_graph_itself() -> None:
    graph = fast_or_frugal()
    assert costed(graph, "time") is graph


def test_energy_costs_each_implementation_its_joules_and_changes_nothing_else() -> None:
    graph = with_power(build("resnet50", 2), lambda impl: 7.0)
    found = costed(graph, "energy")
    for node, its in zip(graph.forward, found.forward, strict=True):
        for impls, costs in (
            (node.implementations, its.implementations),
            (node.again, its.again),
            (node.in_place, its.in_place),
        ):
            assert [impl.duration_s * 7.0 for impl in impls] == [impl.duration_s for impl in costs]
            assert [(impl.workspace_bytes, impl.name) for impl in impls] == [(w.workspace_bytes, w.name) for w in costs]
    joules = [[[impl.energy_j for impl in its.implementations] for its in node.variants] for node in graph.backward]
    assert joules == [
        [[impl.duration_s for impl in its.implementations] for its in node.variants] for node in found.backward
    ]


@pytest.mark.parametrize("name", network_names())
def test_built_in_networks_know_their_power(name: str) -> None:
    Problem(build(name, 1), AMPLE, objective="energy")


def test_implementation_of_unknown_power_is_refused_by_its_node_in_one_line() -> None:
    unknown = with_power(fast_or_frugal(), lambda impl: None if impl.name == "frugal" else 1.0)
    with pytest.raises(
        InputError,
        match=r"'energy': every implementation must have power_w, one of node 'conv\.0' has none",
    ):
        Problem(unknown, AMPLE, objective="energy")
    Problem(unknown, AMPLE)


def test_measured_graphs_are_refused_for_they_hold_no_power(measured: Callable[[str], TrainingGraph]) -> None:
    with pytest.raises(InputError, match="the built-in networks have it, measured graphs do not"):
        Problem(measured("vgg16_176_inplace_conv_multiway_newnode"), 2**33, objective="energy")


def test_unknown_objective_is_refused() -> None:
    with pytest.raises(InputError, match="objective must be one of time, energy, got 'power'"):
        Problem(fast_or_frugal(), AMPLE, objective="power")  # type: ignore[arg-type]


def test_implementation_that_takes_no_time_needs_no_power() -> None:
    assert Implementation(0.0).energy_j == 0.0
    assert Implementation(2.0, power_w=3.0).energy_j == 6.0
    assert Implementation(2.0).energy_j is None


# -- brute force -------------------------------------------------------------------------------------------------------


@examples(60)
@given(graph=powered_graphs(), share=st.integers(2, 12))
def test_ilp_finds_the_least_energy_of_exhaustive_search(graph: TrainingGraph, share: int) -> None:
    budget_bytes, frugal = share * 8 * MIB, costed(graph, "energy")
    best_j = cheapest_s(frugal, budget_bytes)
    model = ilp.encode(frugal, budget_bytes)
    solution = solve_model(model.milp, SolveOptions(threads=1))
    if best_j is None:
        assert solution.status is Status.INFEASIBLE
        return
    assert solution.objective is not None
    assert solution.values is not None
    assert solution.objective * model.unit == pytest.approx(best_j, abs=1e-8)
    assert evaluate(frugal, ilp.decode(model, solution.values)).cost_s == pytest.approx(best_j, abs=1e-8)


@examples(20)
@given(graph=powered_graphs(), share=st.integers(2, 12))
def test_claims_of_energy_hold_against_brute_force(graph: TrainingGraph, share: int) -> None:
    budget_bytes = share * 8 * MIB
    result = solved(graph, budget_bytes, "energy", time_limit_s=0.5)
    best_j = cheapest_s(costed(graph, "energy"), budget_bytes)
    if best_j is None:
        assert result.schedule is None
        return
    assert result.status is not Status.INFEASIBLE
    if result.solution.bound is not None:
        assert result.solution.bound <= best_j * (1 + 1e-9) + 1e-12
    if result.report is not None:
        assert result.valid, result.report.summary()
        assert result.report.energy_j is not None
        assert result.report.energy_j >= best_j * (1 - 1e-9)
        assert result.report.energy_j == pytest.approx(result.solution.objective)


# -- plans -------------------------------------------------------------------------------------------------------------


def test_frugal_plan_takes_longer_and_the_fast_one_more_energy() -> None:
    frugal, fast = solved(fast_or_frugal(), AMPLE, "energy"), solved(fast_or_frugal(), AMPLE, "time")
    assert frugal.report is not None
    assert fast.report is not None
    assert (frugal.status, fast.status) == (Status.OPTIMAL, Status.OPTIMAL)
    assert (frugal.report.makespan_s, frugal.report.energy_j) == pytest.approx((8.0, 160.0))
    assert (fast.report.makespan_s, fast.report.energy_j) == pytest.approx((4.0, 300.0))
    assert (frugal.solution.unit, frugal.solution.objective) == ("j", pytest.approx(160.0))
    assert (fast.solution.unit, fast.solution.objective) == ("s", pytest.approx(4.0))


def test_details_of_an_energy_plan_are_in_joules_and_add_up() -> None:
    details = solved(fast_or_frugal(), AMPLE, "energy").details
    assert (details["forward_j"], details["backward_j"], details["recompute_j"]) == pytest.approx((60.0, 100.0, 0.0))
    assert details["unlimited_j"] == pytest.approx(160.0)
    assert details["overhead"] == pytest.approx(0.0)
    assert not [name for name in details if name.endswith("_s")]


def test_energy_survives_the_plan_file_and_its_replay(tmp_path: Path) -> None:
    result = solved(fast_or_frugal(), AMPLE, "energy")
    assert result.schedule is not None
    problem = result.problem
    saved = SavedPlan("monet", problem.description, claim_data(result.solution), result.details, result.schedule)
    write_plan(tmp_path / "plan.json", saved)
    back = read_plan(tmp_path / "plan.json")
    assert check(back.schedule).energy_j == pytest.approx(160.0)
    assert back.problem["objective"] == "energy"
    assert back.claim["objective_j"] == pytest.approx(160.0)
    assert back.claim["bound_j"] == pytest.approx(160.0, rel=1e-5)
    assert not {"objective_s", "bound_s"} & set(back.claim)


def test_budget_that_nothing_fits_in_is_infeasible_whatever_the_objective() -> None:
    result = solved(fast_or_frugal(), 12, "energy")
    assert result.status is Status.INFEASIBLE
    assert result.details["least_budget_bound_bytes"] > 12


def test_progress_speaks_in_joules() -> None:
    heard: list[Progress] = []
    options = SolveOptions(gap=1e-6, time_limit_s=20, threads=1, on_progress=heard.append)
    result = gapless.solve(Problem(fast_or_frugal(), AMPLE, objective="energy"), options)
    assert {progress.unit for progress in heard} == {"j"}
    incumbents = [progress.incumbent for progress in heard if progress.incumbent is not None]
    assert result.report is not None
    assert result.report.energy_j == pytest.approx(min(incumbents))
