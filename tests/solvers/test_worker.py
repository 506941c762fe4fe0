"""A solve in a process of its own gives the same answer, and what goes wrong there stays there."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.errors import InputError, SolverError
from gapless.model import Model
from gapless.options import Progress, SolveOptions
from gapless.solution import Status, StopReason
from gapless.solvers.registry import BACKENDS, Backend, solve_model
from gapless.solvers.worker import solve_in_process

FAKES = {
    "crash": "import os\ndef solve(task):\n    os._exit(7)\n",
    "sleep": "import time\ndef solve(task):\n    time.sleep(600)\n",
    "raise": "def solve(task):\n    raise OSError('disk on fire')\n",
}


@pytest.fixture
def fake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A backend that misbehaves in the way of the parameter."""
    name = str(request.param)
    (tmp_path / f"fake_{name}.py").write_text(FAKES[name])
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(BACKENDS, name, Backend(f"fake_{name}", "highspy", "highspy", "highspy", ("milp",)))
    return name


def test_the_answer_is_that_of_the_same_process(hard: Model, hard_start: NDArray[np.float64]) -> None:
    model = Model("named")
    take = model.binaries("take", 3, labels=lambda k: f"item{k}")
    model.add("capacity", (np.array([3.0, 4.0, 5.0]), take), upper=8.0, labels=["sack"])
    model.maximize((np.array([4.0, 5.0, 6.0]), take))
    there, here = solve_in_process(model, SolveOptions(threads=1)), solve_model(model, SolveOptions(threads=1))
    assert there.status is here.status is Status.OPTIMAL
    assert there.values is not None
    assert here.values is not None
    assert there.values.tolist() == here.values.tolist()
    limited = solve_in_process(hard, SolveOptions(time_limit_s=0.01, threads=1), start=hard_start)
    assert limited.status is Status.FEASIBLE
    assert limited.stop_reason is StopReason.TIME_LIMIT


def test_progress_and_stop_pass_through(hard: Model) -> None:
    reports: list[Progress] = []
    options = SolveOptions(time_limit_s=120, threads=1)

    def stop_at_incumbent(progress: Progress) -> None:
        reports.append(progress)
        if progress.incumbent is not None:
            options.stop.set()

    listening = SolveOptions(time_limit_s=120, threads=1, on_progress=stop_at_incumbent, stop=options.stop)
    solution = solve_in_process(hard, listening, "highs")
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert solution.status is Status.FEASIBLE
    assert reports


@pytest.mark.parametrize("fake", ["crash"], indirect=True)
def test_a_crash_is_a_solver_error_with_the_exit_code(fake: str, hard: Model) -> None:
    with pytest.raises(SolverError, match="solver 'crash': its process crashed with exit code 7"):
        solve_in_process(hard, SolveOptions(), fake)


@pytest.mark.parametrize("fake", ["sleep"], indirect=True)
def test_a_solver_that_ignores_its_time_is_killed(fake: str, hard: Model) -> None:
    solution = solve_in_process(hard, SolveOptions(), fake, kill_after_s=1.5)
    assert solution.status is Status.NO_SOLUTION
    assert solution.stop_reason is StopReason.TIME_LIMIT
    assert solution.solver == "sleep"


@pytest.mark.parametrize("fake", ["sleep"], indirect=True)
def test_a_solver_killed_after_a_stop_counts_as_interrupted(fake: str, hard: Model) -> None:
    options = SolveOptions()
    timer = threading.Timer(0.8, options.stop.set)
    timer.start()
    solution = solve_in_process(hard, options, fake, kill_after_s=2)
    timer.join()
    assert solution.stop_reason is StopReason.INTERRUPTED


@pytest.mark.parametrize("fake", ["raise"], indirect=True)
def test_an_error_of_the_library_is_one_line(fake: str, hard: Model) -> None:
    with pytest.raises(SolverError, match=r"^solver 'raise': failed with OSError: disk on fire$"):
        solve_in_process(hard, SolveOptions(), fake)


def test_input_errors_keep_their_kind() -> None:
    model = Model("real")
    model.continuous("x", upper=1.0)
    with pytest.raises(InputError, match="variable 'x': must be an integer for cpsat"):
        solve_in_process(model, solver="cpsat")
    with pytest.raises(InputError, match="did you mean 'cpsat'"):
        solve_in_process(model, solver="cp-sat")
    with pytest.raises(InputError, match="kill_after_s must be a number > 0 or None, got 0"):
        solve_in_process(model, kill_after_s=0)
