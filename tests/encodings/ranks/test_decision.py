"""What plans of ranks decide: saved and read as it was, also from files of before, refused where it can't be one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from compression_traces import small_trace

import gapless
from gapless.encodings.ranks.decision import ModeDecision, Phase
from gapless.encodings.ranks.problem import problem
from gapless.encodings.ranks.report import draw_modes, render
from gapless.encodings.ranks.solve import cost
from gapless.encodings.ranks.training.variants import Asked
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan
from gapless.question.fields import Share

ASKED = problem(small_trace(), data=Share(0.5), phases="epoch")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    gapless.solve(ASKED).save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_phases_are_saved_and_read_as_they_were(saved: Path) -> None:
    again = gapless.load(saved)
    assert isinstance(again.decision, ModeDecision)
    assert again.decision == gapless.solve(ASKED).decision
    assert again.decision.data["phases"] == again.details["phases"]
    assert len(again.decision.phases) == again.details["switch_count"] + 1
    assert {len(row) for row in again.decision.by_epoch} == {len(small_trace().layer_names)}


def readings(plan: SavedPlan) -> list[object]:
    """What every reader makes of a plan."""
    report = gapless.check(plan.schedule)
    return [Asked.of(plan, "plan.json"), render(plan, report), cost(ASKED, plan, report)]


def test_readers_take_the_decision_and_of_a_plan_of_before_the_details(saved: Path) -> None:
    known = readings(read_plan(saved))
    assert readings(read_plan(changed(saved, lambda data: data["details"].pop("phases")))) == known
    gapless.solve(ASKED).save(saved)
    old = read_plan(changed(saved, lambda data: data.pop("decision")))
    assert not old.decision
    assert readings(old) == known


def first_phase(**values: object) -> Callable[[dict[str, Any]], object]:
    return lambda decision: decision["phases"][0].update(values)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda decision: decision.pop("phases"), "plan.json: decision: field 'phases' is missing"),
        (lambda decision: decision.update(phases=[]), "decision: phases: must be a list of at least one"),
        (first_phase(epochs=0), r"decision: phases\[0\]: epochs: must be a whole number >= 1, got 0"),
        (first_phase(modes=[1]), r"decision: phases\[0\]: modes: must be a list of texts"),
        (first_phase(first_epoch=1), r"decision: phases\[0\]: first_epoch: must be 0, got 1"),
        (first_phase(rank=1), r"decision: phases\[0\]: field 'rank' is unknown"),
    ],
)
def test_what_are_no_phases_is_refused(saved: Path, change: Callable[[dict[str, Any]], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        gapless.load(changed(saved, lambda data: change(data["decision"])))


def test_phases_must_fit_each_other_and_the_plan(saved: Path) -> None:
    with pytest.raises(InputError, match=r"phases\[1\]: first_epoch: must be 2, got 3"):
        ModeDecision((Phase(0, 2, ("plain",)), Phase(3, 1, ("plain",))))
    with pytest.raises(InputError, match=r"phases\[1\]: modes: must have a mode for each layer, 1 as phases\[0\]"):
        ModeDecision((Phase(0, 2, ("plain",)), Phase(2, 1, ("plain", "plain"))))
    short = read_plan(changed(saved, lambda data: data["decision"].update(phases=data["decision"]["phases"][:1])))
    with pytest.raises(InputError, match="phases must have 6 epochs, got 4"):
        cost(ASKED, short, gapless.check(short.schedule))
    with pytest.raises(InputError, match="must have one length"):
        Asked.of(short, "plan.json")


def test_modes_that_the_problem_does_not_have_are_not_drawn(saved: Path) -> None:
    pytest.importorskip("matplotlib")
    data = {**read_plan(saved).problem, "modes": ["plain"]}
    with pytest.raises(InputError, match=r"modes: must be of the plan's problem, got 'powersgd:"):
        draw_modes(read_plan(changed(saved, lambda plan: plan.update(problem=data))))


def test_epochs_are_whole_numbers_also_where_there_is_one(saved: Path) -> None:
    pytest.importorskip("matplotlib")
    ax = draw_modes(read_plan(saved))
    for last in (0.5, 1.5, 9.5):
        ax.set_xlim(-0.5, last)
        assert all(tick == round(tick) for tick in ax.get_xticks())
