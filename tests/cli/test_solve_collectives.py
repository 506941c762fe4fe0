"""`gapless solve taccl` for every collective, and for those of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from calls import run

SOLVE = ["solve", "taccl", "--topology", "ndv2", "--nodes", "2", "--sketch", "ndv2-sk-1", "--size", "1MB"]


@pytest.mark.thorough("alltoall")
@pytest.mark.parametrize("name", ["alltoall", "reducescatter", "broadcast"])
def test_solve_takes_any_collective_and_check_agrees(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str
) -> None:
    plan = tmp_path / "plan.json"
    options = ["--collective", name, "--gap", "0.5", "--time-limit", "3", "-o", str(plan), "--quiet"]
    assert run(capsys, *SOLVE, *options)[0] == 0
    assert run(capsys, "check", str(plan))[0] == 0


def test_root_and_target_are_for_those_that_have_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, err = run(capsys, *SOLVE, "--root", "1")
    assert (code, err.count("\n")) == (2, 1)
    assert "root: must be left out, allgather has none; got 1" in err
    code, _, err = run(capsys, *SOLVE, "--collective", "sendrecv", "--root", "3", "--target", "3")
    assert code == 2
    assert "target must differ from root" in err
    code, _, _ = run(capsys, *SOLVE, "--collective", "sendrecv", "--root", "3", "--target", "9", "--quiet")
    assert code == 0


def test_collective_of_ones_own_is_solved_and_exported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    own, plan, xml = tmp_path / "own.json", tmp_path / "plan.json", tmp_path / "plan.xml"
    chunks = [{"from": [rank], "to": [(rank + 1) % 16]} for rank in range(16)]
    own.write_text(
        json.dumps({"format": "gapless.collective", "version": 1, "name": "shift", "ranks": 16, "chunks": chunks})
    )
    code, _, err = run(capsys, *SOLVE, "--collective-file", str(own), "-o", str(plan), "--quiet")
    assert code == 0, err
    options = ["--format", "taccl-ef", "--placement", "out-of-place", "-o", str(xml)]
    assert run(capsys, "export", str(plan), *options)[0] == 0
    assert 'name="shift_16"' in xml.read_text()
    assert 'coll="custom"' in xml.read_text()
    for extra in (["--collective", "allgather"], ["--root", "1"]):
        code, _, err = run(capsys, *SOLVE, "--collective-file", str(own), *extra)
        assert (code, err.count("\n")) == (2, 1)
