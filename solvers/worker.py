"""Solve in a process of its own: for portfolios, for time limits that must hold, and so that a crash stays there."""

from __future__ import annotations

import math
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event
from typing import Any

from numpy.typing import ArrayLike

from gapless.errors import GaplessError, InputError, SolverError
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import Task, answer
from gapless.solvers.registry import checked_start, find_backend, solve_with

__all__ = ["kill_with_children", "solve_in_process"]

_POLL_S = 0.05

_LEAVE_S = 5.0
"""How long a process that has answered, or gone silent, may take to end by itself."""


def solve_in_process(
    model: Model, options: SolveOptions | None = None, solver: str = "highs", start: ArrayLike | None = None,
    kill_after_s: float | None = None,
) -> Solution:  # fmt: skip
    """Solve as `solve_model` does, in a spawned process.

    Progress and interrupts pass through: `options.stop` and Ctrl-C here make the solver there return its incumbent.
    A process still at work `kill_after_s` seconds after its start is killed, with all that it started; the answer is
    then NO_SOLUTION, stopped by TIME_LIMIT, or INTERRUPTED if somebody had asked it to stop. As with every spawned
    process, a script that calls this needs its `if __name__ == "__main__":`.

    Raises what `solve_model` raises, `InputError` for a `kill_after_s` that is not above 0, and `SolverError` with the
    exit code if the process crashes.
    """
    if kill_after_s is not None and not kill_after_s > 0:
        raise InputError(f"kill_after_s must be a number > 0 or None, got {kill_after_s}")
    options = options or SolveOptions()
    backend, variant = find_backend(solver)
    limits = {key: getattr(options, key) for key in ("time_limit_s", "gap", "threads", "seed")}
    work = (backend, variant, model, solver, checked_start(model, start))
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    stop = context.Event()
    arguments = (sender, stop, limits, options.on_progress is not None, work)
    process = context.Process(target=_work, args=arguments, name="gapless-solver")
    deadline = Deadline(options)
    outcome: Solution | Exception | None = None
    try:
        process.start()
        sender.close()
        outcome = _wait(receiver, stop, options, math.inf if kill_after_s is None else kill_after_s)
    finally:
        exit_code = _end(process, 0.0 if outcome is None else _LEAVE_S)
        receiver.close()
    if outcome is None:
        task = Task(model, model.arrays(), options, deadline)
        reason = StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
        return answer(task, solver, backend.version or "", Status.NO_SOLUTION, reason)
    if isinstance(outcome, EOFError):
        raise SolverError(f"solver {solver!r}: its process crashed with exit code {exit_code}; try another --solver")
    if isinstance(outcome, Exception):
        raise outcome
    return replace(outcome, wall_s=deadline.elapsed_s)


def _wait(
    receiver: Connection, stop: Event, options: SolveOptions, kill_after_s: float
) -> Solution | Exception | None:  # fmt: skip
    """The answer or error that the process sent, EOFError if it went without a word, None once its time is up."""
    end_s = time.monotonic() + kill_after_s
    while time.monotonic() < end_s:
        try:
            if options.stop.is_set():
                stop.set()
            if receiver.poll(_POLL_S):
                message = receiver.recv()
                if isinstance(message, (Solution, Exception)):
                    return message
                if options.on_progress is not None:
                    options.on_progress(message)
        except EOFError as error:
            return error
        except KeyboardInterrupt:
            if options.stop.is_set():
                raise
            options.stop.set()
    return None


def _end(process: BaseProcess, patience_s: float) -> int | None:
    """See the process off, by force once it has had its time to leave, and give its exit code."""
    if process.pid is None:
        return None
    process.join(patience_s)
    kill_with_children(process)
    return process.exitcode


def kill_with_children(process: BaseProcess) -> None:
    """End a process at once, with all that it started, if it made a group of its own; wait until it is gone."""
    if process.pid is None:
        return
    if process.is_alive():
        if hasattr(os, "killpg"):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:  # it had not yet come as far as having a group of its own
                process.kill()
        else:
            process.kill()
    process.join()


def _work(sender: Connection, stop: Event, limits: dict[str, Any], reports: bool, work: tuple[Any, ...]) -> None:
    """What the process does: solve, send progress and the answer, end when asked to or when the parent is gone."""
    if hasattr(os, "setsid"):
        os.setsid()  # a group of its own: Ctrl-C goes to the parent alone, and a kill takes CBC along
    options = SolveOptions(**limits, on_progress=sender.send if reports else None)
    threading.Thread(target=_watch, args=(stop, options.stop), daemon=True).start()
    backend, variant, model, solver, start = work
    try:
        message: object = solve_with(backend, variant, model, options, solver, start)
    except GaplessError as error:
        message = error
    except Exception as error:
        message = SolverError(f"solver {solver!r}: failed with {type(error).__name__}: {error}")
    sender.send(message)


def _watch(stop: Event, own_stop: threading.Event) -> None:
    parent = multiprocessing.parent_process()
    while parent is not None and parent.is_alive():
        if stop.wait(_POLL_S):
            own_stop.set()
            stop.clear()
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
