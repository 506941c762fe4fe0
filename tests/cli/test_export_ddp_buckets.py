"""`gapless export --format ddp-buckets`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gapless
from gapless.cli.main import main
from gapless.encodings.cupcake import Problem
from gapless.io.formats.ddp_buckets import read_ddp_buckets
from gapless.io.plan import SavedPlan, claim_data, write_plan
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.modes import Mode
from gapless.profiles.gradients.profile import FusionProfile


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    sizes = np.array([4096, 64, 1 << 20, 256], dtype=np.int64)
    modes = (Mode("topk", AffineCost(1e-4, 2e-9), AffineCost(2e-4, 1e-10)),)
    problem = Problem(FusionProfile("four", 0.01, tuple("dcba"), sizes, np.full(4, 1e-3), modes))
    result = gapless.solve(problem)
    assert result.schedule is not None
    saved = SavedPlan("cupcake", problem.description, claim_data(result.solution), result.details, result.schedule)
    write_plan(tmp_path / "plan.json", saved)
    return tmp_path / "plan.json"


def export(plan: Path, form: str = "ddp-buckets") -> int:
    return main(["export", str(plan), "--format", form, "-o", str(plan.with_name("out"))])


def altered(plan: Path, change: Any) -> Path:
    """The plan after `change(data)`."""
    data = json.loads(plan.read_text())
    change(data)
    plan.write_text(json.dumps(data))
    return plan


def test_export_writes_the_plans_groups(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    assert export(plan) == 0
    buckets = read_ddp_buckets(plan.with_name("out"))
    assert [list(group) for group in buckets.groups] == json.loads(plan.read_text())["details"]["groups"]
    assert f"{len(buckets.groups)} buckets for 4 gradients of four" in capsys.readouterr().out


def test_export_takes_only_plans_of_its_system(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    assert export(plan, "taccl-ef") == 2
    assert "--format taccl-ef takes plans of taccl, got one of cupcake" in capsys.readouterr().err


def test_plan_that_ddp_cannot_reproduce_is_one_line_and_exit_2(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    def empty_last(data: dict[str, Any]) -> None:
        data["problem"]["tensor_bytes"][-1] = 0
        data["details"].update(groups=[[0, 3]], modes=["plain"])

    assert export(altered(plan, empty_last)) == 2
    err = capsys.readouterr().err
    assert "plan.json: plan: groups[0]: DDP would make [0, 2] of [0, 3]" in err
    assert err.count("\n") == 1
    assert not plan.with_name("out").exists()


def test_plan_with_violations_is_not_exported(capsys: pytest.CaptureFixture[str], plan: Path) -> None:
    def no_time(data: dict[str, Any]) -> None:
        data["schedule"]["end_s"] = data["schedule"]["start_s"]

    assert export(altered(plan, no_time)) == 5
    assert "not exported" in capsys.readouterr().err
    assert not plan.with_name("out").exists()
