"""The engine that is there without more: processes on this machine, threads x workers at most its cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gapless.errors import GaplessError
from gapless.processes.jobs import Job, in_order, shares
from gapless.sweeps.question import Question
from gapless.sweeps.results import Row
from gapless.sweeps.solving import Work

__all__ = ["Engine", "Local", "Outcome", "Task"]

Outcome = Row | GaplessError | None
"""What came of a task: its row, what went wrong, or None where it was not begun before the stop."""


@dataclass(frozen=True)
class Task:
    """A question to solve, its place among the others, and its time limit."""

    place: int
    question: Question
    time_limit_s: float | None


class Engine(Protocol):
    """Where questions are solved, and in which order."""

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
        questions = {task.place: task.question for task in tasks}
        return self.in_order([(place, ()) for place in questions], questions.__getitem__, folder, stop)

    def in_order(
        self,
        waiting: Sequence[tuple[int, tuple[int, ...]]],
        question_of: Callable[[int], Question],
        folder: Path,
        stop: threading.Event,
    ) -> Iterator[tuple[int, Outcome]]:
        """Solve places in this order, each once those that it comes after are done; `question_of` is called then."""
        threads, workers = shares(self.threads, self.workers, len(waiting))

        def job_of(place: int) -> Job[Row]:
            question = question_of(place)
            return Job(place, question.title, Work(question, folder, threads))

        return in_order(waiting, workers, job_of, stop)
