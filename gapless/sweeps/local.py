"""The engine that is there without more: processes on this machine, threads x workers at most its cores."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gapless.errors import GaplessError
from gapless.jobs import Job, in_order, shares
from gapless.sweeps.instances import Instance
from gapless.sweeps.results import Row
from gapless.sweeps.solving import Work

__all__ = ["Engine", "Local", "Outcome", "Task"]

Outcome = Row | GaplessError | None
"""What came of a task: its row, what went wrong, or None where it was not begun before the stop."""


@dataclass(frozen=True)
class Task:
    """An instance to solve, its place among the others, and its time limit."""

    place: int
    instance: Instance
    time_limit_s: float | None


class Engine(Protocol):
    """Where instances are solved."""

    def check(self) -> None:
        """Raise `InputError` if it can't work with its options."""

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """Solve the tasks; yields (place, outcome) as they end. Once `stop` is set, none is begun, and those at work
        end with the best plan so far.
        """


@dataclass(frozen=True)
class Local:
    """Processes side by side: `threads` of each and `workers`, 0 for an even share of the cores."""

    threads: int = 0
    workers: int = 0

    def check(self) -> None:
        """Raise `InputError` for more threads x workers than cores."""
        shares(self.threads, self.workers, 1)

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """See `Engine`."""
        threads, workers = shares(self.threads, self.workers, len(tasks))
        by_place = {task.place: task for task in tasks}

        def job_of(place: int) -> Job[Row]:
            instance = by_place[place].instance
            return Job(place, instance.title, Work(instance, folder, threads))

        yield from in_order([(place, ()) for place in by_place], workers, job_of, stop)
