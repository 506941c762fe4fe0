"""Run a solver in a worker thread while the calling thread waits where Ctrl-C can reach it."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from gapless.processes import exit as leaving

__all__ = ["PATIENCE_S", "leave", "run_interruptibly"]

T = TypeVar("T")

_POLL_S = 0.05
"""How long the calling thread sleeps between looks at the stop event; a solver that ends wakes it at once."""

PATIENCE_S = 0.5
"""How long a solver that has been asked to end, or whose time is up, may go on before it is left behind."""

_THREAD = "gapless-solver"


def run_interruptibly(
    work: Callable[[], T], cancel: Callable[[], None], stop: threading.Event, limit_s: float | None = None
) -> T:
    """Return `work()`, run in a thread of its own; once `stop` is set, call `cancel` and go on waiting.

    A solver's C++ code never looks at Python's signals, so it must not run in the thread that receives them. A
    KeyboardInterrupt sets `stop`, so that this solve returns what it has and later stages do not start; one that comes
    while `stop` is set is raised, and leaves the worker behind. `cancel` is repeated while waiting, since a request
    that arrives before the solver is running may be lost. What `work` raises is raised here.

    With `limit_s`, the seconds that the work may take (inf: no limit), a worker that doesn't listen is left behind,
    with a `TimeoutError` here: `PATIENCE_S` after the limit, or after `stop` was first seen to be set.
    """
    results: list[T] = []
    errors: list[BaseException] = []
    done = threading.Event()  # not Thread.join: a KeyboardInterrupt within it can mark a running thread as ended

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            done.set()

    threading.Thread(target=run, name=_THREAD, daemon=True).start()
    end_s = math.inf if limit_s is None else time.monotonic() + limit_s + PATIENCE_S
    while not done.is_set():
        try:
            done.wait(_POLL_S)
            if stop.is_set() and not done.is_set():
                cancel()
                end_s = min(end_s, time.monotonic() + PATIENCE_S)
            if limit_s is not None and time.monotonic() > end_s and not done.is_set():
                cancel()
                raise TimeoutError
        except KeyboardInterrupt:
            if stop.is_set():
                raise
            stop.set()
    if errors:
        raise errors[0]
    return results[0]


def leave(code: int) -> NoReturn:
    """End the process, at once where a thread was left behind at work.

    A clean end ends a thread that asks for the interpreter, and C++ between the two aborts the process. A thread that
    is in Python now, such as one that makes a model, may be in a solver by then.
    """
    if not leaving.survives_a_clean_end() or any(thread.daemon for thread in threading.enumerate()):
        sys.stdout.flush()
        sys.stderr.flush()
        leaving.leave(code)
    sys.exit(code)
