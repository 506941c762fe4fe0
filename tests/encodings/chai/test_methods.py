"""Methods: a parameter file leaves any search or baseline out; the bound says what is then not known."""

from __future__ import annotations

import pytest

import gapless
from gapless.encodings.chai.methods import BASELINES, IN_ORDER
from gapless.encodings.chai.question import METHODS
from gapless.errors import InputError
from gapless.result import Result


def solved(choice: dict[str, list[str]], method: str = "exact") -> Result:
    parameters = {"methods": choice}
    return gapless.chai.solve("synthetic:layers=6,heads=8", kv_saving=0.2, method=method, parameters=parameters)


def test_all_baselines_have_names_that_the_question_knows() -> None:
    assert list(METHODS[1:]) == list(BASELINES)


@pytest.mark.parametrize("name", dict.fromkeys(method.name for method in IN_ORDER))
def test_without_a_search_there_is_a_plan_and_a_bound(name: str) -> None:
    whole, rest = solved({}).solution, solved({"without": [name]}).solution
    for each in (whole, rest):
        assert each.objective is not None
        assert each.bound is not None
        assert each.bound <= each.objective
    assert rest.objective >= whole.objective * (1 - 1e-9)  # type: ignore[operator]
    assert rest.bound <= whole.objective * (1 + 1e-9)  # type: ignore[operator]


def test_without_any_search_heads_are_ranked_and_nothing_is_known_of_others() -> None:
    whole, ranked = solved({}).solution, solved({"only": ["uniform"]}).solution
    assert ranked.objective is not None
    assert whole.objective is not None
    assert ranked.objective > whole.objective
    assert ranked.bound == 0.0


@pytest.mark.parametrize(
    ("choice", "method", "beside"),
    [
        ({}, "exact", {"uniform", "elbow", "random"}),
        ({"without": ["elbow"]}, "exact", {"uniform", "random"}),
        ({"without": ["elbow"]}, "elbow", {"exact", "uniform", "random"}),
        ({"only": ["exchanges"]}, "exact", set()),
    ],
)
def test_baselines_stand_beside_unless_they_are_left_out(
    choice: dict[str, list[str]], method: str, beside: set[str]
) -> None:
    result = solved(choice, method)
    assert set(result.details["baselines"]) == beside
    assert set(result.details["baseline_fronts"]) == beside - {"exact"}


def test_a_name_of_no_method_is_refused() -> None:
    with pytest.raises(InputError, match=r"methods.without: 'price' is no method"):
        solved({"without": ["price"]})
