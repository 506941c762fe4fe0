"""The engine `ray` (extra `ray`): every instance a task on a Ray cluster, or on this machine."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gapless.errors import InputError, SolverError
from gapless.installation.extras import missing_extra
from gapless.options import available_cores
from gapless.sweeps.local import Outcome, Task
from gapless.sweeps.remote import RemoteWork, stop_file
from gapless.sweeps.solving import Work

__all__ = ["RayCluster"]

_POLL_S = 0.2
_ANSWER_S = 5.0


@dataclass(frozen=True)
class RayCluster:
    """Tasks of so many `threads`, at most `workers` at once (0 for as many as Ray has room for).

    `options`: for `ray.init`; without an `address` there, or in RAY_ADDRESS, Ray is started on this machine.
    """

    threads: int = 1
    workers: int = 0
    options: Mapping[str, str | int] = field(default_factory=dict)

    def check(self) -> None:
        """Raise `InputError` where Ray is missing, or this machine has too few cores to begin with."""
        if importlib.util.find_spec("ray") is None:
            raise missing_extra("--engine ray", "Ray", "ray")
        self._check_address()
        if self._is_here and self.threads > available_cores():
            raise InputError(f"threads must be <= {available_cores()}, the number of cores, got {self.threads}")

    @property
    def _address(self) -> str:
        return str(self.options.get("address", os.environ.get("RAY_ADDRESS", "")))

    @property
    def _is_here(self) -> bool:
        return not self._address

    def _check_address(self) -> None:
        """Refuse an address where nobody answers: Ray itself would try for minutes."""
        host, colon, port = self._address.removeprefix("ray://").rpartition(":")
        if not colon:  # auto, local, or nothing
            return
        try:
            socket.create_connection((host, int(port)), timeout=_ANSWER_S).close()
        except (OSError, ValueError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise InputError(f"--engine ray: nobody answers at address {self._address!r}: {reason}") from None

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """See `Engine`. The folder must be one that the cluster's machines see as well."""
        import ray

        self._start()
        try:
            with stop_file(folder) as (stop_path, ask_to_stop):
                perform = ray.remote(_perform).options(num_cpus=self.threads, max_retries=0)
                waiting, is_asked = list(reversed(tasks)), False
                running: dict[Any, Task] = {}
                while (waiting and not stop.is_set()) or running:
                    while waiting and not stop.is_set() and len(running) < (self.workers or len(tasks)):
                        task = waiting.pop()
                        work = RemoteWork(Work(task.question, folder, self.threads), stop_path, os.getcwd())
                        running[perform.remote(work)] = task
                    if stop.is_set() and not is_asked:
                        ask_to_stop()
                        is_asked = True
                    done, _ = ray.wait(list(running), timeout=_POLL_S)
                    for reference in done:
                        task = running.pop(reference)
                        yield task.place, _outcome(ray, reference, task)
        finally:
            ray.shutdown()

    def _start(self) -> None:
        import ray

        here: dict[str, object] = {"num_cpus": available_cores(), "include_dashboard": False} if self._is_here else {}
        asked = {"log_to_driver": False, "logging_level": logging.ERROR, **here, **self.options}
        try:
            ray.init(**asked)
        except (ConnectionError, RuntimeError, TypeError, ValueError) as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise InputError(f"--engine ray: ray.init refuses {dict(self.options)}: {reason}") from None


def _perform(work: RemoteWork) -> Outcome:
    return work()


def _outcome(ray: Any, reference: Any, task: Task) -> Outcome:
    try:
        outcome: Outcome = ray.get(reference)
    except Exception as error:  # whatever Ray makes of a task whose worker died
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return SolverError(f"{task.question.title}: its Ray task failed: {last}")
    return outcome
