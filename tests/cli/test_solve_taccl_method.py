"""`solve taccl --method` and `--chunks`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.cli.main import main

SOLVE = ["solve", "taccl", "--topology", "line:4", "--collective", "broadcast", "--size", "1MB", "--json"]


@pytest.mark.parametrize("method", ["milp", "greedy"])
def test_the_method_is_done_and_said(method: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main([*SOLVE, "--method", method, "--chunks", "1", "-o", str(plan)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"]
    assert json.loads(plan.read_text())["details"]["method"] == method


def test_without_a_sketch_the_chunking_is_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main([*SOLVE, "--method", "greedy", "-o", str(plan)]) == 0
    capsys.readouterr()
    assert json.loads(plan.read_text())["problem"]["chunks_per_rank"] > 1


def test_an_unknown_method_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([*SOLVE, "--method", "best"])
    assert stop.value.code == 2
    assert "must be one of auto, milp, greedy, got 'best'" in capsys.readouterr().err
