"""Jobs: problems that are solved side by side, each in a spawned process of its own.

A job and the caller share a pipe with two ways: one brings the answer, the other the word to stop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from planwright.errors import PlanwrightError, SolverError
from planwright.io.plan import SavedPlan, claim_data
from planwright.options import SolveOptions
from planwright.recipe import Problem, solve
from planwright.solution import Status, StopReason
from planwright.solvers.worker import kill_with_children

__all__ = ["Answer", "Job", "Jobs"]

_POLL_S = 0.1
"""How long to wait for news before looking whether the caller has said stop."""


@dataclass(frozen=True)
class Job:
    """A problem to solve, its place among the others, and what messages call it.

    `time_limit_s`: its own limit, None for that of all.
    """

    place: int
    name: str
    problem: Problem
    time_limit_s: float | None = None


@dataclass(frozen=True)
class Answer:
    """What came of a job: `plan` is None unless one was found and replayed clean."""

    status: Status
    stop_reason: StopReason
    solve_s: float
    plan: SavedPlan | None
    violations: int
    details: Mapping[str, Any]


class Jobs:
    """The processes at work, until `close`."""

    def __init__(self, options: SolveOptions) -> None:
        self._limits = {key: getattr(options, key) for key in ("time_limit_s", "gap", "threads", "seed", "solver")}
        self._at_work: dict[Connection, tuple[Job, SpawnProcess]] = {}

    def close(self) -> None:
        """End the processes that are still at work."""
        for connection, (_, process) in self._at_work.items():
            kill_with_children(process)
            connection.close()
        self._at_work.clear()

    def stop(self) -> None:
        """Ask the processes at work to end with the best plan so far, which `finished` then brings."""
        for connection in self._at_work:
            with suppress(OSError):  # one that has just ended has left its answer, or its crash, for `finished`
                connection.send(None)

    @property
    def running(self) -> int:
        """How many processes are at work."""
        return len(self._at_work)

    def start(self, job: Job) -> None:
        """Start a process for a job."""
        context = multiprocessing.get_context("spawn")
        connection, its_end = context.Pipe()
        limits = self._limits if job.time_limit_s is None else {**self._limits, "time_limit_s": job.time_limit_s}
        process = context.Process(target=_work, args=(its_end, job.name, job.problem, limits), name="planwright-job")
        with _interrupts_held():
            process.start()
            self._at_work[connection] = (job, process)
        its_end.close()

    def finished(self) -> Iterator[tuple[int, Answer]]:
        """Wait a moment for answers, as (place, answer); raises what a job raised, `SolverError` for a crash."""
        for connection in wait(list(self._at_work), _POLL_S):
            assert isinstance(connection, Connection)
            job, process = self._at_work[connection]
            try:
                message: Answer | PlanwrightError = connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                what = f"{job.name}: its process crashed with exit code {process.exitcode}"
                raise SolverError(f"{what}; the same command goes on from here") from None
            if isinstance(message, PlanwrightError):
                raise message
            del self._at_work[connection]
            connection.close()
            process.join()
            yield job.place, message


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C reaches this process only when the block is over, and what is started in it never."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # it is started with the first process otherwise, and lets interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- in the process ----------------------------------------------------------------------------------------------------


def _work(connection: Connection, name: str, problem: Problem, limits: dict[str, Any]) -> None:
    """Solve, send the answer or what is wrong, and end; also end when the parent is gone."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, so that a kill takes along what a solver started
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    options = SolveOptions(**limits)
    threading.Thread(target=_stop_when_told, args=(connection, options.stop), daemon=True).start()
    try:
        message: Answer | PlanwrightError = _answer(problem, options)
    except PlanwrightError as error:
        message = error
    except Exception as error:
        message = SolverError(f"{name}: failed with {type(error).__name__}: {error}")
    connection.send(message)


def _answer(problem: Problem, options: SolveOptions) -> Answer:
    result = solve(problem, options)
    solution, plan = result.solution, None
    if result.schedule is not None and result.valid:
        claim = claim_data(solution)
        plan = SavedPlan(problem.system, problem.description, claim, result.details, result.schedule)
    violations = 0 if result.report is None else result.report.violation_count
    return Answer(solution.status, solution.stop_reason, solution.wall_s, plan, violations, result.details)


def _stop_when_told(connection: Connection, stop: threading.Event) -> None:
    with suppress(EOFError, OSError):
        connection.recv()
        stop.set()


def _leave_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        if hasattr(os, "killpg"):
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)
