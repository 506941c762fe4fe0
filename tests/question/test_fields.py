"""Fields: texts of the command line and values of Python mean the same, and what is wrong is said in one line."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.question.fields import (
    Bandwidth,
    Choice,
    Field,
    Flag,
    Kind,
    Listed,
    Number,
    Object,
    Ranks,
    Seconds,
    Share,
    Size,
    SizeOrShare,
    Text,
    Whole,
    WholeOrShare,
    read_fields,
)
from gapless.system import System, find_system, system_names

ROOT = Path(__file__).parents[2]
SHIPPED = system_names()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Whole(0), "3", 3),
        (Whole(0), "3", np.int64(3)),
        (Number(0), "0.5", 0.5),
        (Number(0), "2", 2),
        (Size(), "1.5MB", 1_500_000),
        (Size(0), "0", 0),
        (Seconds(), "2s", 2),
        (Bandwidth(), "10Gbps", 1.25e9),
        (SizeOrShare(), "8GiB", 2**33),
        (SizeOrShare(), "0.5x", Share(0.5)),
        (WholeOrShare(), "32", 32),
        (WholeOrShare(), "0.5x", Share(0.5)),
        (WholeOrShare(), Share(2), Share(2)),
        (Text(), "a/b", Path("a/b")),
        (Choice(("x", "y")), "y", "y"),
        (Listed(Whole(1)), "1,2", [1, 2]),
        (Ranks(), "0-2,5", [5, 0, 1, 2]),
        (Ranks(), "5", 5),
        (Listed(Size()), "1KB,1MB", (1000, "1MB")),
    ],
)
def test_texts_and_values_read_the_same(kind: Kind, text: str, value: Any) -> None:
    assert kind(text) == kind(value)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Whole(1), "0", r"must be a whole number in 1\.\.2147483647, got '0'"),
        (Whole(1), 1.5, "must be a whole number"),
        (Whole(1), True, "must be a whole number"),
        (Whole(1), "9" * 5000, "must be a whole number"),
        (Number(0, strict=True), 0, "must be a number > 0, got 0"),
        (Number(0), float("nan"), "must be a number >= 0"),
        (Number(0), "1e999", "must be a number >= 0"),
        (Number(0), None, "must be a number >= 0"),
        (Size(), "1XB", "must be a number and a unit such as 1MB"),
        (Size(), 0.5, "must be a whole number"),
        (Seconds(), "10", "must be a number and a unit such as 10us"),
        (Bandwidth(), -1, "must be a number >= 0.001 and <= 1e[+]15, got -1"),
        (WholeOrShare(), "0", "must be a whole number in 1..2147483647, got '0'"),
        (SizeOrShare(), "0x", "must be a number > 0 and <= 1000, got '0'"),
        (Text(), 3, "must be a text, got 3"),
        (Text(), "a\0b", "must be a text"),
        (Choice(("auto", "milp")), "mlp", "must be one of auto, milp, got 'mlp'; did you mean 'milp'"),
        (Choice(("auto",)), 3, "must be one of auto, got 3"),
        (Listed(Whole(1)), "1,,2", "must be values with commas between them"),
        (Ranks(), "7-5", "must be ranks, such as 5 or 0-7,16, got '7-5'"),
        (Ranks(), [0, -1], "must be a whole number in 0..2147483647, got -1"),
        (Listed(Whole(1)), 7, "must be values with commas between them, got 7"),
        (Object(("numpy.ndarray",)), 7, "must be a text or a ndarray, got int"),
        (Flag(), "yes", "must be true or false, got 'yes'"),
    ],
)
def test_what_breaks_the_rule_is_refused_with_rule_and_value(kind: Kind, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        kind(value)


def test_an_object_stands_for_a_text() -> None:
    array = np.arange(3)
    assert Object(("numpy.ndarray",))(array) is array


FIELDS = (
    Field("size", Size(), "how much", is_required=True),
    Field("count", Whole(1), "how many", 2),
    Field("fast", Flag(), "hurry", True),
)


def test_defaults_stand_where_nothing_is_said() -> None:
    assert read_fields(FIELDS, {"size": "1KB", "count": None}, "it") == {"size": 1000, "count": 2, "fast": True}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "size: must be given: how much"),
        ({"size": 1, "cuont": 3}, "cuont: is no argument of it; did you mean 'count'"),
        ({"size": 1, "zzz": 3}, "zzz: is no argument of it; known are count, fast, size"),
        ({"size": 1, "count": 0}, r"count: must be a whole number in 1\.\."),
    ],
)
def test_the_argument_is_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_fields(FIELDS, values, "it")


def test_a_flag_that_is_on_is_turned_off_by_its_option() -> None:
    assert [field.option for field in FIELDS] == ["--size", "--count", "--no-fast"]


@pytest.mark.parametrize("name", [name for name in SHIPPED if find_system(name).problem is not System.problem])
def test_no_default_of_a_question_stands_in_its_problem_again(name: str) -> None:
    """A problem that holds a field of its question as it is takes the default from there: `Question.method`."""
    system, folder = find_system(name), ROOT / "encodings" / name
    defaults = {field.name: field.default for field in system.fields if field.default is not None}
    tree = ast.parse((folder / "problem.py").read_text(encoding="utf-8"))
    problem = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Problem")
    twice = [
        line.target.id
        for line in problem.body
        if isinstance(line, ast.AnnAssign)
        and isinstance(line.target, ast.Name)
        and isinstance(line.value, ast.Constant)
        if line.value.value is not None and line.value.value == defaults.get(line.target.id)
    ]
    assert twice == []


@pytest.mark.parametrize("name", SHIPPED)
def test_helps_leave_it_to_the_field_to_say_its_default(name: str) -> None:
    for field in find_system(name).fields:
        assert "(default" not in field.help, field.name
