"""Which methods of fusion are tried, and which a parameter file leaves out."""

from __future__ import annotations

import pytest

from gapless.encodings.cupcake.methods.in_order import IN_ORDER
from gapless.encodings.cupcake.parameters import FUSION_ONLY, NAMES, Parameters
from gapless.encodings.cupcake.problem import problem
from gapless.encodings.cupcake.solve import solve
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.options import SolveOptions

BASELINES = {"layer-wise", "one-group", "buckets", "even-split", "selective", "selective-buckets", "plain-buckets"}
OF_ONE_MODE = BASELINES - {"selective", "selective-buckets"}


@pytest.mark.parametrize(
    ("modes", "choice", "method", "beside"),
    [
        (None, MethodChoice(), "pareto", BASELINES | {FUSION_ONLY}),
        (("plain",), MethodChoice(), "affine", OF_ONE_MODE),
        (("plain",), MethodChoice(without=("affine", "one-group")), "pareto", OF_ONE_MODE - {"one-group"}),
        (None, MethodChoice(without=("pareto", FUSION_ONLY)), "milp+highs", BASELINES),
        (("plain",), MethodChoice(only=("affine",)), "affine", set()),
        (None, MethodChoice(only=("buckets", "even-split")), "even-split", {"buckets", "even-split"}),
        (None, MethodChoice(only=("even-split",)), "even-split", {"even-split"}),
        (None, MethodChoice(only=("affine", "one-group")), "one-group", {"one-group"}),
    ],
)
def test_a_parameter_file_leaves_methods_out(
    modes: tuple[str, ...] | None, choice: MethodChoice, method: str, beside: set[str]
) -> None:
    asked = problem("vgg16", modes=modes, decode="before")
    plan = solve(asked, SolveOptions(), Parameters(methods=choice))
    assert plan.details["method"] == method
    assert set(plan.details["baselines_s"]) == beside


def test_a_method_by_name_is_tried_whatever_the_parameters_leave() -> None:
    asked = problem("vgg16", method="one-group")
    plan = solve(asked, SolveOptions(), Parameters(methods=MethodChoice(without=("one-group",))))
    assert plan.details["method"] == "one-group"


def test_parameters_name_the_methods_that_there_are() -> None:
    assert set(NAMES) == {*(method.name for method in IN_ORDER), FUSION_ONLY}
    with pytest.raises(InputError, match=r"methods.without: 'milpp' is no method"):
        Parameters(methods=MethodChoice(without=("milpp",)))
