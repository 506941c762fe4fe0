"""Methods: a parameter file leaves any out or gives it alone; what can't plan a question says so."""

from __future__ import annotations

from typing import Any

import pytest
from compression_traces import small_trace

import gapless
from gapless.encodings.ranks.methods import IN_ORDER
from gapless.encodings.ranks.question import METHODS
from gapless.errors import InputError
from gapless.result import Result

SWITCHED: dict[str, Any] = {"data": "0.5x", "phases": "epoch", "switches": 1}
BY_EPOCH: dict[str, Any] = {"data": "1x", "phases": "epoch"}


def solved(choice: dict[str, list[str]], **more: Any) -> Result:
    return gapless.ranks.solve(small_trace(), **more, parameters={"methods": choice})


def test_each_method_but_prices_has_a_name_that_the_question_knows() -> None:
    assert sorted(method.name for method in IN_ORDER if method.name != "prices") == sorted(METHODS[1:])


@pytest.mark.parametrize("name", METHODS[1:])
def test_a_method_alone_is_the_method_by_its_name(name: str) -> None:
    alone, named = solved({"only": [name]}, **BY_EPOCH), gapless.ranks.solve(small_trace(), **BY_EPOCH, method=name)
    assert alone.solution is not None
    assert named.solution is not None
    assert alone.solution.solver.partition("+")[0] == name
    assert alone.solution.objective == named.solution.objective
    assert alone.plan.details["phases"] == named.plan.details["phases"]


@pytest.mark.parametrize(("left_out", "method"), [("prices", "milp+highs"), ("milp", "prices")])
def test_what_is_left_out_is_not_tried(left_out: str, method: str) -> None:
    whole, rest = solved({}, **SWITCHED), solved({"without": [left_out]}, **SWITCHED)
    assert rest.solution is not None
    assert whole.solution is not None
    assert rest.solution.solver == method
    assert rest.solution.objective >= whole.solution.objective * (1 - 1e-9)


@pytest.mark.parametrize(
    ("choice", "question", "message"),
    [
        ({"without": ["budget"]}, BY_EPOCH, "methods: auto tries budget here, and none of them is left"),
        ({"only": ["prices"]}, BY_EPOCH, "methods.only: prices goes with switches and data"),
        ({"only": ["budget"]}, SWITCHED, "method: budget is for data alone"),
        ({"only": ["accordion"]}, {"data": "0.5x"}, "method: accordion needs phases epoch"),
        ({"without": ["simplex"]}, BY_EPOCH, "methods.without: 'simplex' is no method"),
    ],
)
def test_a_choice_that_can_not_plan_says_so(
    choice: dict[str, list[str]], question: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        solved(choice, **question)
