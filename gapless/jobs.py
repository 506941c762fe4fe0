"""Jobs: work that is done side by side, each piece in a spawned process of its own; most often a problem to solve.

A job and the caller share a pipe in two directions: one carries the answer, the other the request to stop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar

from gapless.errors import GaplessError, InputError, SolverError
from gapless.options import available_cores
from gapless.solvers.worker import kill_with_children

__all__ = ["Job", "Jobs", "in_order", "interrupts_held", "outcome_of", "shares"]

T = TypeVar("T")

_POLL_S = 0.1
"""How long to wait for news before looking whether the caller has said stop."""


@dataclass(frozen=True)
class Job(Generic[T]):
    """Work, its place among the other jobs, and what messages call it.

    `work(stop)` must be picklable; `stop` is set when the caller wants what there is by then.
    """

    place: int
    name: str
    work: Callable[[threading.Event], T]


def shares(threads: int, workers: int, jobs: int) -> tuple[int, int]:
    """Threads of each job and number of processes, with 0 resolved: together they take the cores there are.

    Raises `InputError` where they would take more.
    """
    cores = available_cores()
    workers = workers or min(max(jobs, 1), max(cores // max(threads, 1), 1))
    threads = threads or max(cores // workers, 1)
    if threads * workers > cores:
        raise InputError(f"threads x workers must be <= {cores}, the number of cores, got {threads} x {workers}")
    return threads, workers


class Jobs(Generic[T]):
    """The processes at work, until `close`."""

    def __init__(self) -> None:
        self._at_work: dict[Connection, tuple[Job[T], SpawnProcess]] = {}

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

    def start(self, job: Job[T]) -> None:
        """Start a process for a job."""
        context = multiprocessing.get_context("spawn")
        connection, job_end = context.Pipe()
        process = context.Process(target=_work, args=(job_end, job.name, job.work), name="gapless-job")
        with interrupts_held():
            process.start()
            self._at_work[connection] = (job, process)
        job_end.close()

    def finished(self) -> Iterator[tuple[int, T]]:
        """Wait a moment for answers, as (place, answer); raises what a job raised, `SolverError` for a crash."""
        for place, outcome in self.outcomes():
            if isinstance(outcome, GaplessError):
                raise outcome
            yield place, outcome

    def outcomes(self) -> Iterator[tuple[int, T | GaplessError]]:
        """As `finished`, with what a job raised in place of its answer."""
        for connection in wait(list(self._at_work), _POLL_S):
            assert isinstance(connection, Connection)
            job, process = self._at_work[connection]
            try:
                outcome: T | GaplessError = connection.recv()
            except (EOFError, ConnectionError):
                process.join()
                what = f"{job.name}: its process crashed with exit code {process.exitcode}"
                outcome = SolverError(f"{what}; the same command goes on from here")
            del self._at_work[connection]
            connection.close()
            process.join()
            yield job.place, outcome


def in_order(
    waiting: Iterable[tuple[int, Collection[int]]],
    workers: int,
    job_of: Callable[[int], Job[T]],
    stop: threading.Event,
) -> Iterator[tuple[int, T | GaplessError]]:
    """Do jobs side by side, each place once the places that it comes after are done; yields (place, outcome).

    `waiting`: the places in the order in which they are wanted, with those before them that count. Once `stop` is set,
    none is begun, and those at work end with what they have.
    """
    left = dict(waiting)
    undone = set(left)
    jobs: Jobs[T] = Jobs()
    with closing(jobs):
        while (left or jobs.running) and not stop.is_set():
            ready = [place for place, after in left.items() if undone.isdisjoint(after)]
            for place in ready[: workers - jobs.running]:
                del left[place]
                jobs.start(job_of(place))
            for place, outcome in jobs.outcomes():
                undone.discard(place)
                yield place, outcome
        jobs.stop()
        while jobs.running:
            yield from jobs.outcomes()


@contextmanager
def interrupts_held() -> Iterator[None]:
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


def _work(connection: Connection, name: str, work: Callable[[threading.Event], Any]) -> None:
    """Do the work, send the answer or what is wrong, and end; also end when the parent is gone."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own, so that a kill takes along what a solver started
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    stop = threading.Event()
    threading.Thread(target=_stop_when_asked, args=(connection, stop), daemon=True).start()
    connection.send(outcome_of(name, work, stop))


def outcome_of(name: str, work: Callable[[threading.Event], T], stop: threading.Event) -> T | GaplessError:
    """The answer, or what is wrong, so that no work takes others along."""
    try:
        return work(stop)
    except GaplessError as error:
        return error
    except Exception as error:
        return SolverError(f"{name}: failed with {type(error).__name__}: {error}")


def _stop_when_asked(connection: Connection, stop: threading.Event) -> None:
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
