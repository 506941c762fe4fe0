"""Run a solver in a worker thread while the calling thread waits in a way that Ctrl-C can reach."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["run_interruptibly"]

T = TypeVar("T")

_POLL_S = 0.05
"""How long the calling thread sleeps between looks at the stop event; a solver that ends wakes it at once."""


def run_interruptibly(work: Callable[[], T], cancel: Callable[[], None], stop: threading.Event) -> T:
    """Return `work()`, run in a thread of its own; once `stop` is set, call `cancel` and go on waiting.

    A solver's C++ code never looks at Python's signals, so it must not run in the thread that receives them. A
    KeyboardInterrupt sets `stop`, so that this solve returns what it has and later stages do not start; one that comes
    while `stop` is set is raised, and leaves the worker behind. `cancel` is repeated while waiting, since a request
    that arrives before the solver is running may be lost. What `work` raises is raised here.
    """
    outcome: dict[str, Any] = {}
    done = threading.Event()  # not Thread.join: a KeyboardInterrupt within it can mark a running thread as ended

    def run() -> None:
        try:
            outcome["result"] = work()
        except BaseException as error:
            outcome["error"] = error
        finally:
            done.set()

    threading.Thread(target=run, name="planwright-solver", daemon=True).start()
    while not done.is_set():
        try:
            done.wait(_POLL_S)
            if stop.is_set() and not done.is_set():
                cancel()
        except KeyboardInterrupt:
            if stop.is_set():
                raise
            stop.set()
    if "error" in outcome:
        raise outcome["error"]
    result: T = outcome["result"]
    return result
