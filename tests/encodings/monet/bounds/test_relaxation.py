"""The aggregated relaxation never claims more than the best plan; see also test_brute_force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from tiny_training import MIB, cheapest_s, training_graphs

from gapless.encodings.monet.bounds import relaxation
from gapless.encodings.monet.bounds.claims import cut_lists
from gapless.encodings.monet.parameters import Bounding
from gapless.options import SolveOptions
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build, transformers
from gapless.solution import Solution, Status
from gapless.solvers.registry import solve_model


def relaxed(
    graph: TrainingGraph, budget_bytes: int | None, cuts: tuple[int, ...] = (1,), steps: int | None = None
) -> tuple[Solution, relaxation.Relaxation]:
    model = relaxation.encode(graph, budget_bytes, cuts)
    return solve_model(model.milp, SolveOptions(threads=1, step_limit=steps)), model


@examples(60)
@given(graph=training_graphs(), share=st.integers(2, 20), later=st.sets(st.integers(2, 4)))
def test_bound_is_never_above_the_cheapest_plan(graph: TrainingGraph, share: int, later: set[int]) -> None:
    budget_bytes = share * 4 * MIB
    cuts = tuple(sorted({1, *(cut for cut in later if cut <= len(graph.backward))}))
    solution, model = relaxed(graph, budget_bytes, cuts)
    best_s = cheapest_s(graph, budget_bytes)
    if solution.status is Status.INFEASIBLE:
        assert best_s is None
    elif best_s is not None:
        assert solution.bound is not None
        assert solution.bound * model.unit_s <= best_s * (1 + 1e-6) + 1e-12


@examples(30)
@given(graph=training_graphs(max_ops=3))
def test_least_budget_is_never_above_one_that_a_plan_fits_in(graph: TrainingGraph) -> None:
    solution, model = relaxed(graph, None)
    assert solution.bound is not None
    least_bytes = int(solution.bound * model.unit_bytes * (1 - 1e-6))
    if least_bytes > MIB:
        assert cheapest_s(graph, least_bytes - MIB) is None


@pytest.mark.thorough("2]")
@pytest.mark.parametrize("windows", [1, 2])
def test_bound_holds_for_the_reference_schedules(reference: Callable[[str], Any], windows: int) -> None:
    for name in ("vgg16_176_inplace_conv_multiway_newnode_8.00", "un_11_inplace_conv_multiway_newnode_5.00"):
        known = reference(name)
        graph, stages = known.graph, len(known.graph.backward)
        cuts = tuple(1 + k * stages // windows for k in range(windows))
        solution, model = relaxed(graph, known.budget_bytes, cuts, Bounding().steps)
        assert solution.bound is not None
        bound = solution.bound * model.unit_s * 1e5
        assert 0.9 * known.objective < bound <= known.objective


def test_vgg16_does_not_fit_into_five_gigabytes(measured: Callable[[str], TrainingGraph]) -> None:
    solution, _ = relaxed(measured("vgg16_176_inplace_conv_multiway_newnode"), 5 * 2**30)
    assert solution.status is Status.INFEASIBLE


@pytest.mark.thorough
@pytest.mark.parametrize(("budget_gib", "best"), [(8, 138_322)])
def test_single_stages_at_the_end_prove_vgg16(
    measured: Callable[[str], TrainingGraph], budget_gib: int, best: int
) -> None:
    graph = measured("vgg16_176_inplace_conv_multiway_newnode")
    cuts = next(its for its in cut_lists(graph, is_small=True) if len(its) > len(graph.backward) // 3)
    solution, model = relaxed(graph, budget_gib * 2**30, cuts, Bounding().more_steps)
    assert solution.bound is not None
    assert solution.bound * model.unit_s * 1e5 == pytest.approx(best, rel=1e-6)


def test_cuts_ascend_from_the_first_stage_and_tell_single_stages_apart_on_small_graphs_only() -> None:
    for network, batch in (("vgg16", 32), ("resnet50", 32)):
        graph = build(network, batch)
        small = len(graph.forward) * len(graph.backward) <= Bounding().small_cells
        lists = list(cut_lists(graph, small))
        assert len(set(lists)) == len(lists)
        assert all(cuts[0] == 1 and list(cuts) == sorted(set(cuts)) for cuts in lists)
        assert all(cuts[-1] <= len(graph.backward) for cuts in lists)
        assert small == (max(len(cuts) for cuts in lists) > 10)


def test_a_network_of_twice_the_layers_takes_twice_the_nonzeros(monkeypatch: pytest.MonkeyPatch) -> None:
    nonzeros = []
    for count in (8, 16):
        monkeypatch.setattr(transformers, "_BASE", transformers.Size(layers=count, features=768))
        graph = build("gpt2_small", 4)
        model = relaxation.encode(graph, int(0.4 * peak_without_saving_bytes(graph)))
        nonzeros.append(len(model.milp.arrays().value))
    assert nonzeros[1] < 2.1 * nonzeros[0]
