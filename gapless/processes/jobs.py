"""Jobs: work that is done side by side, each piece in a worker of its own; most often a problem to solve."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Generic, TypeVar

from gapless.errors import GaplessError, InputError, SolverError
from gapless.options import available_cores
from gapless.processes.workers import Worker, signals_held

__all__ = ["Job", "Jobs", "in_order", "shares"]

T = TypeVar("T")

_POLL_S = 0.1
"""How long to wait for news before looking whether the caller has said stop."""

STOP_S = 120.0
"""How long a job that was asked to stop may take to hand over what it has, before it is killed."""


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
    """The workers at their jobs, until `close`."""

    def __init__(self) -> None:
        self._at_work: dict[Worker[T], Job[T]] = {}
        self._news: queue.SimpleQueue[Worker[T]] = queue.SimpleQueue()
        self._end_s = math.inf

    def close(self) -> None:
        """End the workers that are still at work."""
        for worker in self._at_work:
            worker.kill()
        for worker in self._at_work:
            worker.join()
        self._at_work.clear()

    def stop(self) -> None:
        """Ask the workers to end with the best plan so far, which `finished` then brings."""
        self._end_s = time.monotonic() + STOP_S
        for worker in self._at_work:
            worker.stop()

    @property
    def running(self) -> int:
        """How many are at work."""
        return len(self._at_work)

    def start(self, job: Job[T]) -> None:
        """Start a worker for a job."""
        with signals_held():
            self._at_work[Worker(job.work, job.name, self._news)] = job

    def finished(self) -> Iterator[tuple[int, T]]:
        """Wait a moment for answers, as (place, answer); raises what a job raised, `SolverError` for a crash."""
        for place, outcome in self.outcomes():
            if isinstance(outcome, GaplessError):
                raise outcome
            yield place, outcome

    def outcomes(self) -> Iterator[tuple[int, T | GaplessError]]:
        """As `finished`, with what a job raised in place of its answer; one that doesn't stop is killed in the end."""
        with suppress(queue.Empty):
            worker = self._news.get(timeout=_POLL_S)
            while True:
                if worker in self._at_work:
                    yield self._at_work.pop(worker).place, worker.outcome
                worker = self._news.get_nowait()
        if time.monotonic() > self._end_s:
            late = list(self._at_work.values())
            self.close()
            for job in late:
                yield job.place, SolverError(f"{job.name}: did not stop within {STOP_S:g} s, and was killed")


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
