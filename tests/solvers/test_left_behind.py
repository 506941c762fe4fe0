"""A solver that hears neither the clock nor Ctrl-C is left behind, with what it has told of so far."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solution import Status, StopReason
from gapless.solvers import highs, interruptible
from gapless.solvers.backend import Task
from gapless.solvers.interruptible import run_interruptibly
from gapless.solvers.registry import solve_model


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[object]]:
    """HiGHS as it is in a long presolve: at work, without a look at anything, until the test is over.

    What is put into the list is its best point when it begins.
    """
    over, told = threading.Event(), []

    def go(self: highs._Run) -> None:
        if told:
            self._values, self._bound = told[0], 1.0
        over.wait()

    monkeypatch.setattr(interruptible, "PATIENCE_S", 0.1)
    monkeypatch.setattr(highs._Run, "go", go)  # noqa: SLF001
    yield told
    over.set()


def test_after_its_time_limit_the_start_is_what_there_is(
    deaf: list[object], hard: Model, hard_start: NDArray[np.float64]
) -> None:
    solution = solve_model(hard, SolveOptions(time_limit_s=0.1), start=hard_start)
    assert solution.status is Status.FEASIBLE
    assert solution.stop_reason is StopReason.TIME_LIMIT
    assert solution.objective == pytest.approx(hard.arrays().objective(hard_start))


def test_without_a_start_there_is_no_solution(deaf: list[object], hard: Model) -> None:
    solution = solve_model(hard, SolveOptions(time_limit_s=0.1))
    assert solution.status is Status.NO_SOLUTION
    assert solution.stop_reason is StopReason.TIME_LIMIT


def test_once_stopped_its_best_point_and_bound_are_kept(
    deaf: list[object], hard: Model, hard_start: NDArray[np.float64]
) -> None:
    deaf.append(hard_start)
    options = SolveOptions()
    timer = threading.Timer(0.2, options.stop.set)
    timer.start()
    solution = solve_model(hard, options)
    timer.join()
    assert solution.status is Status.FEASIBLE
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert solution.values is not None
    assert solution.values.tolist() == hard_start.tolist()
    assert solution.bound == 1.0


def test_work_is_waited_for_as_long_as_there_is_time() -> None:
    assert run_interruptibly(lambda: 7, lambda: None, threading.Event(), limit_s=60) == 7


def test_what_highs_tells_of_while_at_work_is_a_point_and_a_bound_of_the_model(
    hard: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[highs._Run] = []
    make = highs._Run  # noqa: SLF001

    def kept(task: Task) -> highs._Run:
        runs.append(make(task))
        return runs[-1]

    monkeypatch.setattr(highs, "_Run", kept)
    solution = solve_model(hard, SolveOptions(step_limit=200, threads=1))
    values, bound = runs[0].reported
    arrays = hard.arrays()
    assert arrays.violation(values) <= 1e-6
    assert arrays.objective(values) == pytest.approx(solution.objective)
    assert bound is not None
    assert bound <= arrays.objective(values) + 1e-9


_BEGUN_AT_THE_END = """
import atexit, threading
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.solvers.interruptible import leave
from gapless.solvers.registry import load_backend, solve_model

load_backend("highs")
model = Model("subset")
picked = model.binaries("picked", 60)
model.add_sparse("half", 1, [0] * 60, picked, [7.0 + k * k % 61 for k in range(60)], upper=911.5)
model.minimize(([-7.01 - k * k % 61 for k in range(60)], picked))
is_ending, is_solving = threading.Event(), threading.Event()
rubbish = [[number] for number in range(1_000_000)]  # which an end has to clear away


def work():
    is_ending.wait()
    while True:
        solve_model(model, SolveOptions(threads=1, on_step=lambda steps, bound: is_solving.set()))


@atexit.register
def ending():
    is_ending.set()
    is_solving.wait()


threading.Thread(target=work, daemon=True).start()
print("all is said")
leave(3)
"""


def test_a_process_that_leaves_work_behind_ends_with_its_code_whatever_the_work_begins_meanwhile() -> None:
    ended = subprocess.run([sys.executable, "-c", _BEGUN_AT_THE_END], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "all is said\n", "")
