"""Decisions are checked against their graph: shapes, implementations, variants, and what can run in place."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_training import CONV, CONV_2, RELU, tiny

from gapless.encodings.monet.decisions import Decisions
from gapless.encodings.monet.study.baselines import store_all
from gapless.errors import InputError


def changed(field: str, where: tuple[int, ...], value: Any) -> Decisions:
    decisions = store_all(tiny())
    array = getattr(decisions, field).copy()
    array[where] = value
    return replace(decisions, **{field: array})


def test_decisions_of_the_graph_are_accepted() -> None:
    store_all(tiny()).check_against(tiny())
    changed("in_place", (0, RELU), True).check_against(tiny())


@pytest.mark.parametrize(
    "field", ["stored", "recomputed", "in_place", "forward_implementation", "variant", "backward_implementation"]
)
def test_a_wrong_shape_is_refused_by_name(field: str) -> None:
    decisions = store_all(tiny())
    with pytest.raises(InputError, match=f"{field} must have shape"):
        replace(decisions, **{field: getattr(decisions, field)[1:]}).check_against(tiny())


@pytest.mark.parametrize(
    ("field", "where", "value", "message"),
    [
        ("forward_implementation", (0, CONV), 2, "forward_implementation names an implementation"),
        ("forward_implementation", (0, CONV_2), -1, "forward_implementation names an implementation"),
        ("variant", (2,), 3, "has no variant 3"),
        ("variant", (0,), -1, "has no variant -1"),
        ("backward_implementation", (1,), 1, "has no implementation 1"),
        ("in_place", (0, CONV), True, "can't or doesn't run in place"),
        ("in_place", (3, RELU), True, "can't or doesn't run in place"),
    ],
)
def test_a_choice_that_does_not_exist_is_refused(field: str, where: tuple[int, ...], value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        changed(field, where, value).check_against(tiny())


def test_variants_are_counted_per_node() -> None:
    decisions = changed("variant", (2,), np.int64(2))
    decisions.check_against(tiny())
