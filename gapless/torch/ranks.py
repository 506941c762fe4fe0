"""One process among the ranks that a launcher has started: they meet at a store, and end together.

Each of them runs the same command. What one fails with reaches all others through the store, so that all end with the
same exit code, and rank 0 says why.
"""

from __future__ import annotations

import hashlib
import io
import os
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gapless.errors import InputError, RunError
from gapless.processes import exit as leaving
from gapless.processes.launch import Launch
from gapless.solvers.interruptible import run_interruptibly
from gapless.torch.library import torch
from gapless.torch.processes import WAITS, Prepared, begin, error_line, run_processes, write_task

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

__all__ = ["Ranks", "as_rank", "run_ranks"]

T = TypeVar("T")

_LOOK_S = 0.25
_LEAVING_S = 5.0
"""How long rank 0, where the store is, stays for the others after an error."""

_EXIT_FAILED = 2


def as_rank(launch: Launch, wait_s: float, work: Callable[[Ranks], int]) -> int:
    """The exit code of a command that every rank runs as `work`; only rank 0 is heard, on stdout and stderr.

    Raises what fails on rank 0, and on another rank what rank 0 no longer hears, such as `RunError` where it
    doesn't answer within `wait_s`.
    """
    leaving.ends_at_once()  # gloo's threads now and then abort a process that ends as usual
    with _quiet():  # what the library has to say of an address in a dozen lines
        ranks = Ranks(launch, wait_s)
    is_well = False
    try:
        with nullcontext() if launch.rank == 0 else _quiet():
            code = work(ranks)
        is_well = True
        return code
    except BaseException as error:
        is_heard = ranks.report(error)
        if launch.rank == 0 or not is_heard:
            raise
        return _EXIT_FAILED
    finally:
        ranks.leave(is_well)


@contextmanager
def _quiet() -> Iterator[None]:
    """Within the block nothing reaches stdout and stderr, not from C++ either."""
    with open(os.devnull, "wb") as nowhere:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [os.dup(number) for number in (1, 2)]
        for number in (1, 2):
            os.dup2(nowhere.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)


def run_ranks(
    prepared: Prepared, task: DataclassInstance, ranks: int, wait_s: float, stop: threading.Event | None = None,
    among: Ranks | None = None, leave: Callable[[Path], object] = lambda folder: None, replaceable: int = 0,
    limit_s: float | None = None,
) -> list[dict[str, Any]]:  # fmt: skip
    """What each rank found, in a process for each; where a launcher has started the ranks, `among` them.

    All do what `prepared` says of a folder with the task, a dataclass for `read_task`, and what `leave(folder)` adds.
    `replaceable`: as for `run_processes`; not among ranks of a launcher. `limit_s`: what they may take in all, if it
    isn't to be ten times `wait_s`.
    Raises `RunError` as `run_processes` does.
    """
    with leaving.temporary_folder("gapless-ranks-") as name:
        folder = Path(name)
        write_task(folder, task)
        leave(folder)
        if among is not None:
            return among.run(prepared, folder, ranks, wait_s, stop, limit_s)
        return run_processes(prepared, folder, ranks, wait_s, stop, replaceable, limit_s)


class Ranks:
    """The ranks, seen from one of them. Raises `RunError` where they can't meet within `wait_s`."""

    def __init__(self, launch: Launch, wait_s: float) -> None:
        self.launch = launch
        self._wait_s = wait_s
        self._is_host = launch.rank == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
        self._store = self._connected(self._is_host)
        self._store.add("come", 1)
        self._runs = 0

    def run(
        self,
        prepared: Prepared,
        folder: Path,
        ranks: int,
        wait_s: float,
        stop: threading.Event | None,
        limit_s: float | None = None,
    ) -> list[dict[str, Any]]:
        """What each rank found, this process among them.

        Raises `InputError` for a task that is for other ranks, or isn't the same on all, and `RunError` as
        `run_processes` does.
        """
        self._runs += 1
        stop = threading.Event() if stop is None else stop
        if ranks != self.launch.ranks:
            raise InputError(f"plan: is for {ranks} ranks, the launcher has started {self.launch.ranks}")
        files = sorted(path for path in folder.iterdir() if path.is_file())
        task = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).digest()
        others = self._exchanged("task", task, wait_s, stop)
        different = [str(rank) for rank, other in enumerate(others) if other != others[0]]
        if different:
            raise InputError(f"ranks {', '.join(different)}: must have the same plan and options as rank 0")
        limit_s = WAITS * wait_s if limit_s is None else limit_s
        answer = self._in_time(lambda: self._work(prepared, folder), limit_s, stop)
        written = io.BytesIO()
        torch.save(answer, written)
        answers = self._exchanged("found", written.getvalue(), wait_s, stop)
        self._in_time(torch.distributed.destroy_process_group, wait_s, stop)
        return [torch.load(io.BytesIO(other), weights_only=True) for other in answers]

    def from_first(self, make: Callable[[], bytes], limit_s: float, stop: threading.Event | None = None) -> bytes:
        """What `make` gives on rank 0: the other ranks wait, and get it too.

        Raises `RunError` on those where it takes longer than `limit_s`.
        """
        self._runs += 1
        key, stop = f"{self._runs}/first", threading.Event() if stop is None else stop
        if self.launch.rank == 0:
            self._store.set(key, make())
        end_s = time.monotonic() + limit_s
        while not self._store.check([key]):
            self._raise_if_over(stop)
            if time.monotonic() > end_s:
                raise RunError(f"rank 0 was not done within {limit_s:g} s; give a longer --wait")
            time.sleep(_LOOK_S)
        found: bytes = self._store.get(key)
        return found

    def report(self, error: BaseException) -> bool:
        """Let all ranks know what this one fails with, unless another one was first. Whether rank 0 will know."""
        line = f"rank {self.launch.rank}: {error_line(error)}"
        return self._answered(lambda: self._store.compare_set("error", "", line)) is not None

    def leave(self, is_well: bool) -> None:
        """Be done with the store; where it is in this process, once all others are, or won't be soon."""
        left = self._answered(lambda: self._store.add("left", 1))
        end_s = time.monotonic() + self._wait_s
        while self._is_host and left is not None and left < self.launch.ranks and time.monotonic() < end_s:
            have_come = self._answered(lambda: self._store.add("come", 0)) == self.launch.ranks
            if have_come and not is_well:
                end_s = min(end_s, time.monotonic() + _LEAVING_S)
                is_well = True
            time.sleep(_LOOK_S)
            left = self._answered(lambda: self._store.add("left", 0))

    def _connected(self, is_host: bool) -> torch.distributed.Store:
        """A connection to the store."""
        address, port = self.launch.address, self.launch.port
        if not is_host:
            self._await_host()
        wait = timedelta(seconds=self._wait_s)
        try:
            store = torch.distributed.TCPStore(address, port, self.launch.ranks, is_host, wait, wait_for_workers=False)
        except RuntimeError as error:  # torch's errors of networks and stores
            if is_host and "EADDRINUSE" in str(error):
                raise RunError(f"{address}:{port}: the port is in use; set MASTER_PORT to another") from None
            raise self._no_answer() from None
        return torch.distributed.PrefixStore(f"gapless/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)

    def _await_host(self) -> None:
        """Until somebody listens where rank 0 is to be: torch tries for up to five times as long as it is asked to."""
        end_s = time.monotonic() + self._wait_s
        while time.monotonic() < end_s:
            try:
                socket.create_connection((self.launch.address, self.launch.port), end_s - time.monotonic()).close()
            except OSError:
                time.sleep(_LOOK_S)
            else:
                return
        raise self._no_answer()

    def _no_answer(self) -> RunError:
        who = (
            f"rank {self.launch.rank}: no answer at {self.launch.address}:{self.launch.port} within {self._wait_s:g} s"
        )
        return RunError(f"{who}; MASTER_ADDR and MASTER_PORT must be where rank 0 is")

    def _work(self, prepared: Prepared, folder: Path) -> dict[str, Any]:
        program = prepared(folder)
        store = torch.distributed.PrefixStore(f"group/{self._runs}", self._connected(is_host=False))
        begin(program, self.launch.rank, store=store)
        return program.work(self.launch.rank)

    def _in_time(self, work: Callable[[], T], limit_s: float, stop: threading.Event) -> T:
        """What `work` returns, unless `stop` is set, or another rank fails, or it takes too long."""
        over, is_done = threading.Event(), threading.Event()

        def watch() -> None:
            while not is_done.wait(_LOOK_S):
                if stop.is_set() or self._error() is not None:
                    over.set()
                    return

        threading.Thread(target=watch, daemon=True).start()
        try:
            with warnings.catch_warnings():
                return run_interruptibly(work, lambda: None, over, limit_s)
        except TimeoutError:
            self._raise_if_over(stop)
            raise RunError(f"no end within {limit_s:g} s; give a longer --wait") from None
        except RuntimeError as error:
            self._raise_if_over(stop)
            raise RunError(error_line(error)) from error
        finally:
            is_done.set()

    def _exchanged(self, name: str, own: bytes, wait_s: float, stop: threading.Event) -> list[bytes]:
        """What each rank gives under a name, once all have."""
        keys = [f"{self._runs}/{name}/{rank}" for rank in range(self.launch.ranks)]
        self._store.set(keys[self.launch.rank], own)
        end_s = time.monotonic() + wait_s
        while not self._store.check(keys):
            self._raise_if_over(stop)
            if time.monotonic() > end_s:
                missing = ", ".join(str(rank) for rank, key in enumerate(keys) if not self._store.check([key]))
                raise RunError(f"nothing was heard of ranks {missing} within {wait_s:g} s; give a longer --wait")
            time.sleep(_LOOK_S)
        return [self._store.get(key) for key in keys]

    def _raise_if_over(self, stop: threading.Event) -> None:
        error = self._error()
        if error is not None:
            raise RunError(error)
        if stop.is_set():
            raise RunError("the ranks were stopped before they were done")

    def _error(self) -> str | None:
        """What another rank has failed with, if one has."""
        is_heard = self._answered(lambda: self._store.check(["error"]))
        if is_heard is None:
            return f"rank {self.launch.rank}: rank 0 is gone, or hangs"
        return str(self._store.get("error").decode()) if is_heard else None

    def _answered(self, ask: Callable[[], T]) -> T | None:
        """What the store answers; None where it doesn't, since the process that has it is gone, or hangs."""
        answers: list[T] = []

        def asked() -> None:
            try:
                answers.append(ask())
            except RuntimeError:
                return

        thread = threading.Thread(target=asked, daemon=True)
        thread.start()
        thread.join(_LEAVING_S)
        return answers[0] if answers else None
