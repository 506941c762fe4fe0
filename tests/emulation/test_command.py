"""`gapless emulate`: the command's ranks, codes and files; what an emulated machine's file says."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from emulated_cluster import namespaces, needs_cluster

from gapless.cli.main import main
from gapless.errors import InputError
from gapless.topologies.emulated import ALPHA_S
from gapless.topologies.files import load_topology

TIMEOUT_S = 300.0


def test_an_emulated_machine_is_the_machine_with_scaled_bandwidths_and_one_latency(tmp_path: Path) -> None:
    path = tmp_path / "emulated.json"
    assert main(["emulate", "ndv2", "--nodes", "2", "--total", "50MB/s", "-o", str(path)]) == 0
    emulated, machine = load_topology(None, path=path), load_topology("ndv2", 2)
    ratio = emulated.beta_s_per_byte / machine.beta_s_per_byte
    assert ratio == pytest.approx(np.full(len(ratio), 1 / json.loads(path.read_text())["scale"]))
    assert emulated.alpha_s == pytest.approx(np.full(len(ratio), ALPHA_S))
    assert (emulated.resources, emulated.node_of_device) == (machine.resources, machine.node_of_device)


def test_what_is_emulated_already_is_not_scaled_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "emulated.json"
    main(["emulate", "ring:4", "-o", str(path)])
    assert main(["emulate", str(path)]) == 2
    assert main(["emulate", str(path), "-o", str(tmp_path / "again.json")]) == 2
    said = capsys.readouterr().err
    assert "bandwidths as they are" in said
    assert f"output: {path} is the file of an emulated machine already; leave it out" in said


def test_a_file_is_named_from_beside_the_emulated_one(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    machine = {"format": "gapless.topology", "version": 1, "name": "pair", "ranks_per_node": 2,
               "links": [{"from": 0, "to": 1, "alpha_us": 1, "beta_us_per_mb": 50, "both_ways": True}]}  # fmt: skip
    (tmp_path / "pair.json").write_text(json.dumps(machine))
    path = tmp_path / "plans" / "emulated.json"
    assert main(["emulate", str(tmp_path / "pair.json"), "-o", str(path)]) == 0
    assert json.loads(path.read_text())["emulates"] == {"file": "../pair.json"}
    assert len(load_topology(None, path=path).links) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scale": 0}, "scale: must be a number > 0, got 0"),
        ({"emulates": {"file": "emulated.json"}}, "file: must be the file of a machine, not of an emulated one"),
        ({"emulates": {}}, "topology: name one of the shipped machines, or give a file"),
        ({"alpha_us": -1}, "alpha_us: must be a number >= 0, got -1"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, change: dict[str, object], said: str) -> None:
    data = {"format": "gapless.topology", "version": 1, "name": "n", "emulates": {"topology": "ring:3"}, "scale": 1.0,
            "alpha_us": 1}  # fmt: skip
    path = tmp_path / "emulated.json"
    path.write_text(json.dumps(data | change))
    with pytest.raises(InputError, match=said.replace("(", "\\(")):
        load_topology(None, path=path)


def test_without_a_command_or_a_file_nothing_is_to_be_done(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "ring:3"]) == 2
    assert "give a command behind `--`, or `-o FILE`" in capsys.readouterr().err


def test_who_is_not_root_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["emulate", "ring:3", "--", "true"]) == 2
    assert "emulated clusters need root" in capsys.readouterr().err


@needs_cluster
def test_the_first_rank_prints_and_logs_hold_what_all_print(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    look = ["sh", "-c", "echo rank $RANK of $WORLD_SIZE at $MASTER_ADDR"]
    assert main(["emulate", "ring:3", "--", *look]) == 0
    printed = capfd.readouterr()
    assert printed.out == "rank 0 of 3 at 10.99.0.1\n"
    assert "a lone transfer had" in printed.err
    assert main(["emulate", "ring:3", "--logs", str(tmp_path / "logs"), "--", *look]) == 0
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert logs == {f"rank{rank}.txt": f"rank {rank} of 3 at 10.99.0.1\n" for rank in range(3)}


@needs_cluster
def test_the_first_rank_that_fails_says_the_exit_code(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["emulate", "ring:3", "--", "sh", "-c", "echo I am $RANK; exit $((4 * $RANK))"]) == 4
    said = capfd.readouterr().err
    assert "rank 1: I am 1\n" in said
    assert "rank 1 ended with 4" in said


@needs_cluster
@pytest.mark.thorough("3", "2")
def test_an_interrupt_ends_the_ranks_and_leaves_nothing() -> None:
    command = [sys.executable, "-m", "gapless", "emulate", "ring:2", "--", "sh", "-c", "echo here; sleep 600"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=TIMEOUT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "ending the ranks" in said
    end_s = time.monotonic() + TIMEOUT_S
    while any(f"-{process.pid}-" in name for name in namespaces()):
        assert time.monotonic() < end_s
        time.sleep(0.05)
