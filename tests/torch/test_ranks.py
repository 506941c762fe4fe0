"""A command that a launcher has started once a rank: one of them speaks, and all end alike."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from calls import run
from launches import free_port, launch, start
from little import LITTLE
from spawned import ROOT, ended

import gapless
from gapless.encodings.taccl import Chunked
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology

RANKS = 2


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    problem = Chunked.of(load_topology(f"ring:{RANKS}"), "allgather", 12_000)
    gapless.solve(problem, SolveOptions(gap=0.1), LITTLE).save(str(path))
    return path


def test_rank_0_says_what_all_have_found(plan: Path) -> None:
    first, second = launch(RANKS, "run", "taccl", "--plan", str(plan), "--repeats", "2", "--json")
    assert (first.code, second) == (0, type(second)(0, "", ""))
    answer = json.loads(first.out)
    assert answer["wrong"] == 0
    assert answer["sent_bytes"] == [12_000] * RANKS


@pytest.mark.thorough
def test_a_plan_for_other_ranks_is_refused_by_all(plan: Path) -> None:
    first, second, third = launch(3, "run", "taccl", "--plan", str(plan))
    assert "is for 2 ranks, the launcher has started 3" in first.err
    assert [other.code for other in (first, second, third)] == [2] * 3
    assert second.err == third.err == ""


@pytest.mark.thorough
def test_what_one_rank_alone_fails_with_reaches_rank_0(plan: Path, tmp_path: Path) -> None:
    port = free_port()
    first = start(0, RANKS, port, "run", "taccl", "--plan", str(plan))
    second = start(1, RANKS, port, "run", "taccl", "--plan", str(tmp_path / "none.json"))
    found = ended(first)
    assert "error: rank 1: cannot read" in found.err
    assert (found.code, ended(second)) == (2, type(found)(2, "", ""))


@pytest.mark.thorough
def test_ranks_with_different_plans_do_not_begin(plan: Path, tmp_path: Path) -> None:
    port = free_port()
    first = start(0, RANKS, port, "run", "taccl", "--plan", str(plan))
    second = start(1, RANKS, port, "run", "taccl", "--plan", str(plan), "--repeats", "4")
    assert "ranks 1: must have the same plan and options as rank 0" in ended(first).err
    assert ended(second).code == 2


def test_a_master_that_nobody_is_ends_within_the_wait(plan: Path) -> None:
    found = ended(start(1, RANKS, free_port(), "run", "taccl", "--plan", str(plan), "--wait", "1s"))
    assert found.code == 2
    assert "error: rank 1: no answer at 127.0.0.1:" in found.err
    assert found.err.count("\n") == 1


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["rank 0 is killed", "rank 1 is killed", "rank 1 hangs"])
def test_a_launched_rank_that_dies_or_hangs_ends_the_others(plan: Path, what: str) -> None:
    port, words = free_port(), ("run", "taccl", "--plan", str(plan), "--repeats", "10000", "--wait", "4s")
    ranks = [start(rank, RANKS, port, *words) for rank in range(RANKS)]
    assert ranks[0].stderr is not None
    assert "running 2 processes" in ranks[0].stderr.readline()
    time.sleep(6.0)  # they may be at any point of their work
    victim = ranks[0 if "rank 0" in what else 1]
    victim.send_signal(signal.SIGSTOP if "hangs" in what else signal.SIGKILL)
    found = ended(next(rank for rank in ranks if rank is not victim))
    victim.kill()
    ended(victim)
    assert found.code == 2
    assert found.err.startswith("gapless: error: ")
    assert found.err.count("\n") == 1


@pytest.mark.thorough
def test_a_port_that_is_in_use_is_named(plan: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("0.0.0.0", 0))
        listener.listen()
        port = listener.getsockname()[1]
        found = ended(start(0, RANKS, port, "run", "taccl", "--plan", str(plan), "--wait", "2s"))
    assert (found.code, found.out) == (2, "")
    assert found.err == f"gapless: error: 127.0.0.1:{port}: the port is in use; set MASTER_PORT to another\n"


@pytest.mark.thorough
def test_the_script_of_the_page_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "how-to" / "run-collectives.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("gapless solve")).replace("ring:4", "ring:2")
    assert run(capsys, *command.split()[1:], "--quiet")[0] == 0
    script = next(text for text in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "AllReduce(" in text)
    check = "assert gradient.eq(4.0).all()  # the sum of 0 and 1, doubled twice"
    (tmp_path / "script.py").write_text(f"{script}{check}\nimport os; os._exit(0)\n")
    port = str(free_port())
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "script.py"], env={**os.environ, **where, "RANK": str(rank), "PYTHONPATH": str(ROOT)}
        )
        for rank in range(RANKS)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
