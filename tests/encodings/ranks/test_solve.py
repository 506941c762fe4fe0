"""Modes of layers and epochs: equal to brute force under every kind of limit, and every number that a plan prints."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from compression_traces import random_trace, small_trace
from examples import share

import gapless
from gapless.encodings.ranks.parameters import Parameters
from gapless.encodings.ranks.problem import Problem, problem
from gapless.encodings.ranks.solve import solve
from gapless.errors import InputError
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.question.fields import Share
from gapless.solution import Status


def all_modes(asked: Problem) -> Iterator[np.ndarray]:
    """Every choice of modes, int64, shape (E, L), that phases and switches allow."""
    _, layers, count = asked.cost.shape
    rows = [np.array(row) for row in itertools.product(range(count), repeat=layers)]
    for chosen in itertools.product(rows, repeat=len(asked.starts)):
        modes = asked.spread(asked.starts, np.concatenate(chosen))
        changes = int((modes[1:] != modes[:-1]).any(axis=1).sum())
        if asked.switches is None or changes <= asked.switches:
            yield modes


def least_error(asked: Problem) -> float:
    """By brute force; inf where nothing is within the limits."""
    least = math.inf
    for modes in all_modes(asked):
        if asked.data_bytes is not None and asked.sent_bytes(modes) > asked.data_bytes:
            continue
        if asked.step_time_s is not None and any(asked.step.duration_s(row) > asked.step_time_s for row in modes):
            continue
        least = min(least, asked.spoiled(modes))
    return least


def check_against_brute_force(asked: Problem) -> None:
    plan, least = solve(asked, asked.default_options), least_error(asked)
    if math.isinf(least):
        assert plan.solution.status is Status.INFEASIBLE
        return
    assert plan.solution.status is Status.OPTIMAL
    assert plan.solution.objective == pytest.approx(least, rel=1e-9)
    assert plan.schedule is not None
    report = gapless.check(plan.schedule)
    assert report.valid, report.violations


@pytest.mark.parametrize("seed", range(share(300)))
def test_a_data_budget_is_spent_as_brute_force_does(seed: int) -> None:
    ratio = 0.2 + 0.8 * np.random.default_rng(seed).random()
    static = problem(random_trace(seed, epochs=2, layers=4), data=Share(ratio))
    check_against_brute_force(static)
    check_against_brute_force(problem(random_trace(seed, epochs=2, layers=2), data=Share(ratio), phases="epoch"))


@pytest.mark.parametrize("seed", range(share(300)))
def test_few_switches_are_placed_as_brute_force_does(seed: int) -> None:
    ratio = 0.3 + 0.7 * np.random.default_rng(seed).random()
    asked = problem(random_trace(seed, 4, 2, 2), data=Share(ratio), phases="epoch", switches=seed % 3)
    check_against_brute_force(asked)


@pytest.mark.parametrize("seed", range(share(300)))
def test_steps_in_time_are_found_as_brute_force_does(seed: int) -> None:
    network, generator = FlatNetwork(4, 1e7, 1e-5), np.random.default_rng(seed)
    free = Problem(random_trace(seed, 1, 4), step_time_s=1.0, network=network)
    cheap, costly = (free.step.duration_s(np.full(4, mode)) for mode in (0, 2))
    limit_s = cheap + (costly - cheap) * generator.uniform(-0.05, 1.0)
    check_against_brute_force(replace(free, step_time_s=limit_s))


def test_a_step_takes_what_the_time_line_says_and_the_replay_confirms() -> None:
    asked = problem(small_trace(), step_time=5.2e-3, workers=4, bandwidth=12.5e6, phases="epoch", data=Share(0.6))
    plan = gapless.solve(asked)
    assert max(plan.details["step_times_s"]) <= 5.2e-3 * (1 + 1e-9)
    assert plan.report is not None
    assert plan.report.makespan_s == pytest.approx(sum(plan.details["step_times_s"]))


def test_ledgers_are_recomputed_from_shapes_and_the_trace() -> None:
    asked = problem(small_trace(), data=Share(0.5), phases="epoch")
    plan = gapless.solve(asked)
    assert plan.report is not None
    sent, error = plan.report.spent
    assert sent == plan.details["sent_floats"] <= asked.data_bytes / 4
    assert error == pytest.approx(plan.details["error"])
    floats = 0
    for phase in plan.details["phases"]:
        for shape, mode in zip(asked.trace.shapes, phase["modes"], strict=True):
            rank, numbers = int(mode.partition(":")[2]), math.prod(shape)
            factors = rank * (shape[0] + math.prod(shape[1:]))
            is_factored = len(shape) > 1 and 2 * factors < numbers
            floats += 5 * phase["epochs"] * (factors if is_factored else numbers)
    assert floats == sent


def test_a_plan_that_sends_more_than_its_budget_exceeds_it() -> None:
    plan = gapless.solve(problem(small_trace(), data=Share(0.5)))
    assert plan.schedule is not None
    graph = plan.schedule.graph
    less = tuple(replace(budget, limit=budget.limit / 2) for budget in graph.budgets[:1])
    report = gapless.check(replace(plan.schedule, graph=replace(graph, budgets=(*less, *graph.budgets[1:]))))
    assert [rule.value for rule in report.violation_counts] == ["budget-exceeded"]


@pytest.mark.parametrize("budget", [0.2, 0.4, 0.6, 0.8])
def test_no_rule_beats_the_plan_at_its_data_and_regrets_are_not_negative(budget: float) -> None:
    plan = gapless.solve(problem(small_trace(), data=Share(budget), phases="epoch")) if budget > 0.25 else None
    if plan is None:
        assert gapless.solve(problem(small_trace(), data=Share(budget))).status is Status.INFEASIBLE
        return
    for row in plan.details["baselines"]:
        assert row["regret"] >= 0
        if row["sent_floats"] <= plan.details["sent_floats"]:
            assert row["error"] >= plan.details["error"] * (1 - 1e-9)


def test_more_switches_and_more_freedom_never_spoil_more() -> None:
    errors = [
        gapless.solve(problem(small_trace(), data=Share(0.45), phases="epoch", switches=switches)).details["error"]
        for switches in (0, 1, 2, None)
    ]
    assert errors == sorted(errors, reverse=True)
    static = gapless.solve(problem(small_trace(), data=Share(0.45))).details["error"]
    assert errors[0] == pytest.approx(static)


def test_a_rounded_dynamic_programme_says_how_far_it_may_be() -> None:
    asked = problem(small_trace(), data=Share(0.5), phases="epoch")
    rough = gapless.solve(asked, parameters=Parameters(most_work=200))
    exact = gapless.solve(asked)
    assert rough.solution.bound <= exact.solution.objective <= rough.solution.objective
    assert rough.status is Status.FEASIBLE or rough.solution.objective == pytest.approx(exact.solution.objective)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "data: must be given, the most that is sent"),
        ({"data": 100, "switches": 1}, "switches: goes with phases epoch"),
        ({"step_time": 1.0}, "step_time: needs a network"),
        ({"data": 100, "workers": 4}, "workers: must be given with bandwidth"),
        ({"data": 100, "method": "random"}, "method: random needs phases epoch"),
        ({"data": 100, "phases": "epoch", "switches": 1, "method": "budget"}, "method: budget is for data alone"),
        ({"data": 100, "modes": ("powersgd:3",)}, "modes: must be one of powersgd:1"),
        ({"step_time": 1.0, "workers": 4, "bandwidth": 1e9, "method": "constant"}, "method: constant needs data"),
    ],
)
def test_bad_questions_name_the_argument(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        problem(small_trace(), **values)  # type: ignore[arg-type]
