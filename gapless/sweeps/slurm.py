"""The engine `slurm` (extra `slurm`): every instance a job of its own, through submitit."""

from __future__ import annotations

import importlib.util
import io
import math
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stderr, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gapless.errors import InputError, SolverError
from gapless.installation.extras import missing_extra
from gapless.processes.exit import undone_on_leaving
from gapless.processes.workers import signals_held
from gapless.sweeps.local import Outcome, Task
from gapless.sweeps.remote import RemoteWork, stop_file
from gapless.sweeps.solving import Work

__all__ = ["Slurm"]

_POLL_S = {"slurm": 2.0, "local": 0.2}
_SPARE_MIN = 15
"""A job's minutes beyond its instance's time limit: to start, to build the problem, to replay."""
_NO_LIMIT_MIN = 24 * 60
_ANSWER_S = 60.0
"""How long Slurm may take to answer."""
_LOGS = "logs"


@dataclass(frozen=True)
class Slurm:
    """Jobs of so many `threads`, at most `workers` at once (0 for no limit).

    `options`: for submitit's executor, such as `slurm_partition` or `timeout_min`; `cluster` is slurm unless it says
    local, for processes on this machine.
    """

    threads: int = 1
    workers: int = 0
    options: Mapping[str, str | int] = field(default_factory=dict)

    @property
    def cluster(self) -> str:
        """Which of submitit's executors."""
        return str(self.options.get("cluster", "slurm"))

    def check(self) -> None:
        """Raise `InputError` where submitit or Slurm is missing, and for options that it doesn't know."""
        if importlib.util.find_spec("submitit") is None:
            raise missing_extra("--engine slurm", "submitit", "slurm")
        if self.cluster not in ("slurm", "local"):
            raise InputError(f"--engine-option cluster: must be slurm or local, got {self.cluster!r}")
        if self.cluster == "slurm" and shutil.which("sbatch") is None:
            raise InputError("--engine slurm: there is no sbatch on the path; run it where jobs are submitted from")
        self._executor(Path(), 1)

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """See `Engine`. The folder must be one that the jobs see as well; it gets their logs."""
        executor = self._executor(folder / _LOGS, _minutes(tasks))
        with stop_file(folder) as (stop_path, ask_to_stop):
            works = [RemoteWork(Work(task.question, folder, self.threads), stop_path, os.getcwd()) for task in tasks]
            jobs = dict(zip((task.place for task in tasks), _submitted(executor, works), strict=True))
            titles = {task.place: task.question.title for task in tasks}
            cancel = partial(_cancel, jobs)
            with undone_on_leaving(cancel):
                try:
                    while jobs:
                        if stop.is_set():
                            ask_to_stop()
                            self._cancel_pending(list(jobs.values()))
                        for place in [place for place, job in jobs.items() if job.done()]:
                            yield place, _outcome(jobs.pop(place), titles[place], stop)
                        time.sleep(_POLL_S[self.cluster])
                finally:
                    cancel()

    def _cancel_pending(self, jobs: Sequence[Any]) -> None:
        """Cancel what may wait for hours, and see what became of it; jobs that run hand over their best plans."""
        if self.cluster == "slurm":
            arrays = sorted({str(job.job_id).split("_")[0] for job in jobs})
            with suppress(subprocess.TimeoutExpired):  # it is asked again soon
                command = ["scancel", "--state=PENDING", *arrays]
                subprocess.run(command, check=False, capture_output=True, timeout=_ANSWER_S)
            jobs[0].watcher.update()

    def _executor(self, folder: Path, minutes: int) -> Any:
        """submitit's executor, with the options given to it."""
        import submitit

        options = {name: value for name, value in self.options.items() if name != "cluster"}
        limit = {"slurm_array_parallelism": self.workers} if self.workers and self.cluster == "slurm" else {}
        asked = {"name": "gapless", "timeout_min": minutes, "cpus_per_task": self.threads, **limit, **options}
        try:
            executor = submitit.AutoExecutor(folder=folder, cluster=self.cluster)
            executor.update_parameters(**asked)
        except (AssertionError, NameError, RuntimeError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(f"--engine-option: submitit refuses {options}: {reason}") from None
        return executor


def _submitted(executor: Any, works: Sequence[RemoteWork]) -> list[Any]:
    try:
        # What runs on this machine hears of the stop by the file alone; what sbatch says comes below, in one line.
        with signals_held(), redirect_stderr(io.StringIO()):
            return list(executor.submit_array(works))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        raise SolverError(f"--engine slurm: the jobs can't be submitted: {reason}") from None


def _cancel(jobs: Mapping[int, Any]) -> None:
    for job in list(jobs.values()):
        with suppress(Exception):  # nobody is there to hear of it
            job.cancel(check=False)


def _minutes(tasks: Sequence[Task]) -> int:
    """How long a job may run, by the longest time limit."""
    limits = [task.time_limit_s for task in tasks]
    longest_s = None if None in limits else max(limit for limit in limits if limit is not None)
    return _NO_LIMIT_MIN if longest_s is None else math.ceil(longest_s / 60) + _SPARE_MIN


def _outcome(job: Any, title: str, stop: threading.Event) -> Outcome:
    """What a job that has ended brings; one that was cancelled before it began brings nothing."""
    if stop.is_set() and not job.paths.result_pickle.exists():
        return None
    try:
        outcome: Outcome = job.result()
    except Exception as error:  # whatever submitit makes of a job that was killed
        last = (str(error).strip().splitlines() or [type(error).__name__])[-1]
        return SolverError(f"{title}: job {job.job_id} failed: {last}; its logs are in {job.paths.folder}")
    return outcome
