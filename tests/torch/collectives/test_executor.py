"""Plans between processes: nine collectives into new memory and in place, the command, and how ranks end."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from calls import run
from gloo_ranks import run_ranks
from little import LITTLE
from planned_ranks import LENGTH, call_all, call_otherwise
from spawned import children, ended, goes, spawn

import gapless
from gapless.encodings.taccl import Chunked
from gapless.errors import InputError, RunError
from gapless.io.plan import read_plan
from gapless.ir.collective import COLLECTIVES
from gapless.options import SolveOptions
from gapless.topologies.files import load_topology
from gapless.torch.collectives import planned
from gapless.torch.collectives.rank import Task, run_collective
from gapless.torch.processes import backend_device

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


def test_buffers_groups_and_kinds_of_numbers(tmp_path: Path) -> None:
    for name in ("allgather", "alltoall"):
        save(tmp_path, name, f"{name}.plan")
    save(tmp_path, "allgather", "allgather.pair", 2)
    slow(save(tmp_path, "allgather", "allgather.slow"))
    ranks = run_ranks(call_otherwise, RANKS, tmp_path)
    for rank in ranks:
        assert rank["undivided"] == f"input: must be flat and divisible into 3 chunks, got shape ({LENGTH + 1},)"
        assert rank["not flat"] == "input: must be flat and divisible into 1 chunks, got shape (2, 2)"
        assert "output: must be of the input's type and device, is torch.float32 on cpu" in rank["other type"]
        assert rank["other length"] == f"output: must have chunks as long as the input's, got [{LENGTH}, {2 * LENGTH}]"
        assert rank["kinds"] == [[other for other in range(RANKS) for _ in range(LENGTH)]] * 3
        assert not rank["learned"]
        assert rank["other collective"].endswith("allgather.plan: must be a plan of allreduce, got one of allgather")
        assert rank["slower"].endswith("call gloo itself, or run the plan all the same with anyway=True")
        assert rank["slower, anyway"] == [other for other in range(RANKS) for _ in range(LENGTH)]
    assert [rank["pair"] for rank in ranks] == [[0] * LENGTH + [2] * LENGTH, [], [0] * LENGTH + [2] * LENGTH]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "line"),
    [(signal.SIGKILL, "was killed by signal 9; the others were ended"), (signal.SIGSTOP, "give a longer --wait")],
)
def test_a_rank_that_dies_or_hangs_ends_all_with_a_line(tmp_path: Path, number: signal.Signals, line: str) -> None:
    path = save(tmp_path, "allgather", "plan.json", 2)
    process = spawn("run", "taccl", "--plan", str(path), "--repeats", "10000", "--wait", "3s")
    while len(ranks := children(process.pid)) < 2:
        time.sleep(0.05)
    time.sleep(5.0)  # they may be at any point of their work
    os.kill(ranks[1], number)
    found = ended(process)
    assert found.code == 2
    assert line in found.err.splitlines()[-1]
    assert "Traceback" not in found.err
    assert all(goes(rank) for rank in ranks)


@pytest.mark.thorough
def test_ranks_end_with_a_command_that_is_killed(tmp_path: Path) -> None:
    path = save(tmp_path, "allgather", "plan.json", 2)
    process = spawn("run", "taccl", "--plan", str(path), "--repeats", "10000")
    while len(ranks := children(process.pid)) < 2:
        time.sleep(0.05)
    process.kill()
    ended(process)
    assert all(goes(rank) for rank in ranks)


@pytest.mark.parametrize("backend", ["nccl", "mpi"])
def test_a_backend_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: name == "gloo")
    path = save(tmp_path, "allgather", "plan.json", 2)
    code, _, err = run(capsys, "run", "taccl", "--plan", str(path), "--backend", backend)
    assert code == 2
    assert f"backend: must be one that this PyTorch has (gloo), got '{backend}'" in err


def test_nccl_is_on_the_gpu_of_the_local_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[int] = []
    monkeypatch.setattr(torch.distributed, "is_backend_available", lambda name: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert backend_device("nccl") == torch.device("cuda", 1)
    assert chosen == [1]
    assert backend_device("gloo") == torch.device("cpu")
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(InputError, match="a GPU for each rank, this machine has 2; got local rank 2"):
        backend_device("nccl")


@pytest.mark.thorough
def test_the_command_says_what_was_measured(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, "allreduce", "plan.json", 2)
    measured, page = tmp_path / "measured.json", tmp_path / "report.html"
    words = ("--repeats", "3", "--json", "-o", str(measured))
    code, out, _ = run(capsys, "run", "taccl", "--plan", str(path), *words)
    answer = json.loads(out)
    assert code == 0
    assert answer["wrong"] == 0
    assert len(answer["measured_times_s"]) == len(answer["library_times_s"]) == 3
    assert answer["ratio"] == pytest.approx(answer["library_s"] / answer["measured_s"])
    assert run(capsys, "report", str(path), "--measured", str(measured), "--no-pictures", "-o", str(page))[0] == 0
    assert f"{answer['ratio']:.2f} times as fast as the library" in page.read_text()
    assert answer["predicted_s"] == pytest.approx(read_plan(path).schedule.end_s.max())


def test_a_plan_that_is_broken_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = save(tmp_path, "allgather", "plan.json", 2)
    data = json.loads(path.read_text())
    data["schedule"]["end_s"] = data["schedule"]["start_s"]
    path.write_text(json.dumps(data))
    code, out, _ = run(capsys, "run", "taccl", "--plan", str(path))
    assert code == 5
    assert "not run: " in out


def slow(path: Path, factor: float = 100) -> Path:
    """The same plan, which takes its time."""
    data = json.loads(path.read_text())
    for name in ("start_s", "end_s"):
        data["schedule"][name] = [factor * time_s for time_s in data["schedule"][name]]
    path.write_text(json.dumps(data))
    return path


def test_a_plan_that_the_library_beats_is_not_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = slow(save(tmp_path, "allgather", "plan.json", 2))
    code, _, err = run(capsys, "run", "taccl", "--plan", str(path))
    assert code == 2
    assert "gloo's own algorithm (ring by rank number) is predicted to take" in err
    assert "run the plan all the same with --anyway" in err


@pytest.mark.thorough
def test_a_plan_that_the_library_beats_runs_anyway(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = slow(save(tmp_path, "allgather", "plan.json", 2))
    code, out, err = run(capsys, "run", "taccl", "--plan", str(path), "--repeats", "1", "--json", "--anyway")
    assert code == 0
    assert json.loads(out)["wrong"] == 0
    assert "is predicted to take" in err


def test_what_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(RunError, match="stopped"):
        run_collective(save(tmp_path, "allgather", "plan.json", 2), Task(2, 6000, 1, True, 0, 60.0), stop)


def test_a_plan_for_other_ranks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plan: is for 2 ranks, the process group has 1"):
        planned(save(tmp_path, "allgather", "plan.json", 2))
    assert not torch.distributed.is_initialized()
