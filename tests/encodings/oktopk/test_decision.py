"""What plans of sparse allreduces decide: saved and read as it was, also from files of before, refused where broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from extras import needs_torch
from small_plans import small_plan

import gapless
from gapless.encodings.oktopk.decision import SparseDecision
from gapless.encodings.oktopk.report import render
from gapless.errors import InputError
from gapless.io.plan import SavedPlan, read_plan


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return small_plan("oktopk", tmp_path)


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_decision_is_saved_and_read_as_it_was(saved: Path) -> None:
    decision = gapless.load(saved).decision
    assert isinstance(decision, SparseDecision)
    assert len(decision.owners) == 4
    details = gapless.load(saved).details
    assert {name: details.get(name, 1) for name in decision.data} == decision.data
    gapless.load(saved).save(saved)
    assert gapless.load(saved).decision == decision


def readings(plan: SavedPlan) -> list[object]:
    """What every reader makes of a plan."""
    from gapless.torch.sparse.plan import sparse_plan

    return [render(plan, gapless.check(plan.schedule)), sparse_plan(plan)]


@needs_torch
def test_readers_take_the_decision_and_of_a_plan_of_before_the_details(saved: Path, tmp_path: Path) -> None:
    known = readings(read_plan(saved))
    old = read_plan(changed(saved, lambda data: data.pop("decision")))
    assert not old.decision
    assert readings(old) == known
    new = changed(
        small_plan("oktopk", tmp_path), lambda data: [data["details"].pop(name) for name in ("cuts", "moves")]
    )
    assert readings(read_plan(new)) == known


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"owners": [0, 1, 1, 2]}, "plan.json: decision: owners: must be a permutation of the ranks"),
        ({"cuts": [0, 5000]}, "plan.json: decision: cuts: must be 5, one more than owners, got 2"),
        ({"moves": [[0, 4, 1]]}, r"decision: moves\[0\]: must be \[from, to, entries\] between 4 ranks"),
        ({"moves": [[0, 1]]}, r"decision: moves\[0\]: must be \[from, to, entries\] between 4 ranks"),
        ({"moves": [3]}, r"decision: moves\[0\]: must be \[from, to, entries\], got 3"),
        ({"replayed_steps": []}, "decision: replayed_steps: must be at least one step"),
        ({"balances": 1}, "decision: balances: must be true or false"),
        ({"steps": [0]}, "decision: field 'steps' is unknown"),
    ],
)
def test_what_is_no_decision_is_refused(saved: Path, values: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        gapless.load(changed(saved, lambda data: data["decision"].update(values)))


@needs_torch
def test_plans_of_other_systems_are_none_of_sparse_gradients(tmp_path: Path) -> None:
    from gapless.torch.sparse.plan import read_sparse_plan

    for system in ("taccl", "chai"):
        with pytest.raises(InputError, match=f"must be a plan of sparse gradients, got one of {system}"):
            read_sparse_plan(small_plan(system, tmp_path))
