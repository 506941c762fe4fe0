"""Time limits, starts, progress, interrupts and seeds: what holds for every backend that searches."""

from __future__ import annotations

import _thread
import gc
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from cbc_here import needs_cbc, needs_cbc_2
from numpy.typing import NDArray

from gapless.model import Model
from gapless.options import Progress, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.interruptible import run_interruptibly
from gapless.solvers.registry import load_backend, solve_model

SEARCHERS = ["highs", "cpsat", pytest.param("pulp", marks=needs_cbc_2)]


@pytest.fixture(params=SEARCHERS)
def solver(request: pytest.FixtureRequest) -> str:
    """A backend that searches and can be interrupted, its library loaded."""
    load_backend(request.param)
    return str(request.param)


def _assert_honest(model: Model, solution: Solution) -> None:
    """Values and bound fit together and hold."""
    if solution.values is None:
        assert solution.status is Status.NO_SOLUTION
        return
    arrays = model.arrays()
    assert arrays.violation(solution.values) <= 1e-6
    assert solution.objective == pytest.approx(arrays.objective(solution.values))
    assert solution.objective is not None
    if solution.bound is not None:
        assert solution.bound <= solution.objective + 1e-9


def _once_there_is_an_incumbent(act: Callable[[], None]) -> Callable[[Progress], None]:
    """What hears of progress, and acts at the first incumbent."""
    acts = [act]

    def heard(progress: Progress) -> None:
        if progress.incumbent is not None and acts:
            acts.pop()()

    return heard


@pytest.mark.thorough(but=("highs",))
def test_a_time_limit_keeps_the_incumbent(hard: Model, hard_start: NDArray[np.float64], solver: str) -> None:
    solution = solve_model(hard, SolveOptions(time_limit_s=0.5, threads=1), solver, start=hard_start)
    _assert_honest(hard, solution)
    assert solution.status is Status.FEASIBLE
    assert solution.stop_reason is StopReason.TIME_LIMIT


def test_a_start_is_never_lost(hard: Model, hard_start: NDArray[np.float64], solver: str) -> None:
    options = SolveOptions(time_limit_s=0.001, threads=1)
    solution = solve_model(hard, options, solver, start=hard_start)
    _assert_honest(hard, solution)
    assert solution.objective is not None
    assert solution.objective <= hard.arrays().objective(hard_start)


def test_a_start_that_is_not_feasible_does_no_harm(hard: Model, solver: str) -> None:
    solution = solve_model(hard, SolveOptions(time_limit_s=0.3, threads=1), solver, start=np.zeros(hard.column_count))
    _assert_honest(hard, solution)


def test_highs_completes_a_partial_start(hard: Model, hard_start: NDArray[np.float64]) -> None:
    partial = hard_start.copy()
    partial[40:] = np.nan
    solution = solve_model(hard, SolveOptions(time_limit_s=0.3, threads=1), start=partial)
    _assert_honest(hard, solution)
    assert solution.status is Status.FEASIBLE


@pytest.mark.thorough(but=("highs",))
def test_progress_only_gets_better(hard: Model, solver: str) -> None:
    reports: list[Progress] = []

    def heard(progress: Progress) -> None:
        reports.append(progress)
        if len({report.incumbent for report in reports} - {None}) > 1:
            options.stop.set()

    options = SolveOptions(threads=1, on_progress=heard)
    solution = solve_model(hard, options, solver)
    incumbents = [report.incumbent for report in reports if report.incumbent is not None]
    assert incumbents
    assert incumbents == sorted(incumbents, reverse=True)
    assert [report.wall_s for report in reports] == sorted(report.wall_s for report in reports)
    assert all(report.bound <= report.incumbent for report in reports if None not in (report.bound, report.incumbent))
    assert solution.objective is not None
    assert solution.objective <= incumbents[0]


@pytest.mark.thorough(but=("highs",))
def test_an_error_in_the_progress_callback_ends_the_solve_and_comes_out(hard: Model, solver: str) -> None:
    def fail(progress: Progress) -> None:
        raise ValueError("no more paper")

    with pytest.raises(ValueError, match="no more paper"):
        solve_model(hard, SolveOptions(time_limit_s=60, threads=1, on_progress=fail), solver)


@pytest.mark.thorough(but=("highs",))
def test_setting_stop_returns_the_incumbent(hard: Model, solver: str) -> None:
    options = SolveOptions(threads=1, on_progress=_once_there_is_an_incumbent(lambda: options.stop.set()))
    solution = solve_model(hard, options, solver)
    _assert_honest(hard, solution)
    assert solution.status is Status.FEASIBLE
    assert solution.stop_reason is StopReason.INTERRUPTED


@pytest.mark.thorough(but=("highs-interrupt_main",))
@pytest.mark.parametrize("deliver", ["interrupt_main", "raise_signal"])
def test_ctrl_c_returns_the_incumbent_and_stops_what_follows(hard: Model, solver: str, deliver: str) -> None:
    def press() -> None:
        if deliver == "interrupt_main":
            _thread.interrupt_main()
        else:
            signal.raise_signal(signal.SIGINT)

    timer = threading.Timer(0.1, press)
    options = SolveOptions(threads=1, on_progress=_once_there_is_an_incumbent(timer.start))
    solution = solve_model(hard, options, solver)
    timer.join()
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert solution.status is Status.FEASIBLE
    assert options.stop.is_set()
    assert solve_model(hard, options, solver).status is Status.NO_SOLUTION


def test_stop_ends_a_linear_program() -> None:
    draw = np.random.default_rng(0)
    model = Model("dense_lp")
    x = model.continuous("x", 1500, upper=1.0)
    model.add("mix", (draw.uniform(0, 1, (1200, 1500)), np.broadcast_to(x, (1200, 1500))), upper=300)
    model.maximize((draw.uniform(0.5, 1, 1500), x))
    options = SolveOptions(threads=1)
    timer = threading.Timer(0.4, options.stop.set)
    timer.start()
    solution = solve_model(model, options)
    timer.join()
    assert solution.stop_reason in (StopReason.INTERRUPTED, StopReason.FINISHED)
    if solution.values is not None:
        assert model.arrays().violation(solution.values) <= 1e-6


def test_the_same_seed_on_one_thread_gives_the_same_values(solver: str) -> None:
    draw = np.random.default_rng(5)
    model = Model("cover")
    take = model.binaries("take", 40)
    model.add("cover", ((draw.random((30, 40)) < 0.15).astype(float), np.broadcast_to(take, (30, 40))), lower=1)
    model.minimize((1, take))
    options = SolveOptions(threads=1, seed=7)
    first, second = solve_model(model, options, solver), solve_model(model, options, solver)
    assert first.status is second.status
    assert first.values is not None
    assert second.values is not None
    assert first.values.tolist() == second.values.tolist()
    assert first.seed == 7


@pytest.mark.thorough("cpsat")
@pytest.mark.parametrize("backend", ["highs", "cpsat"])
def test_counted_work_ends_at_the_same_point_with_any_number_of_threads(hard: Model, backend: str) -> None:
    found = [solve_model(hard, SolveOptions(step_limit=200, threads=threads), backend) for threads in (1, 1, 2)]
    assert {solution.stop_reason for solution in found} == {StopReason.WORK_LIMIT}
    assert len({solution.steps for solution in found}) == 1
    assert found[0].values is not None
    assert found[1].values is not None
    assert (found[0].values == found[1].values).all()
    assert found[0].bound == found[1].bound
    if backend == "highs":  # the number of CP-SAT's workers says which searches there are
        assert found[2].values is not None
        assert (found[0].values == found[2].values).all()


def test_highs_changes_its_number_of_threads_within_a_process(hard: Model) -> None:
    for threads in (1, 2, 1):
        solution = solve_model(hard, SolveOptions(threads=threads, step_limit=200))
        assert solution.status is Status.FEASIBLE


def test_highs_solves_in_two_threads_at_once(hard: Model) -> None:
    found: list[Solution] = []

    def solve(threads: int) -> None:
        found.append(solve_model(hard, SolveOptions(threads=threads, step_limit=200)))

    solvers = [threading.Thread(target=solve, args=(threads,)) for threads in (1, 2)]
    for thread in solvers:
        thread.start()
    for thread in solvers:
        thread.join()
    assert [solution.status for solution in found] == [Status.FEASIBLE, Status.FEASIBLE]


def test_nothing_is_printed(hard: Model, solver: str, capfd: pytest.CaptureFixture[str]) -> None:
    solve_model(hard, SolveOptions(time_limit_s=0.3, threads=1), solver)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


def test_cbc_leaves_no_files_behind(hard: Model, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    import tempfile
    from pathlib import Path

    folder = Path(str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.chdir(folder)
    for solver in ("pulp", "pulp:HiGHS"):
        solve_model(hard, SolveOptions(time_limit_s=0.3, threads=1), solver)
    assert [*folder.iterdir()] == []


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="looks at processes")
@pytest.mark.parametrize("solver", [pytest.param("pulp", marks=needs_cbc), "pulp:HiGHS"])
def test_what_pulp_starts_ends_with_its_solve(hard: Model, solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also a CBC that hears no interrupt: `_KILL_AFTER_S` after it, or with whatever ends the solve."""
    options, before = SolveOptions(threads=1), children()

    def stop_when_started() -> None:
        while children() == before:
            time.sleep(0.01)
        options.stop.set()

    monkeypatch.setattr("gapless.solvers.cbc.signal.SIGINT", signal.SIGCONT)  # which it hears, and goes on
    monkeypatch.setattr("gapless.solvers.cbc._KILL_AFTER_S", 0.2)
    watcher = threading.Thread(target=stop_when_started)
    watcher.start()
    solution = solve_model(hard, options, solver)
    watcher.join()
    assert solution.stop_reason is StopReason.INTERRUPTED
    assert children() == before


def children() -> set[str]:
    """The processes that this one has started, but for the one that looks."""
    command = ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return {line for line in lines if not line.endswith("ps")}


def test_a_second_ctrl_c_leaves_a_solver_that_does_not_listen() -> None:
    stop, finish, cancels = threading.Event(), threading.Event(), []
    timers = [threading.Timer(delay_s, _thread.interrupt_main) for delay_s in (0.2, 0.5)]
    for timer in timers:
        timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_interruptibly(finish.wait, lambda: cancels.append(1), stop)
    for timer in timers:
        timer.join()
    finish.set()
    assert stop.is_set()
    assert cancels


def test_what_the_work_raises_comes_out() -> None:
    with pytest.raises(ZeroDivisionError):
        run_interruptibly(lambda: 1 // 0, lambda: None, threading.Event())


@pytest.mark.parametrize("presolve", [True, False])
def test_highs_keeps_no_model_after_a_solve(presolve: bool) -> None:
    model = Model("one row")
    model.add("most", (1.0, model.continuous("x", 1, upper=2.0)), upper=1.0)
    before = _highs_runs()
    solve_model(model, SolveOptions(presolve=presolve))
    assert _highs_runs() == before


def _highs_runs() -> int:
    gc.collect()
    return sum(type(each).__name__ == "_Run" for each in gc.get_objects())


def test_prices_show_that_a_linear_program_has_no_solution() -> None:
    """x + y <= 1 and -x - y <= -3 add up to 0 <= -2."""
    model = Model("impossible")
    x = model.continuous("x", 2, upper=2.0)
    model.add("rows", (np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([x, x])), upper=np.array([1.0, -3.0]))
    solution = solve_model(model, SolveOptions(presolve=False))
    assert solution.status is Status.INFEASIBLE
    assert solution.row_prices is not None
    assert solution.row_prices[0] == solution.row_prices[1] != 0
