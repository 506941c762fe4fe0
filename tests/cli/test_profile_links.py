"""`gapless profile links`: between real processes, what it prints and writes, what is refused, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest
from extras import needs_torch

from gapless.cli.main import main
from gapless.schemas import load_schema
from gapless.topologies.files import read_machine

ROOT = Path(__file__).parents[2]
QUICK = ("--sizes", "8,64KiB,128KiB", "--precision", "0.9")


def profile(output: Path, *options: str) -> int:
    return main(["profile", "links", "-o", str(output), *options])


@needs_torch
def test_two_processes_are_measured_and_the_file_is_planned_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "machine.json"
    assert profile(path, *QUICK, "--by", "pair", "--machine", "ndv2", "--json") == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["orders_as_machine"] == [None]
    assert "node 0 is not wired as ndv2" in err
    assert [row["name"] for row in found["classes"]] == ["rank 0 to 1", "rank 1 to 0"]
    for row in found["classes"]:  # on a busy machine one of them may drown in noise
        assert min(row["alpha_us"], row["beta_us_per_mb"]) >= 0 < row["alpha_us"] + row["beta_us_per_mb"]
        assert row["samples"] > 3
    assert (found["ranks"], found["order"], found["output"], found["backend"]) == (2, [0, 1], str(path), "gloo")
    assert found["structure"][0]["ranks"] == [0, 1]
    written = json.loads(path.read_text())
    assert written["measured"]["classes"] == found["classes"]
    assert written["source"].startswith(f"measured by gapless profile links from {found['begun']} to {found['ended']}")
    jsonschema.validate(written, load_schema("topology"))
    machine = read_machine(path)
    assert (machine.device_count, machine.node_count, len(machine.links)) == (2, 1, 2)
    plan = tmp_path / "plan.json"
    assert main(["solve", "taccl", "--topology-file", str(path), "--size", "1MB", "-o", str(plan), "--quiet"]) == 0


@needs_torch
@pytest.mark.thorough
def test_people_see_nodes_classes_and_the_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.json"
    assert profile(path, *QUICK, "--ranks", "3") == 0
    first, *_, row, source = capsys.readouterr().out.splitlines()  # what is found depends on how busy the machine is
    assert first.startswith("node 0     ranks 0")
    assert row.lstrip().startswith(("inside of nodes", "between nodes"))
    assert source.endswith("3 ranks over gloo")


def test_an_unknown_machine_is_refused_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert profile(tmp_path / "machine.json", "--machine", "abacus") == 2
    assert "must be one of dgx-a100" in capsys.readouterr().err


@needs_torch
def test_no_time_for_the_structure_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.json"
    assert profile(path, "--time-limit", "0.001", "--json") == 4
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["machine"], found["experiments"], found["output"]) == (None, 0, None)
    assert "the time was over after 0 experiments, before the structure was known; give a longer --time-limit" in err
    assert not path.exists()


@needs_torch
@pytest.mark.thorough
def test_stopping_ends_with_what_is_known_and_leaves_no_process(tmp_path: Path) -> None:
    words = ["profile", "links", "--precision", "0.000001", "--time-limit", "300", "-o", "machine.json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gapless", *words]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment)
    time.sleep(15)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=600)
    assert "ending with what is known" in err
    assert process.returncode in (0, 4), err
    assert (tmp_path / "machine.json").exists() == (process.returncode == 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "1"], "argument --ranks: must be a whole number in 2..1024, got '1'"),
        (["--backend", "ucx"], "argument --backend"),
        (["--sizes", "many"], "argument --sizes"),
        (["--sizes", "0"], "argument --sizes"),
        (["--by", "node"], "argument --by"),
        (["--precision", "0"], "argument --precision"),
        (["--time-limit", "-1"], "argument --time-limit"),
    ],
)
def test_bad_options_are_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as left:
        profile(tmp_path / "machine.json", *options)
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@needs_torch
@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("none/machine.json", [], "cannot write"),
        ("machine.json", ["--backend", "mpi"], "backend: this installation of torch has no mpi; take gloo"),
    ],
)
def test_what_cant_be_is_refused_in_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], where: str, options: list[str], message: str
) -> None:
    assert profile(tmp_path / where, "--quiet", *options) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
