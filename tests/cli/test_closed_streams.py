"""Streams that the shell has closed or that nobody reads, and texts that no file system takes: a line, or silence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gapless.cli.main import main

ROOT = Path(__file__).parents[2]


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a shell's line does, `gapless` in it."""
    gapless = f"'{sys.executable}' -m gapless"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GAPLESS_CACHE": ""}
    command = ["bash", "-c", line.replace("gapless", gapless)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.parametrize(
    ("line", "code", "lines"),
    [
        ("gapless list topologies >&-", 0, 0),
        ("gapless list topologies --json >&-", 0, 0),
        ("gapless check none.json >&-", 2, 1),
        ("gapless check none.json 2>&-", 2, 0),
        ("gapless check none.json <&- >&- 2>&-", 2, 0),
        ("set -o pipefail; gapless list topologies | true", 0, 0),
    ],
)
def test_a_closed_stream_is_silence_and_the_same_exit_code(line: str, code: int, lines: int, tmp_path: Path) -> None:
    run = shell(line, tmp_path)
    assert (run.returncode, run.stdout, len(run.stderr.splitlines())) == (code, "", lines), run.stderr


def test_a_closed_stdout_leaves_its_number_to_no_file(tmp_path: Path) -> None:
    run = shell("gapless solve taccl --topology ring:3 --size 1KB -o plan.json --quiet >&-", tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    assert json.loads((tmp_path / "plan.json").read_text())["format"] == "gapless.plan"


@pytest.mark.parametrize(
    "grid",
    [
        {"system": "taccl", "topology": "a" * 5000, "size": "1KB"},
        {"system": "taccl", "topology": "../" * 1700, "size": "1KB"},
        {"system": "taccl", "topology": "ring:3", "size": "\u00e9" * 3000},
        {"system": "monet", "graph": "a" * 5000, "budget": "1x"},
        {"system": "cupcake", "profile": "x," * 2500},
        {"system": "bagpipe", "trace": "a.npz" * 1000, "trainers": 2, "batch_size": 8},
        {"system": "pipeline", "profile": "a" * 5000, "ranks": 2, "micro_batches": 2},
        {"system": "chai", "profile": "a" * 5000, "kv_saving": 0.2},
    ],
    ids=lambda grid: f"{grid['system']}-{len(json.dumps(grid))}",
)
def test_a_text_of_five_thousand_characters_in_a_sweep_is_one_line(
    grid: dict[str, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "grid.json"
    path.write_text(json.dumps({"format": "gapless.sweep", "version": 1, "grid": [grid]}))
    assert main(["sweep", str(path), "-o", str(tmp_path / "out"), "--dry-run"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_so_is_one_as_the_name_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = str(tmp_path / ("a" * 5000))
    assert main(["check", name]) == 2
    assert main(["solve", "taccl", "--topology", "ring:3", "--size", "1KB", "-o", name, "--quiet"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 2
