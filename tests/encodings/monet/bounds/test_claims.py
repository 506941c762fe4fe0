"""What is called optimal or infeasible is: against a dynamic programme that knows no model, and where a model errs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from monet_proofs import UNITS_BYTES, assert_the_proof_is_true, questions
from tiny_training import cheapest_s, in_units, training_graphs

import gapless
from gapless import SolveOptions, Status, StopReason
from gapless.encodings.monet import Problem
from gapless.encodings.monet.bounds import claims, relaxation
from gapless.encodings.monet.bounds.claims import confirm, linear_least_bytes
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.search.annealing import Annealing
from gapless.encodings.monet.search.keepset import Keeper, KeepSet
from gapless.encodings.monet.search.state import SOLVER_TOLERANCE, UNCONFIRMED_GAP, Found, State, stopped
from gapless.model import Model
from gapless.options import Deadline
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import read_training_graph
from gapless.profiles.training.networks import build
from gapless.solution import Solution
from gapless.solvers.registry import solve_model


@pytest.mark.thorough("50000", "50500", "531-2", "410-1")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("budget_bytes", "best"), [(49_152, 531), (50_000, 531), (50_500, 514), (51_200, 410)])
def test_a_graph_of_small_tensors_is_solved_right(budget_bytes: int, best: int, threads: int) -> None:
    """Presolve proved 784 and infeasibility here, with memory in MiB."""
    graph = read_training_graph(Path(__file__).with_name("graph_a.json"))
    result = gapless.solve(Problem(graph, budget_bytes), SolveOptions(gap=0.0, threads=threads))
    assert result.status is Status.OPTIMAL
    assert result.solution.objective == pytest.approx(best * 1e-4, rel=1e-9)


@examples(300, suppress_health_check=[HealthCheck.too_slow])
@given(question=questions())
def test_every_proof_agrees_with_exhaustive_search(question: tuple[TrainingGraph, int]) -> None:
    assert_the_proof_is_true(*question)


def state_of(graph: TrainingGraph, budget_bytes: int, with_plan: bool) -> State:
    keeper, parameters, options = Keeper(graph, budget_bytes), Parameters(), SolveOptions()
    annealing = Annealing(keeper, 1.0, 0, parameters.cooling, parameters.moves)
    if with_plan:
        annealing.look_at(
            KeepSet.just_in_time(np.ones(len(graph.forward), dtype=np.bool_), np.zeros(len(graph.backward), np.int64))
        )
        assert annealing.best is not None
    return State(Problem(graph, budget_bytes), options, parameters, Deadline(options), annealing, own_bound_s=0.0)


def claimed(graph: TrainingGraph, budget_bytes: int, **others: object) -> Found:
    """A relaxation with an answer in which something is put in place of what is true."""
    model = relaxation.encode(graph, budget_bytes)
    solution = replace(solve_model(model.milp), **others)  # type: ignore[arg-type]
    return Found("bound", model.milp, model.unit_s, solution)


def test_interrupt_within_a_relaxation_ends_the_whole_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(model: Model, options: SolveOptions, *others: object) -> Solution:
        options.stop.set()  # as Ctrl-C does there
        return solve_model(model, options)

    monkeypatch.setattr(claims, "solve_model", interrupted)
    state = state_of(build("vgg16", 2), 2**40, with_plan=True)
    claims.first_relaxation(state)
    assert state.options.stop.is_set()
    assert state.is_over


@pytest.mark.parametrize("share", [0.5, 0.985, 0.995])
def test_the_first_relaxation_ends_once_its_bound_is_within_the_gap(
    monkeypatch: pytest.MonkeyPatch, share: float
) -> None:
    state, ended = state_of(build("vgg16", 2), 2**40, with_plan=True), list[bool]()
    state.options = replace(state.options, gap=0.01)
    model = relaxation.encode(state.problem.graph, 2**40)

    def at_a_step(milp: Model, options: SolveOptions, *others: object) -> Solution:
        assert options.on_step is not None
        assert state.incumbent_s is not None
        options.on_step(1, share * state.incumbent_s / model.unit_s)
        ended.append(options.stop.is_set())
        return solve_model(milp)

    monkeypatch.setattr(claims, "solve_model", at_a_step)
    claims.first_relaxation(state)
    assert ended == [share >= 1 - state.options.gap]
    assert not state.options.stop.is_set()  # the solve goes on


def test_a_false_infeasible_is_dropped_where_a_plan_fits() -> None:
    graph = build("vgg16", 2)
    state = state_of(graph, 2**40, with_plan=True)
    state.offer(claimed(graph, 2**40, status=Status.INFEASIBLE, values=None, objective=None, bound=None))
    assert state.infeasible is None
    assert "a plan does" in str(state.details["alarm"])


def test_a_false_infeasible_is_not_confirmed() -> None:
    graph = build("vgg16", 2)
    state = state_of(graph, 2**40, with_plan=False)
    state.offer(claimed(graph, 2**40, status=Status.INFEASIBLE, values=None, objective=None, bound=None))
    confirm(state)
    assert not state.is_infeasible
    assert state.details["unconfirmed"] == "infeasible"


def test_a_false_bound_is_dropped_where_a_plan_beats_it() -> None:
    graph = build("vgg16", 2)
    state = state_of(graph, 2**40, with_plan=True)
    true = claimed(graph, 2**40)
    assert true.solution.objective is not None
    state.offer(replace(true, solution=replace(true.solution, bound=2 * true.solution.objective)))
    assert state.is_close(0.0)
    confirm(state)
    assert "was claimed" in str(state.details["alarm"])
    assert state.incumbent_s is not None
    assert state.bound_s <= state.incumbent_s


def state_at_its_bound(bound_share: float) -> State:
    """A state whose best plan keeps all, and whose relaxation claims that share of what it costs."""
    graph = build("vgg16", 2)
    state, true = state_of(graph, 2**40, with_plan=True), claimed(graph, 2**40)
    assert state.incumbent_s is not None
    bound = bound_share * state.incumbent_s / true.unit_s / (1 - SOLVER_TOLERANCE)
    state.offer(replace(true, solution=replace(true.solution, bound=bound)))
    return state


def test_an_optimum_that_there_was_no_time_to_confirm_keeps_its_bound_short_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = state_at_its_bound(1.0)
    assert state.is_close(0.0)
    assert state.claim is not None
    none = replace(state.claim.solution, status=Status.NO_SOLUTION, objective=None, bound=None, values=None)
    monkeypatch.setattr(claims, "_again", lambda *_: none)
    confirm(state)
    assert state.details["unconfirmed"] == "optimal"
    assert state.bound_s == pytest.approx(state.incumbent_s, rel=1e-4)
    assert not state.is_close(0.0)


def test_a_claim_whose_model_has_a_better_point_goes_with_its_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_at_its_bound(1.0)
    assert state.claim is not None
    bound = state.claim.solution.bound
    assert bound is not None
    beaten = replace(state.claim.solution, status=Status.FEASIBLE, objective=0.9 * bound, bound=0.5 * bound)
    monkeypatch.setattr(claims, "_again", lambda *_: beaten)
    confirm(state)
    assert state.bound_s == pytest.approx(0.5 * bound * state.claim.unit_s, rel=1e-5)


@pytest.mark.parametrize(("share", "said"), [(0.9, 0.9), (1.0, 1 - UNCONFIRMED_GAP), (1.1, 0.0)])
def test_a_plan_of_a_solve_that_is_cut_short_is_not_called_optimal_on_one_claim(share: float, said: float) -> None:
    state = state_at_its_bound(share)
    assert state.incumbent_s is not None
    assert state.bound_beside_s(state.incumbent_s) == pytest.approx(said * state.incumbent_s, rel=1e-9)


@examples(30)
@given(graph=training_graphs(max_ops=3), unit_bytes=st.sampled_from(UNITS_BYTES))
def test_the_linear_least_budget_is_never_above_one_that_a_plan_fits_in(graph: TrainingGraph, unit_bytes: int) -> None:
    graph = in_units(graph, unit_bytes)
    least_bytes = linear_least_bytes(state_of(graph, 1, with_plan=False))
    if least_bytes > 1:
        assert cheapest_s(graph, least_bytes - 1) is None


def test_a_search_that_nobody_stopped_was_out_of_time() -> None:
    options = SolveOptions()
    assert stopped(options) is StopReason.TIME_LIMIT
    options.stop.set()
    assert stopped(options) is StopReason.INTERRUPTED
