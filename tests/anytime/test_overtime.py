"""A step that looks at no clock is cut short once time is up, and the best plan that was offered is the answer."""

from __future__ import annotations

import gc
import importlib
import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from pair_exchange import MadeUp, exchange

import gapless
from gapless import SolveOptions, Status, StopReason, question
from gapless.anytime.overtime import OutOfTimeError, Overtime
from gapless.options import Deadline
from gapless.solution import Solution
from gapless.system import Plan, System, register


@dataclass(frozen=True)
class Asked(MadeUp):
    """A problem whose system calls `before`, offers a plan of 3 s, and then never ends by itself."""

    before: Callable[[SolveOptions], object] = lambda options: None


def endless(problem: Asked, options: SolveOptions, parameters: object) -> Plan:
    assert options.on_plan is not None
    problem.before(options)
    options.on_plan(
        3.0, lambda: Plan(Solution(Status.FEASIBLE, StopReason.FINISHED, "test", "0", 0, 0.0), exchange(3.0))
    )
    while True:
        try:
            next(itertools.count())
        except Exception:  # no error: it goes on
            continue


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gapless.system._REGISTERED", {})
    register(System("test", "a test", question.Asked, endless))


def test_a_step_that_never_looks_at_the_clock_ends_with_the_plan_that_was_offered() -> None:
    result = gapless.solve(Asked(), SolveOptions(time_limit_s=0.01))
    assert result.valid
    assert result.solution.stop_reason is StopReason.TIME_LIMIT


def test_nothing_is_cut_short_before_there_is_a_plan() -> None:
    def until_time_is_up(options: SolveOptions) -> None:
        deadline = Deadline(options)
        while not deadline.over or deadline.elapsed_s < 1.0:
            threading.Event().wait(0.05)

    assert gapless.solve(Asked(until_time_is_up), SolveOptions(time_limit_s=0.01)).valid


def test_whoever_is_asked_to_stop_stops() -> None:
    result = gapless.solve(Asked(lambda options: options.stop.set()))
    assert result.valid
    assert result.solution.stop_reason is StopReason.INTERRUPTED


def test_a_block_ends_its_own_work_and_not_the_one_around_it() -> None:
    outer = Overtime(Deadline(SolveOptions()), lambda: True)
    with outer:
        with Overtime(Deadline(SolveOptions(time_limit_s=0.01)), lambda: True) as inner:
            while True:
                next(itertools.count())
        assert inner.has_struck
    assert not outer.has_struck


def test_nothing_is_raised_once_the_block_is_over() -> None:
    for _ in range(20):
        with Overtime(Deadline(SolveOptions(time_limit_s=1e-3)), lambda: True):
            threading.Event().wait(0.35)  # about when it strikes
    threading.Event().wait(0.1)


def test_nothing_is_raised_where_it_would_be_ignored() -> None:
    """Errors in what the garbage collector calls back are printed, and pytest takes them for failures."""

    def work(*_: object) -> None:
        for _ in range(1000):
            next(itertools.count())

    def called_back(phase: str, info: dict[str, int]) -> None:
        for _ in range(5):
            work()

    gc.callbacks.append(called_back)
    try:
        with Overtime(Deadline(SolveOptions(time_limit_s=0.01)), lambda: True) as block:
            while True:
                gc.collect(0)
                work()
    finally:
        gc.callbacks.remove(called_back)
    assert block.has_struck
    assert gc.isenabled()


def test_a_block_ends_in_a_module_that_is_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What called the block is no concern of it, whoever solves while a module is loaded."""
    name = Path(__file__).stem
    (tmp_path / "solves_at_import.py").write_text(f"import {name}\n{name}.cut_short()\n")
    monkeypatch.syspath_prepend(Path(__file__).parent)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("solves_at_import")


def test_errors_pass_through() -> None:
    with pytest.raises(KeyError), Overtime(Deadline(SolveOptions()), lambda: True):
        raise KeyError
    assert not issubclass(OutOfTimeError, Exception)


def test_under_a_profiler_the_process_goes_on_after_it_was_cut_short() -> None:
    """CPython 3.11 turned round in circles where an exception had been taken back."""
    code = (
        "import cProfile, test_overtime as t; t.register_here(); cProfile.Profile().runcall(t.cut_short); print('on')"
    )
    folders = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1] / "support"), *sys.path])
    environment = {**os.environ, "PYTHONPATH": folders}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=600)
    assert done.stdout == "on\n", done.stderr


def register_here() -> None:
    register(System("test", "a test", question.Asked, endless))


def cut_short() -> None:
    gapless.solve(Asked(), SolveOptions(time_limit_s=0.01))
