"""`solve taccl --method` and `--chunks`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gapless.cli.main import main
from gapless.cli.running import CUT_SHORT

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


def test_an_answer_that_the_clock_cut_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["solve", "taccl", "--topology", "ndv2", "--nodes", "1", "--size", "1MB", "--gap", "0.3", "--json"]
    words += ["-o", str(tmp_path / "plan.json")]
    line = f"gapless: {CUT_SHORT}"
    assert main([*words, "--time-limit", "0.001"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["stop_reason"] == "time_limit"
    assert line in captured.err.splitlines()
    assert main(words) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["stop_reason"] == "gap_reached"
    assert line not in captured.err.splitlines()
