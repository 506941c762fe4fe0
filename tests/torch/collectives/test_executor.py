"""Plans between processes: nine collectives into new memory and in place, the command, and how ranks end."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from calls import run
from gloo_ranks import run_ranks
from little import LITTLE
from planned_ranks import call_all

import gapless
from gapless.collective import COLLECTIVES
from gapless.encodings.taccl import Chunked
from gapless.errors import InputError, RunError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.torch.collectives import planned
from gapless.torch.collectives.rank import Task
from gapless.torch.collectives.run import run_collective

RANKS = 3


def save(folder: Path, name: str, file: str, ranks: int = RANKS) -> Path:
    result = gapless.solve(Chunked.of(load_topology(f"ring:{ranks}"), name, 12_000), SolveOptions(gap=0.1), LITTLE)
    result.save(str(folder / file))
    return folder / file


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, tuple[list[bool], int]]]:
    """What every rank found of the plans of all collectives."""
    folder = tmp_path_factory.mktemp("plans")
    for name in COLLECTIVES:
        save(folder, name, f"{name}.plan")
    return run_ranks(call_all, RANKS, folder)


@pytest.mark.parametrize("name", sorted(COLLECTIVES))
def test_ranks_end_with_what_the_collective_defines(
    found: list[dict[str, tuple[list[bool], int]]], name: str
) -> None:  # fmt: skip
    for rank in found:
        calls, _ = rank[name]
        assert all(calls)


def test_ranks_send_the_bytes_of_the_plan(found: list[dict[str, tuple[list[bool], int]]]) -> None:
    assert [rank["allgather"][1] for rank in found] == [2 * 8 * 3] * RANKS


@pytest.mark.thorough
def test_the_command_says_what_was_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, "allreduce", "plan.json", 2)
    code, out, _ = run(capsys, "run", "taccl", "--plan", str(path), "--repeats", "3", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["wrong"] == 0
    assert len(answer["measured_times_s"]) == len(answer["library_times_s"]) == 3
    assert answer["predicted_s"] == pytest.approx(read_plan(path).schedule.end_s.max())


def test_a_plan_that_is_broken_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, "allgather", "plan.json", 2)
    data = json.loads(path.read_text())
    data["schedule"]["end_s"] = data["schedule"]["start_s"]
    path.write_text(json.dumps(data))
    code, out, _ = run(capsys, "run", "taccl", "--plan", str(path))
    assert code == 5
    assert "not run: " in out


def test_what_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(RunError, match="stopped"):
        run_collective(save(tmp_path, "allgather", "plan.json", 2), Task(2, 6000, 1, True, 0, 60.0), stop)


def test_a_plan_for_other_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plan: is for 2 ranks, the process group has 1"):
        planned(save(tmp_path, "allgather", "plan.json", 2))
    assert not torch.distributed.is_initialized()
