"""A Model turns blocks and families of arrays into the arrays of a solver, and refuses what does not fit."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gapless.errors import ModelError
from gapless.model import Model


def _dense(model: Model) -> list[list[float]]:
    arrays = model.arrays()
    matrix = np.zeros((len(arrays.row_lower), len(arrays.cost)))
    matrix[arrays.row_of_entry, arrays.index] = arrays.value
    return [[float(value) for value in row] for row in matrix]


def test_blocks_number_their_columns_in_order() -> None:
    model = Model("blocks")
    assert model.binaries("a", 2).tolist() == [0, 1]
    assert model.integers("b", (2, 3), upper=4).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert model.continuous("c") == 8
    assert model.continuous("d", (np.int64(1), 0)).shape == (1, 0)
    assert model.column_count == 9
    arrays = model.arrays()
    assert arrays.is_integer.tolist() == [True] * 8 + [False]
    assert arrays.upper.tolist() == [1, 1, 4, 4, 4, 4, 4, 4, np.inf]
    assert arrays.lower.tolist() == [0] * 9


def test_bounds_broadcast_to_the_shape() -> None:
    model = Model("bounds")
    model.continuous("x", (2, 2), lower=[-1, 0], upper=[[1], [2]])
    arrays = model.arrays()
    assert arrays.lower.tolist() == [-1, 0, -1, 0]
    assert arrays.upper.tolist() == [1, 1, 2, 2]


def test_the_last_axis_is_summed_and_the_others_number_the_rows() -> None:
    model = Model("axes")
    x = model.continuous("x", (2, 3))
    model.add("one", (1, x[0]), upper=5)
    model.add("each", (2, x), (-1, x[0, 0]), lower=[1, 2])
    model.add("by_column", (1, x.T), lower=0, upper=[7, 8, 9])
    assert _dense(model) == [
        [1, 1, 1, 0, 0, 0],
        [1, 2, 2, 0, 0, 0],
        [-1, 0, 0, 2, 2, 2],
        [1, 0, 0, 1, 0, 0],
        [0, 1, 0, 0, 1, 0],
        [0, 0, 1, 0, 0, 1],
    ]
    arrays = model.arrays()
    assert arrays.row_lower.tolist() == [-np.inf, 1, 2, 0, 0, 0]
    assert arrays.row_upper.tolist() == [5, np.inf, np.inf, 7, 8, 9]


def test_coefficients_broadcast_against_ids() -> None:
    model = Model("coefficients")
    x = model.continuous("x", (2, 2))
    model.add("rows", ([[1], [2]], x), ([3, 4], x[:, ::-1]))
    assert _dense(model) == [[5, 4, 0, 0], [0, 0, 6, 5]]


def test_entries_named_twice_are_summed_and_zeros_vanish() -> None:
    model = Model("twice")
    x = model.continuous("x", 3)
    model.add_sparse("sparse", 2, [1, 0, 1, 1], [2, 1, 0, 2], [1.0, 2.0, 4.0, 0.5])
    model.add("gone", (1, x), (-1, x[:2]))
    arrays = model.arrays()
    assert _dense(model) == [[0, 2, 0], [4, 0, 1.5], [0, 0, 1]]
    assert arrays.start.tolist() == [0, 1, 3, 4]
    assert arrays.index.tolist() == [1, 0, 2, 2]


def test_rows_are_in_csr_order_whatever_the_order_of_entries() -> None:
    draw = np.random.default_rng(0)
    model = Model("shuffled")
    model.continuous("x", 20)
    model.add_sparse("rows", 10, draw.integers(0, 10, 80), draw.integers(0, 20, 80), draw.random(80))
    arrays = model.arrays()
    for row in range(10):
        columns = arrays.index[arrays.start[row] : arrays.start[row + 1]]
        assert (np.diff(columns) > 0).all()


def test_the_objective_adds_up_and_is_replaced() -> None:
    model = Model("objective")
    x = model.continuous("x", 3)
    model.maximize((1, x))
    model.minimize((2, x), (1, x[:1]), (1, x[0]), offset=5)
    arrays = model.arrays()
    assert arrays.cost.tolist() == [4, 2, 2]
    assert (arrays.offset, arrays.maximize) == (5, False)
    assert arrays.objective([1, 1, 1]) == 13


def test_names_come_from_labels_or_indices() -> None:
    model = Model("names")
    x = model.binaries("sent", 2, labels=["c0_r1", "c1_r0"])
    model.binaries("keep", (1, 2))
    model.continuous("time", labels=lambda k: f"end{k}")
    model.continuous("makespan")
    model.add("once", (1, x[:, None]), upper=1, labels=lambda k: f"chunk{k}")
    model.add("all", (1, x), upper=1)
    assert model.column_names() == ["sent_c0_r1", "sent_c1_r0", "keep_0_0", "keep_0_1", "time_end0", "makespan"]
    assert model.row_names() == ["once_chunk0", "once_chunk1", "all"]
    assert [(family.name, family.first, family.count) for family in model.families] == [("once", 0, 2), ("all", 2, 1)]


def test_an_empty_model_has_empty_arrays() -> None:
    arrays = Model("empty").arrays()
    assert [len(array) for array in (arrays.cost, arrays.row_lower, arrays.index, arrays.start)] == [0, 0, 0, 1]
    assert arrays.violation([]) == 0
    assert Model("empty").summary() == "empty: 0 columns (0 integer), 0 rows, 0 nonzeros"


def test_a_model_survives_pickling_with_labels_that_do_not() -> None:
    model = Model("pickled")
    x = model.binaries("x", 2, labels=lambda k: f"item{k}")
    model.add("row", (1, x), upper=1, labels=lambda k: f"only{k}")
    copy = pickle.loads(pickle.dumps(model))
    assert copy.column_names() == model.column_names() == ["x_item0", "x_item1"]
    assert copy.row_names() == ["row_only0"]
    assert callable(model.families[0].labels)


def test_violation_is_the_largest_distance_from_feasible() -> None:
    model = Model("violation")
    x, y = model.integers("x", upper=5), model.continuous("y", lower=-1.0, upper=5.0)
    model.add("sum", (1, x), (1, y), lower=1, upper=4)
    model.add("wide", (100, x), (100, y), upper=400)
    arrays = model.arrays()
    assert arrays.violation([2, 1]) == 0
    assert arrays.violation([2.25, 1]) == 0.25
    assert arrays.violation([0, -1]) == 0.5  # 2 below a row whose size is 4
    assert arrays.violation([3, 3]) == 0.5
    assert arrays.violation([6, -2]) == 1
    assert arrays.violation([np.nan, 0]) == np.inf


def test_violation_heeds_conditions_and_disjunctions() -> None:
    model = Model("logic")
    flag, start = model.binaries("flag"), model.integers("start", 2, 0, 9)
    model.add("late", (1, start[:1]), lower=1, only_if=flag)
    model.no_overlap("machine", [(start, [2, 3])])
    arrays = model.arrays()
    assert not arrays.is_linear
    assert arrays.violation([0, 0, 2]) == 0
    assert arrays.violation([1, 0, 2]) == 1
    assert arrays.violation([1, 3, 0]) == 0
    assert arrays.violation([1, 1, 2]) == 1


def test_what_is_left_out_overlaps_nothing() -> None:
    model = Model("optional")
    start, flag = model.integers("start", 2, 0, 9), model.binaries("flag")
    model.no_overlap("machine", [(start, [2, 3], [-1, flag])])
    assert model.arrays().violation([0, 1, 0]) == 0
    assert model.arrays().violation([0, 1, 1]) == 1
    with pytest.raises(ModelError, match="must name binary columns"):
        model.no_overlap("other", [(start, [2, 3], start[0])])


def test_what_takes_no_time_may_start_with_another_activity() -> None:
    model = Model("at_once")
    start = model.integers("start", 2, 0, 9)
    model.no_overlap("machine", [(start, [3, 0])])
    assert model.arrays().violation([4, 4]) == 0
    assert model.arrays().violation([4, 5]) == 2


def test_violation_heeds_shared_capacity() -> None:
    model = Model("shared")
    start, end = model.integers("start", 3, 0, 9), model.integers("end", 3, 0, 9)
    model.cumulative("memory", start, end, [0, 0, 1], [2, 3, 4], 6)
    arrays = model.arrays()
    assert not arrays.is_linear
    assert arrays.violation([0, 0, 2, 2, 5, 4]) == pytest.approx(1 / 6)  # 3 and 4 from 2 on
    assert arrays.violation([0, 0, 5, 2, 5, 5]) == 0  # what ends at 5 ends before another starts
    assert arrays.violation([3, 0, 5, 2, 5, 5]) == 1  # ends before it starts
    assert arrays.violation([0, 0, 9, 9, 9, 8]) == 0  # the last for no time


def _two_of(model: Model) -> Any:
    return model.continuous("x", 2)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda m, x: m.binaries("x"), "variable block 'x' is there already"),
        (lambda m, x: m.binaries("y", 2, labels=["one"]), "variable block 'y': labels must be 2, .*, got 1"),
        (lambda m, x: m.continuous("y", lower=2, upper=1), "variable block 'y': bounds must be numbers with lower"),
        (lambda m, x: m.continuous("y", upper=np.nan), "variable block 'y': bounds must be numbers"),
        (lambda m, x: m.continuous("y", lower=np.inf), "variable block 'y': bounds must be numbers"),
        (lambda m, x: (m.add("r", (1, x)), m.add("r", (1, x))), "row family 'r' is there already"),
        (lambda m, x: m.add("r", (1, x + 1)), r"row family 'r': column ids must be in 0\.\.1"),
        (lambda m, x: m.add("r", (1, x - 1)), r"row family 'r': column ids must be in 0\.\.1"),
        (lambda m, x: m.add("r", (1, [0.5])), "row family 'r': .*the ids must be integers"),
        (lambda m, x: m.add("r", ([1, 2, 3], x)), "row family 'r': coefficients must broadcast against ids"),
        (lambda m, x: m.add("r", (np.inf, x)), "row family 'r': coefficients must be finite"),
        (lambda m, x: m.add("r", (1, x), lower=np.nan), "row family 'r': bounds must be numbers"),
        (lambda m, x: m.add("r", (1, x), lower=np.inf), "row family 'r': bounds must be numbers, lower below inf"),
        (lambda m, x: m.add("r", (1, x[:, None]), upper=[1, 2, 3]), "row family 'r': terms .* differ in rows"),
        (lambda m, x: m.add("r", (1, x), only_if=x[0]), "row family 'r': only_if must name binary columns"),
        (lambda m, x: m.add_sparse("r", 1, [0, 1], [0, 1], 1), r"row family 'r': row numbers must be in 0\.\.0"),
        (lambda m, x: m.add_sparse("r", 1, [0], [0, 1], 1), "row family 'r': 1 row numbers for 2 columns"),
        (lambda m, x: m.no_overlap("r", [(x, [-1, 2])]), "family 'r': durations must be finite and >= 0"),
        (lambda m, x: m.cumulative("r", x, x, 0, -1, 1), "family 'r': demands must be finite and >= 0"),
        (lambda m, x: m.cumulative("r", x, x + 1, 0, 1, 1), r"family 'r': columns must be in 0\.\.1"),
        (lambda m, x: m.cumulative("r", x, x[:1], 0, 1, 1), "family 'r': needs as many ends as starts"),
        (lambda m, x: m.cumulative("r", x, x, 0, 1, np.inf), "family 'r': needs .* a finite capacity"),
        (lambda m, x: m.minimize((1, x + 1)), r"objective of model 'wrong': column ids must be in 0\.\.1"),
        (lambda m, x: m.maximize((np.nan, x)), "objective of model 'wrong': coefficients must be finite"),
        (lambda m, x: m.minimize((1, x), offset=np.inf), "objective of model 'wrong': offset must be finite"),
    ],
)
def test_what_does_not_fit_is_named(build: Callable[[Model, Any], Any], message: str) -> None:
    model = Model("wrong")
    x = _two_of(model)
    with pytest.raises(ModelError, match=message):
        build(model, x)


def test_the_relaxation_has_real_columns_and_leaves_the_model_as_it_was() -> None:
    model = Model("knapsack")
    take = model.binaries("take", 3)
    model.add("capacity", (np.array([3.0, 4.0, 5.0]), take), upper=8.0)
    relaxed = model.relaxed().arrays()
    assert not relaxed.is_integer.any()
    assert model.arrays().is_integer.all()
    assert (relaxed.value == model.arrays().value).all()
