"""What fusion plans decide: read from files as typed data, and made into DDP buckets."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.decision import FusionDecision, to_ddp_buckets
from gapless.encodings.cupcake.views import write_buckets
from gapless.errors import InputError
from gapless.io.formats.ddp_buckets import read_ddp_buckets
from gapless.io.plan import SavedPlan, read_plan
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.result import Result

ASKED = {"profile": "tiny", "tensor_names": ["c", "b", "a"], "tensor_bytes": [60, 20, 144], "forward_s": 0.0}


@pytest.fixture(scope="module")
def result() -> Result:
    sizes = np.array([4096, 64, 1 << 20, 256, 1 << 18, 12], dtype=np.int64)
    topk = Mode("topk", AffineCost(1e-4, 2e-9), AffineCost(2e-4, 1e-10))
    return gapless.solve(Problem(FusionProfile("six", 0.01, tuple("fedcba"), sizes, np.full(6, 1e-3), (topk,))))


@pytest.fixture
def path(result: Result, tmp_path: Path) -> Path:
    result.save(tmp_path / "plan.json")
    return tmp_path / "plan.json"


def changed(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_decision_is_saved_and_read_as_typed_data(result: Result, path: Path) -> None:
    decision = gapless.load(path).decision
    assert isinstance(decision, FusionDecision)
    assert decision == result.decision == FusionDecision.of_fusion(decision.fusion)
    assert [list(group) for group in decision.groups] == result.details["groups"]
    assert list(decision.modes) == result.details["modes"]


def test_a_plan_of_before_has_its_decision_among_its_details(result: Result, path: Path) -> None:
    old = read_plan(changed(path, lambda data: data.pop("decision")))
    assert FusionDecision.of(old) == result.decision
    without_modes = {name: value for name, value in old.details.items() if name != "modes"}
    assert FusionDecision.of(replace(old, details=without_modes)).modes == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"groups": [[0, 1], [3, 5]]}, r"decision: groups\[1\]: must be \[2, last\] with last >= 2, got \[3, 5\]"),
        ({"groups": []}, "decision: groups: must be at least one"),
        ({"modes": ["plain"] * 9}, "decision: modes: must be one for each of"),
        ({"modes": [1]}, "decision: modes: must be a list of texts"),
    ],
)
def test_what_is_no_fusion_is_refused(path: Path, change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        gapless.load(changed(path, lambda data: data["decision"].update(change)))


def test_solved_plan_becomes_a_bucket_for_each_group(result: Result, path: Path, tmp_path: Path) -> None:
    assert "6 gradients of six" in write_buckets(str(tmp_path / "buckets.json"), read_plan(path), {})
    buckets = to_ddp_buckets(read_plan(path))
    assert [list(group) for group in buckets.groups] == result.details["groups"]
    assert list(buckets.modes) == result.details["modes"]
    assert len(buckets.groups) > 1
    assert sum(buckets.bucket_bytes) == 4096 + 64 + (1 << 20) + 256 + (1 << 18) + 12
    assert buckets.parameter_names == tuple("fedcba")
    assert read_ddp_buckets(tmp_path / "buckets.json") == buckets


@pytest.mark.parametrize(
    ("asked", "found", "message"),
    [
        ({}, {"groups": [[0, 1]]}, "plan: groups: must be at least one, and end with parameter 2, got 1"),
        ({}, {"groups": [[0, 1.0], [2, 2]]}, r"plan: details: groups\[0\]: must be \[first, last\] in whole numbers"),
        ({}, {}, "plan: details: field 'groups' is missing"),
        ({"tensor_bytes": [1, 2]}, {"groups": [[0, 2]]}, "plan: parameter_bytes: must have one entry for each of 3"),
        ({"tensor_bytes": [60, 20, -1]}, {"groups": [[0, 2]]}, r"tensor_bytes\[2\]: must be a whole number >= 0"),
        ({}, {"groups": [[0, 2]], "modes": [1]}, "plan: details: modes: must be a list of texts, got"),
        (
            {},
            {"groups": [[0, 2]], "modes": ["plain", "topk"]},
            "details: modes: must be one for each of 1 groups, got 2",
        ),
        ({"pieces_bytes": 99}, {"groups": [[0, 2]]}, "plan: problem: pieces_bytes: DDP keeps every gradient whole"),
        ({"tensor_names": ["c", 1, "a"]}, {"groups": [[0, 2]]}, r"tensor_names\[1\]: must be a string, got 1"),
        ({"tensor_bytes": [60, 20, 0]}, {"groups": [[0, 2]]}, r"plan: groups\[0\]: DDP would make \[0, 1\]"),
    ],
)
def test_plan_without_usable_groups_is_refused(
    result: Result, asked: dict[str, Any], found: dict[str, Any], message: str
) -> None:
    assert result.schedule is not None
    with pytest.raises(InputError, match=message):
        to_ddp_buckets(SavedPlan("cupcake", {**ASKED, **asked}, {}, found, result.schedule))
