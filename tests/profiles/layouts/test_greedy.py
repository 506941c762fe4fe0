"""Choices one node after the other."""

from __future__ import annotations

import numpy as np

from gapless.profiles.layouts.greedy import AVOIDED, Support, completed
from gapless.profiles.layouts.tables import FORBIDDEN, ChoiceTables

F = FORBIDDEN
CHAIN = ChoiceTables(
    np.zeros((3, 2), dtype=np.int64),
    tuple(np.array(row, dtype=np.int64) for row in ([1, 2], [0, 5], [0, 0])),
    (np.zeros(2, dtype=np.int64),) * 3,
    np.array([[0, 1], [1, 2]], dtype=np.int64),
    (np.array([[9, 0], [0, 9]], dtype=np.int64), np.array([[F, F], [3, 0]], dtype=np.int64)),
)
ALL = [np.ones(2, dtype=bool)] * 3


def test_choices_without_a_partner_are_left_out() -> None:
    support = Support(CHAIN, ALL)
    assert support.narrow(range(3)) is not None
    assert [mask.tolist() for mask in support.left] == [[True, True], [False, True], [True, True]]
    assert Support(CHAIN, [ALL[0], np.array([True, False]), ALL[2]]).narrow(range(3)) is None


def test_a_choice_that_leaves_others_none_changes_nothing() -> None:
    support = Support(CHAIN, ALL)
    assert not support.choose(1, 0)
    assert [mask.tolist() for mask in support.left] == [[True, True]] * 3
    assert support.choose(1, 1)


def test_each_node_costs_least_with_those_before_it() -> None:
    choices = completed(CHAIN, ALL, {})
    assert choices is not None
    assert choices.tolist() == [0, 1, 1]
    avoided = {1: np.array([[0, 0], [0, AVOIDED]], dtype=np.int64)}
    choices = completed(CHAIN, ALL, avoided)
    assert choices is not None
    assert choices.tolist() == [0, 1, 0]
