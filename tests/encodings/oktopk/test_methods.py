"""Methods: a parameter file leaves any out or gives it alone; a solve that is cut short has a plan and a bound."""

from __future__ import annotations

import threading

import pytest

import gapless
from gapless.encodings.oktopk.cuts.methods import IN_ORDER
from gapless.encodings.oktopk.question import METHODS
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.result import Result

ASKED = {"indices": "clustered:elements=3000,steps=3", "ranks": 4, "density": 0.02}


def solved(choice: dict[str, list[str]], **more: object) -> Result:
    return gapless.oktopk.solve(**ASKED, **more, parameters={"methods": choice})


def test_each_method_has_a_name_that_the_question_knows() -> None:
    assert sorted(method.name for method in IN_ORDER) == sorted(METHODS[1:])


@pytest.mark.thorough("milp")
@pytest.mark.parametrize("name", METHODS[1:])
@pytest.mark.parametrize("held_out", [0, 1])
def test_a_method_alone_is_the_method_by_its_name(name: str, held_out: int) -> None:
    alone = solved({"only": [name]}, held_out=held_out)
    named = gapless.oktopk.solve(**ASKED, method=name, held_out=held_out)
    assert alone.solution is not None
    assert alone.solution.solver == name
    assert alone.plan.details["cuts"] == named.plan.details["cuts"]


def test_what_is_left_out_is_not_tried_and_the_best_of_the_rest_is_the_plan() -> None:
    every = {name: gapless.oktopk.solve(**ASKED, method=name) for name in ("averaged", "even", "exact", "joint")}
    for name in every:
        left = solved({"without": [name]})
        assert left.solution is not None
        assert left.solution.solver != name
        assert left.solution.objective == pytest.approx(
            min(each.solution.objective for other, each in every.items() if other != name), rel=1e-9
        )


@pytest.mark.parametrize(
    ("choice", "held_out", "message"),
    [
        ({"without": ["robust"]}, 1, "methods: auto tries robust alone here, and none of them is left"),
        ({"without": ["simplex"]}, 0, "methods.without: 'simplex' is no method"),
        ({"only": ["even"], "without": ["even"]}, 0, "methods: must leave one of"),
    ],
)
def test_a_choice_that_leaves_nothing_says_so(choice: dict[str, list[str]], held_out: int, message: str) -> None:
    with pytest.raises(InputError, match=message):
        solved(choice, held_out=held_out)


@pytest.mark.parametrize("objective", ["worst", "mean"])
def test_a_solve_without_time_carries_out_the_busiest_step_and_bounds_it(objective: str) -> None:
    stop = threading.Event()
    stop.set()
    problem = gapless.oktopk.problem(**ASKED, objective=objective)
    result = gapless.solve(problem, SolveOptions(stop=stop))
    assert result.solution is not None
    assert result.solution.bound is not None
    assert 0 < result.solution.bound <= result.solution.objective
    times_s = result.plan.details["step_s"]
    assert len(times_s) == 3
    assert [time_s for time_s in times_s if time_s is not None] == [result.solution.objective]
    whole = gapless.oktopk.solve(**ASKED, method="averaged")
    assert None not in whole.plan.details["step_s"]
