"""Every method answers the question that was asked: a plan that replays within the budget, and a bound that holds."""

from __future__ import annotations

import pytest
from examples import examples
from hand_training import chain
from hypothesis import given
from hypothesis import strategies as st
from powered_training import fast_or_frugal
from tiny_training import MIB, cheapest_s, keep_all, training_graphs

import gapless
from gapless import SolveOptions, Status
from gapless.encodings.monet import Problem
from gapless.encodings.monet.evaluate import evaluate
from gapless.encodings.monet.problem import OFFLOADING
from gapless.encodings.monet.question import METHODS as NAMES
from gapless.encodings.monet.study.methods import CARRIED, METHODS
from gapless.errors import InputError
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import build
from gapless.recipe import Result
from gapless.topologies.host import HostLink

OPTIONS = SolveOptions(gap=0.01, time_limit_s=60.0, threads=1)
LITTLE, AMPLE = 58, 1000
"""Budgets of a chain of six: not everything can be kept, everything can."""


def solved(graph: TrainingGraph, budget_bytes: int, method: str) -> Result:
    link = HostLink(10.0, 2**40) if method in OFFLOADING else None
    return gapless.solve(Problem(graph, budget_bytes, method=method, link=link), OPTIONS)


def test_every_name_has_a_method() -> None:
    assert [CARRIED, *NAMES] == [method.name for method in METHODS]


def test_unknown_method_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"must be one of auto, noop, .*, got 'chekmate'; did you mean 'checkmate'"):
        Problem(chain(6), AMPLE, method="chekmate")


@pytest.mark.parametrize("method", NAMES)
def test_every_method_finds_a_plan_where_memory_is_ample(method: str) -> None:
    result = solved(chain(6), AMPLE, method)
    assert result.valid
    assert result.problem.description["method"] == method
    assert result.report is not None
    assert result.solution.bound is not None
    assert result.solution.bound <= result.report.makespan_s * (1 + 1e-9)


@pytest.mark.parametrize("method", NAMES)
def test_plans_fit_a_small_budget_or_there_is_none(method: str) -> None:
    result = solved(chain(6), LITTLE, method)
    if result.schedule is None:
        assert result.status is Status.NO_SOLUTION
        assert result.details["needed_bytes"] > LITTLE
    else:
        assert result.report is not None
        assert result.valid
        assert result.report.peak_bytes[0] <= LITTLE
    assert (result.schedule is None) == (method in ("lean", "store-all", "eager"))


@pytest.mark.thorough
@examples(25)
@given(
    graph=training_graphs(4),
    less_mib=st.integers(0, 12),
    method=st.sampled_from(sorted(set(NAMES) - {"revolve", "gist", *OFFLOADING})),
)
def test_bound_holds_for_the_question_whatever_the_method(graph: TrainingGraph, less_mib: int, method: str) -> None:
    budget_bytes = max(1, evaluate(graph, keep_all(graph)).peak_bytes - less_mib * MIB)
    options = SolveOptions(gap=0.01, time_limit_s=0.3, threads=1)
    result = gapless.solve(Problem(graph, budget_bytes, method=method), options)
    least_s = cheapest_s(graph, budget_bytes)
    if least_s is None:
        assert result.schedule is None
    else:
        assert result.status is not Status.INFEASIBLE
        assert result.solution.bound <= least_s * (1 + 1e-6) + 1e-12
        assert result.schedule is None or (result.valid and result.report.makespan_s >= least_s - 1e-12)


@pytest.mark.thorough
def test_what_an_ablation_proves_is_named_after_it() -> None:
    noop, scarce = solved(chain(6), LITTLE, "noop"), solved(chain(6), 20, "noop")
    assert noop.solution.bound <= noop.details["bound_noop_s"] * (1 + 1e-9)
    assert (scarce.status, scarce.details["infeasible_within"]) == (Status.NO_SOLUTION, "noop")


def test_checkmate_with_fast_convolutions_is_no_slower_than_with_default_ones() -> None:
    graph = build("vgg16", 16)
    fast, default = (solved(graph, 8 * 2**30, method) for method in ("checkmate", "checkmate-d"))
    assert fast.report is not None
    assert default.report is not None
    assert fast.report.makespan_s < default.report.makespan_s


def test_least_energy_is_for_every_method() -> None:
    for method in ("auto", "noop", "conv", "checkmate", "sqrt"):
        result = gapless.solve(Problem(fast_or_frugal(), AMPLE, objective="energy", method=method), OPTIONS)
        assert result.valid
        assert result.solution.unit == "j"
        assert result.report is not None
        assert result.report.energy_j == pytest.approx(result.solution.objective)


def test_revolve_refuses_what_is_no_chain() -> None:
    with pytest.raises(InputError, match="revolve: every node must read the one before it"):
        solved(build("resnet50", 2), 8 * 2**30, "revolve")
