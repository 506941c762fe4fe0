"""Decisions of plans: saved beside the schedule, read as typed data, refused where they can't be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gapless
from gapless.encodings.chai.head_map import HeadDecision
from gapless.errors import InputError
from gapless.io.plan import read_plan


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    gapless.chai.solve("synthetic:layers=3,heads=6", kv_saving=0.25).save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_decision_is_saved_and_read_as_typed_data(saved: Path) -> None:
    result = gapless.chai.solve("synthetic:layers=3,heads=6", kv_saving=0.25)
    again = gapless.load(saved)
    assert isinstance(again.decision, HeadDecision)
    assert again.decision == result.decision
    assert len(again.decision.kept) == 3


def test_a_plan_of_before_has_its_decision_among_its_details(saved: Path) -> None:
    known = HeadDecision.of(read_plan(saved))
    old = read_plan(changed(saved, lambda data: data.pop("decision")))
    assert not old.decision
    assert HeadDecision.of(old) == known


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda decision: decision.update(version=2), "plan.json: decision: version: must be 1, got 2"),
        (lambda decision: decision.pop("version"), "version"),
        (lambda decision: decision.pop("kept"), "kept"),
        (lambda decision: decision.update(kept="all"), "kept"),
        (lambda decision: decision.update(more=1), "more"),
    ],
)
def test_what_is_no_decision_is_refused(saved: Path, change: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        gapless.load(changed(saved, lambda data: change(data["decision"])))
