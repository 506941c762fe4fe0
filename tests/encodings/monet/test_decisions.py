"""Decisions are checked against their graph, in shapes, implementations, variants and what runs in place; and saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hand_training import CONV, CONV_2, RELU, chain, tiny
from hypothesis import given
from hypothesis import strategies as st
from random_training import executable_decisions, training_graphs

import gapless
from gapless.encodings.monet import Problem
from gapless.encodings.monet.decisions import Decisions, StepDecision
from gapless.encodings.monet.lowering import to_schedule
from gapless.encodings.monet.solve import challenges
from gapless.encodings.monet.study.baselines import store_all
from gapless.errors import InputError
from gapless.io.plan import read_plan


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


# -- in plan files -----------------------------------------------------------------------------------------------------

PROBLEM = Problem(chain(6), 45)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "plan.json"
    gapless.solve(PROBLEM).save(path)
    return path


def edited(path: Path, into: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    (into / "plan.json").write_text(json.dumps(data), encoding="utf-8")
    return into / "plan.json"


def test_a_decision_is_saved_and_makes_the_schedule_anew(path: Path) -> None:
    result = gapless.load(path)
    assert isinstance(result.decision, StepDecision)
    assert max(stage for stage, *_ in result.decision.runs) > 0  # something is recomputed
    decisions = result.decision.on(PROBLEM.graph)
    assert list(to_schedule(PROBLEM.graph, decisions).events()) == list(result.schedule.events())


@given(st.data())
def test_any_decisions_are_what_their_saved_form_says(data: st.DataObject) -> None:
    graph = data.draw(training_graphs())
    decisions = data.draw(executable_decisions(graph))
    read = decisions.decision.on(graph)
    for field in fields(Decisions):
        np.testing.assert_array_equal(getattr(read, field.name), getattr(decisions, field.name))


@pytest.mark.parametrize(
    ("name", "rows", "says"),
    [
        ("kept", [[0, 1]], r"kept\[0\]: must be \[node, first stage, last stage\]"),
        ("kept", [[7, 1, 1]], r"kept: the graph has no \[7, 1, 1\]"),
        ("kept", [[0, 0, 1]], r"kept: the graph has no \[0, 0, 1\]"),
        ("runs", [[0, 0, 0, 2]], r"runs: the graph has no \[0, 0, 0, 2\]"),
        ("runs", [[7, 0, 0, 0]], r"runs: the graph has no \[7, 0, 0, 0\]"),
        ("runs", [[0, 0, 9, 0]], "names an implementation that its node doesn't have"),
        ("backward", [[0, 0]], "backward must have 6 nodes, got 1"),
        ("backward", [[0, 3]] * 6, "has no implementation 3"),
        ("version", 2, "version: must be 1, got 2"),
    ],
)
def test_a_start_that_is_no_decision_of_the_graph_is_refused(
    path: Path, tmp_path: Path, name: str, rows: object, says: str
) -> None:
    plan = read_plan(edited(path, tmp_path, lambda data: data["decision"].update({name: rows})))
    (challenge,) = challenges(PROBLEM, plan)
    assert challenge.restarted is not None
    with pytest.raises(InputError, match=says):
        challenge.restarted(PROBLEM, plan)


def test_a_plan_without_a_decision_has_no_start_for_a_challenge(path: Path, tmp_path: Path) -> None:
    assert not challenges(PROBLEM, read_plan(edited(path, tmp_path, lambda data: data.pop("decision"))))
