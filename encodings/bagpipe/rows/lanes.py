"""Lanes: a thread for each network, which carries its tasks one after the other; and what has happened so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from gapless.encodings.bagpipe.execution.order import Task
from gapless.errors import RunError

__all__ = ["NO_BATCH", "Happened", "Lane"]

NO_BATCH = 2**62
"""More than any batch's number."""


class Happened:
    """The instants at which things are done, by what and batch. Threads wait for them, until one of them fails.

    `wall_s`: the same by the machine's clock.
    """

    def __init__(self, timeout_s: float) -> None:
        self._at_s: dict[Task, float] = {}
        self.wall_s: dict[Task, float] = {}
        self._changed, self._timeout_s = threading.Condition(), timeout_s
        self._error: BaseException | None = None

    def note(self, what: Task, at_s: float) -> None:
        """It is done."""
        with self._changed:
            self._at_s[what], self.wall_s[what] = at_s, time.monotonic()
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Nothing more will happen."""
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def wait(self, *all_of: Task) -> float:
        """When the last of these is done; 0 for none. Raises what another thread failed with."""
        with self._changed:
            for what in all_of:
                self._changed.wait_for(partial(self._is_over, what), self._timeout_s)
                if what in self._at_s:
                    continue  # others may count on what this process does then
                if self._error is not None:
                    raise self._error
                raise RunError(f"{what[0]} of batch {what[1]}: not done within {self._timeout_s:g} s")
            return max((self._at_s[what] for what in all_of), default=0.0)

    def _is_over(self, what: Task) -> bool:
        return self._error is not None or what in self._at_s

    def at_s(self) -> dict[Task, float]:
        """All instants so far."""
        with self._changed:
            return dict(self._at_s)


class Lane(threading.Thread):
    """Does `tasks` in order: each once `needs(task)` are done, by `work(task, begin_s)`, which says when it is over.

    What is no work says None, and holds up nobody. `lowest`: of the tasks that are left, the first batch.
    """

    def __init__(
        self, name: str, tasks: Sequence[Task], happened: Happened, needs: Callable[[Task], tuple[Task, ...]],
        work: Callable[[Task, float], float | None], begin_s: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(name=name, daemon=True)
        self._tasks, self._happened, self._needs, self._work, self._free_s = tasks, happened, needs, work, begin_s
        batches = np.array([batch for _, batch in tasks], dtype=np.int64)
        self._lowest = [*np.minimum.accumulate(batches[::-1])[::-1].tolist(), NO_BATCH]
        self.lowest = self._lowest[0]

    def run(self) -> None:
        """All tasks."""
        try:
            for number, task in enumerate(self._tasks):
                ready_s = self._happened.wait(*self._needs(task))
                end_s = self._work(task, max(ready_s, self._free_s))
                self._free_s = self._free_s if end_s is None else end_s
                self._happened.note(task, ready_s if end_s is None else end_s)
                self.lowest = self._lowest[number + 1]
        except BaseException as error:  # raised where it is waited for
            self._happened.fail(error)
