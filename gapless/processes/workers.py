"""Workers: one call in a process of its own, which can be asked to stop, and killed at any moment.

It shares a pipe in each direction with its caller and nothing else: no lock and no event, which a process that is
killed could leave locked. A thread of the caller's writes the call, reads the answer and sees the process off; the
caller waits for that thread's news, and never for the process itself. The worker ends with its caller: its pipe does.

The process imports the modules that it needs, and not the caller's script: what it is handed must come from modules.
"""

from __future__ import annotations

import math
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import IO, Any, Generic, NoReturn, TypeVar

from gapless.errors import GaplessError, OutOfMemoryError, SolverError
from gapless.processes.exit import undone_on_leaving

__all__ = ["Worker", "call_in_worker", "kill_group", "outcome_of", "own_group", "signals_held"]

T = TypeVar("T")

_POLL_S = 0.1
"""How long to wait for news before looking whether somebody has said stop."""

_GONE_S = 5.0
"""How long a process that was killed may take to be gone."""

_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); import pickle; sys.path[:] = pickle.load(sys.stdin.buffer);"
    " from gapless.processes.workers import _serve; _serve()"
)
_READY, _STOP = b"r", b"s"
_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Worker(Generic[T]):
    """A process at work on `work(stop)`; once it has ended, it is put into `news`, and `outcome` says how.

    `work` and its answer must be picklable; `stop` is set there by `stop` here. `name` is what messages call it.
    """

    def __init__(self, work: Callable[[threading.Event], T], name: str, news: queue.SimpleQueue[Worker[T]]) -> None:
        self.name = name
        self.outcome: T | GaplessError
        self._news = news
        self._is_at_work = self._is_asked_to_stop = self._is_gone = False
        self._lock = threading.RLock()  # a signal's handler may kill while this thread does
        call = pickle.dumps(sys.path) + pickle.dumps((name, work))
        with signals_held():
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **own_group()
            )
            self._thread = threading.Thread(target=self._see_through, args=(call,), name="gapless-worker", daemon=True)
            self._thread.start()

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._process.pid

    def stop(self) -> None:
        """Ask it to end with what it has."""
        self._is_asked_to_stop = True
        if self._is_at_work:
            self._ask()

    def kill(self) -> None:
        """End it at once, with all that it started."""
        with self._lock:
            if not self._is_gone:
                kill_group(self._process)

    def join(self) -> None:
        """Wait until it is gone, which a process that was killed is in a moment."""
        self._thread.join(_GONE_S)

    def _see_through(self, call: bytes) -> None:
        """From the call to the answer, or to the end without one."""
        with undone_on_leaving(self.kill):
            found = self._outcome(call)
            with self._lock:  # as long as nobody has waited for it, its number is its own
                kill_group(self._process)
                self._is_gone = True
            code = None
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_GONE_S)
            for pipe in (self._process.stdin, self._process.stdout):
                with suppress(OSError):
                    if pipe is not None:
                        pipe.close()
        crash = SolverError(f"{self.name}: its process crashed with exit code {code}")
        self.outcome = crash if isinstance(found, EOFError) else found
        self._news.put(self)

    def _outcome(self, call: bytes) -> T | GaplessError | EOFError:
        """What it sent, EOFError if it went without a word."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(call)
            self._process.stdin.flush()
            if self._process.stdout.read(1):  # it has read its call: what is written now is for its other thread
                self._is_at_work = True
                if self._is_asked_to_stop:
                    self._ask()
            answer: T | GaplessError = pickle.load(self._process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):
            return EOFError()
        except Exception as error:
            return SolverError(f"{self.name}: its answer can't be read: {type(error).__name__}: {error}")
        return answer

    def _ask(self) -> None:
        with self._lock, suppress(OSError):  # it may have ended just now, with its answer or without one
            if not self._is_gone and self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), _STOP)


def call_in_worker(
    call: Callable[..., T], *arguments: object, limit_s: float = math.inf, stop: threading.Event | None = None
) -> T:
    """`call(*arguments)`, for calls that nothing else can interrupt: in a process that is killed when its time is up.

    Raises `TimeoutError` after `limit_s` seconds, or as soon as `stop` is set, which Ctrl-C sets if it isn't yet; what
    the call raises, if it is a `GaplessError`; `OutOfMemoryError`; and `SolverError` for any other failure. A process
    takes about 0.2 s to start and to import numpy.
    """
    end_s, news = time.monotonic() + limit_s, queue.SimpleQueue[Worker[T]]()
    worker: Worker[T] | None = None
    try:
        worker = Worker(partial(_heedless, call, arguments), getattr(call, "__name__", "a worker"), news)
        while not (stop is not None and stop.is_set()) and (left_s := end_s - time.monotonic()) > 0:
            with suppress(queue.Empty):
                news.get(timeout=min(left_s, _POLL_S))
                if isinstance(worker.outcome, GaplessError):
                    raise worker.outcome
                return worker.outcome
        raise TimeoutError
    except KeyboardInterrupt:
        if stop is None or stop.is_set():
            raise
        stop.set()
        raise TimeoutError from None
    finally:
        if worker is not None:  # else a signal came first: what was started ends with its pipe
            worker.kill()
            worker.join()


def _heedless(call: Callable[..., T], arguments: tuple[object, ...], stop: threading.Event) -> T:
    return call(*arguments)


def outcome_of(name: str, work: Callable[[threading.Event], T], stop: threading.Event) -> T | GaplessError:
    """The answer, or what is wrong, so that no work takes others along."""
    try:
        return work(stop)
    except GaplessError as error:
        return error
    except MemoryError:
        return OutOfMemoryError(f"{name}: out of memory")
    except Exception as error:
        return SolverError(f"{name}: failed with {type(error).__name__}: {error}")


@contextmanager
def signals_held() -> Iterator[None]:
    """Ctrl-C and its like reach this thread only when the block is over, and what is started in it not at all."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def own_group() -> dict[str, Any]:
    """So that Ctrl-C goes to the caller alone, and a kill takes along what the process has started."""
    if os.name == "nt":
        return {"creationflags": getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0)}
    return {"start_new_session": True}


def kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


# -- in the process ----------------------------------------------------------------------------------------------------


def _serve() -> NoReturn:
    """Read the call, do it, send the answer or what is wrong, and end. Signals are for the caller."""
    for number in _SIGNALS:
        signal.signal(number, lambda number, frame: None)  # not ignored: what is started here hears them
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    _send(answers, _done(sys.stdin.buffer, answers, threading.Event()))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no thread of a solver that was left behind keeps it


def _done(calls: IO[bytes], answers: IO[bytes], stop: threading.Event) -> bytes:
    """The outcome of the call, pickled."""
    try:
        name, work = pickle.load(calls)
    except Exception as error:
        _send(answers, _READY)
        rule = "what a process of its own is handed must come from a module that it can import"
        return pickle.dumps(SolverError(f"{rule}; {type(error).__name__}: {error}"))
    threading.Thread(target=_listen, args=(calls, stop), daemon=True).start()
    _send(answers, _READY)
    try:
        return pickle.dumps(outcome_of(name, work, stop))
    except Exception as error:
        return pickle.dumps(SolverError(f"{name}: its answer can't be sent: {type(error).__name__}: {error}"))


def _send(answers: IO[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more
        answers.write(data)
        answers.flush()


def _listen(calls: IO[bytes], stop: threading.Event) -> None:
    """Hear the request to stop; leave with what was started here once the caller is gone."""
    while calls.read(1):
        stop.set()
    if hasattr(os, "killpg"):
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
