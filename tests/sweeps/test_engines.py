"""Engines: every one leaves the same results, and is refused in one line where it can't work."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from stand_in_slurm import stand_in_slurm

from gapless.errors import InputError, SolverError
from gapless.sweeps import Local, read_instances, sweep
from gapless.sweeps.local import Engine
from gapless.sweeps.ray_cluster import RayCluster
from gapless.sweeps.remote import RemoteWork, stop_file
from gapless.sweeps.slurm import Slurm, _minutes
from gapless.sweeps.solving import Work

ENGINES = [
    pytest.param(Local(1, 2), id="local"),
    pytest.param(
        Slurm(options={"cluster": "local"}), id="slurm",
        marks=pytest.mark.extra("slurm"),
    ),
    pytest.param(
        RayCluster(workers=1), id="ray", marks=[
            pytest.mark.extra("ray"),
            pytest.mark.filterwarnings("ignore"),  # Ray has its own
        ],
    ),
]  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ENGINES)
def test_every_engine_leaves_the_same_results(small: Path, tmp_path: Path, engine: Engine) -> None:
    """Names of files are those of the folder that the sweep was started from."""
    rows = sweep(read_instances(small), tmp_path / "out", engine)
    assert [row.verdict for row in rows] == ["optimal", "feasible", "optimal", "infeasible"]
    assert [row.makespan_s is None for row in rows] == [False, False, False, True]
    for row in rows:
        assert (tmp_path / "out" / f"{row.hash}.json").exists()
    assert not list((tmp_path / "out").glob(".stop*"))
    known = sweep(read_instances(small), tmp_path / "out", Local())
    assert known == rows


@pytest.mark.thorough("slurm", "ray")
@pytest.mark.parametrize("engine", ENGINES)
def test_a_stop_before_the_start_begins_nothing(small: Path, tmp_path: Path, engine: Engine) -> None:
    stop = threading.Event()
    stop.set()
    rows = sweep(read_instances(small), tmp_path / "out", engine, stop=stop)
    assert all(row.status == "waiting" or row.is_interrupted or row.is_answer for row in rows)
    assert not list((tmp_path / "out").glob(".stop*"))


def test_a_remote_worker_hears_of_the_stop_by_a_file(small: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    instance = read_instances(small)[0]
    with stop_file(tmp_path / "out") as (path, ask_to_stop):
        work = RemoteWork(Work(instance, tmp_path / "out", 1), path, str(tmp_path))
        row: Any = work()
        assert row.verdict == "optimal"
        ask_to_stop()
        assert work() is None
    assert not path.exists()


def test_a_remote_worker_tells_what_went_wrong(small: Path, tmp_path: Path) -> None:
    instance = read_instances(small)[0]
    broken = RemoteWork(Work(instance, None, 1), tmp_path / "none", str(tmp_path))  # type: ignore[arg-type]
    assert str(broken()).startswith("cupcake method=pareto: failed with TypeError")
    (tmp_path / "profile.json").write_text("{}")
    work = RemoteWork(Work(instance, tmp_path, 1), tmp_path / "none", str(tmp_path))
    assert isinstance(work(), InputError)


def test_jobs_have_time_for_the_longest_limit(small: Path) -> None:
    from gapless.sweeps.local import Task

    instance = read_instances(small)[0]
    assert _minutes([Task(0, instance, 60.0), Task(1, instance, 90.0)]) == 2 + 15
    assert _minutes([Task(0, instance, 60.0), Task(1, instance, None)]) == 24 * 60


@pytest.mark.extra("slurm")
def test_slurm_is_refused_without_slurm_and_for_unknown_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match="there is no sbatch on the path"):
        Slurm().check()
    with pytest.raises(InputError, match="cluster: must be slurm or local, got 'lokal'"):
        Slurm(options={"cluster": "lokal"}).check()
    with pytest.raises(InputError, match=r"submitit refuses {'slurm_partion': 'x'}: Unknown argument 'partion'"):
        Slurm(options={"cluster": "local", "slurm_partion": "x"}).check()
    with pytest.raises(InputError, match=r"submitit refuses {'timeout_min': 'x'}"):
        Slurm(options={"cluster": "local", "timeout_min": "x"}).check()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a stand-in for Slurm, on the path."""
    if shutil.which("bash") is None:
        pytest.skip("needs bash")
    stand_in_slurm(tmp_path / "slurm")
    monkeypatch.setenv("PATH", f"{tmp_path / 'slurm'}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr("gapless.sweeps.slurm._POLL_S", {"slurm": 0.2})
    return tmp_path / "slurm"


@pytest.mark.extra("slurm")
def test_slurm_gets_an_array_of_jobs_with_what_was_asked_for(small: Path, tmp_path: Path, slurm: Path) -> None:
    engine = Slurm(threads=2, workers=3, options={"slurm_partition": "cpu", "timeout_min": 7})
    rows = sweep(read_instances(small), tmp_path / "out", engine)
    assert [row.verdict for row in rows] == ["optimal", "feasible", "optimal", "infeasible"]
    asked = (slurm / "asked").read_text().split("#SBATCH ")
    for option in ("--array=0-3%3", "--cpus-per-task=2", "--partition=cpu", "--time=7"):
        assert f"{option}\n" in asked


@pytest.mark.extra("slurm")
def test_jobs_that_slurm_does_not_take_are_told_in_one_line(
    small: Path, tmp_path: Path, slurm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (slurm / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: x' >&2\nexit 1\n")
    with pytest.raises(SolverError, match="the jobs can't be submitted: sbatch: error: invalid partition specified: x"):
        sweep(read_instances(small), tmp_path / "out", Slurm())
    assert capfd.readouterr() == ("", "")


@pytest.mark.extra("slurm")
def test_a_stop_cancels_the_jobs_that_wait_and_no_others(small: Path, tmp_path: Path, slurm: Path) -> None:
    stop = threading.Event()
    rows = sweep(read_instances(small), tmp_path / "out", Slurm(), lambda progress: stop.set(), stop)
    assert (slurm / "cancelled").read_text().splitlines()[0] == "--state=PENDING 7"
    assert rows[0].verdict == "optimal"
    assert rows[3].status == "waiting"


@pytest.mark.extra("ray")
def test_ray_is_refused_for_too_many_threads_and_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(InputError, match="threads must be <= "):
        RayCluster(threads=10_000).check()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:x", "127.0.0.1:99999999"):
        with pytest.raises(InputError, match=f"--engine ray: nobody answers at address '{address}'"):
            RayCluster(options={"address": address}).check()


@pytest.mark.parametrize("engine", [Slurm(options={"cluster": "local"}), RayCluster()], ids=["slurm", "ray"])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"which is not installed; pip install '\.\[(slurm|ray)\]'"):
        engine.check()
