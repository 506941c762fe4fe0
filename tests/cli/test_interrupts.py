"""Ctrl-C before, in and after the search, as a terminal sends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from calls import run
from spawned import spawn

from gapless.cli import commands
from gapless.result import Result

pytestmark = pytest.mark.skipif(os.name != "posix", reason="sends SIGINT to a process group")

FUSE = ("solve", "cupcake", "--profile", "resnet101")
DEAF = ("solve", "cupcake", "--profile", "gpt2", "--method", "milp")
"""HiGHS is in presolve for most of a minute, where it hears nothing."""


def begun(*arguments: str) -> subprocess.Popen[str]:
    """The command once it has told of its first plan."""
    process = spawn(*arguments)
    assert process.stderr is not None
    assert "baselines" in process.stderr.readline()
    return process


def test_a_solver_that_does_not_listen_is_left_behind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    process = begun(*DEAF, "-o", str(plan))
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "stopping with the best plan so far" in err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == [plan]
    assert run(capsys, "check", str(plan))[0] == 0
    assert json.loads(plan.read_text())["claim"]["stop_reason"] == "interrupted"


def test_a_solver_that_does_not_listen_keeps_nobody_from_leaving(tmp_path: Path) -> None:
    process = begun(*DEAF, "-o", str(tmp_path / "plan.json"))
    os.killpg(process.pid, signal.SIGINT)
    assert process.stderr is not None
    assert "Ctrl-C again" in process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_a_time_limit_holds_for_a_solver_that_does_not_listen(tmp_path: Path) -> None:
    process = begun(*DEAF, "--time-limit", "1", "--json", "-o", str(tmp_path / "plan.json"))
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads(out)["stop_reason"] == "time_limit"


def test_ctrl_c_while_the_plan_is_written_waits_for_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Result.save

    def interrupted(result: Result, path: str) -> None:
        signal.raise_signal(signal.SIGINT)
        write(result, path)

    monkeypatch.setattr(Result, "save", interrupted)
    code, _, err = run(capsys, *FUSE, "-o", str(tmp_path / "plan.json"))
    assert code == 0
    assert "writing what was found; Ctrl-C again leaves at once" in err
    assert run(capsys, "check", str(tmp_path / "plan.json"))[0] == 0


def test_ctrl_c_while_the_command_is_still_being_loaded_is_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "build_parser", interrupted)
    assert run(capsys, *FUSE) == (130, "", "gapless: interrupted; no half-written file is left\n")


def test_an_interrupt_that_a_library_takes_for_its_own_failure_is_a_line_and_other_failures_are_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(reason: BaseException) -> None:
        try:
            raise reason
        except BaseException as error:
            raise ImportError("initialization failed") from error

    monkeypatch.setattr(commands, "build_parser", lambda: fails(KeyboardInterrupt()))
    assert run(capsys, *FUSE)[0] == 130
    monkeypatch.setattr(commands, "build_parser", lambda: fails(OSError()))
    with pytest.raises(ImportError, match="initialization failed"):
        run(capsys, *FUSE)
