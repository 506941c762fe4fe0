"""Choose: measure what the race asks for, here or from the log, and answer the question."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gapless.io.atomic import check_writable, make_folder
from gapless.options import Progress
from gapless.sweeps.measured.answer import Answer, write_answer
from gapless.sweeps.measured.commands import Stopped, measured
from gapless.sweeps.measured.few_runs import few_runs
from gapless.sweeps.measured.log import Log
from gapless.sweeps.measured.measure_file import MeasureFile
from gapless.sweeps.measured.model import check_installed, placed
from gapless.sweeps.measured.question import Question
from gapless.sweeps.measured.race import Measure, Race, Run, race
from gapless.sweeps.measured.verdict import verdict
from gapless.sweeps.summary import SUMMARY_JSON

__all__ = ["choose"]

Outcome = NDArray[np.float64] | str

_POLL_S = 0.1
"""How long to wait for a run before a signal that came in between is looked at."""


def choose(
    file: MeasureFile,
    question: Question,
    folder: str | Path,
    workers: int = 1,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Answer:
    """Answer a question by measurements, which stay in `folder` with the table; what is there already isn't repeated.

    `workers`: runs at once; more than one disturb each other. `stop` ends the runs at work, whose measurements are
    lost, and the answer says what is known by then. Raises `InputError` for a folder that can't be written to, or that
    holds measurements of another machine.
    """
    if file.goes_by_model:
        check_installed()
    root = Path(folder)
    make_folder(root)
    check_writable(root / SUMMARY_JSON)
    bench = _Bench(file, Log(root, file.metrics), workers, on_progress, stop or threading.Event())
    course = _course(file, question, bench.measure)
    answer = Answer(file, question, course, verdict(course, file.seed), bench.new_runs)
    write_answer(root, answer)
    return answer


def _course(file: MeasureFile, question: Question, measure: Measure) -> Race:
    """A race where the budget pays for one; otherwise few runs, which a model asks for."""
    if not file.goes_by_model:
        return race(len(file.configurations), file.runs, question, file.confidence, measure, file.seed)
    points = placed([configuration.values for configuration in file.configurations])
    return few_runs(points, file.runs, question, file.confidence, measure, file.seed)


class _Bench:
    """Measures runs on this machine, and keeps them."""

    def __init__(
        self,
        file: MeasureFile,
        log: Log,
        workers: int,
        on_progress: Callable[[Progress], None] | None,
        stop: threading.Event,
    ) -> None:
        self._file, self._log, self._workers, self._stop = file, log, workers, stop
        self._on_progress = on_progress
        self._begin_s, self._count = time.monotonic(), 0
        self.new_runs = 0

    def measure(self, order: Sequence[Run]) -> Iterator[tuple[Run, Outcome]]:
        """See `Measure`; what is known comes first."""
        missing = []
        for place, repeat in order:
            known = self._log.known(self._file.configurations[place], repeat)
            if known is None:
                missing.append((place, repeat))
            else:
                self._count += 1
                yield (place, repeat), known
        try:
            with ThreadPoolExecutor(self._workers) as pool:
                futures = {pool.submit(self._one, run): run for run in missing}
                while futures:
                    for future in wait(futures, _POLL_S, FIRST_COMPLETED).done:
                        run, outcome = futures.pop(future), future.result()
                        if outcome is not None:
                            self._keep(run, outcome)
                            yield run, outcome
        except BaseException:
            self._stop.set()  # before the pool waits for its threads
            raise

    def _one(self, run: Run) -> Outcome | None:
        """One run, None for one that is stopped."""
        if self._stop.is_set():
            return None
        place, repeat = run
        words = self._file.configurations[place].command(self._file.seed + repeat)
        try:
            return measured(words, self._file.metrics, self._file.time_out_s, self._stop)
        except Stopped:
            return None

    def _keep(self, run: Run, outcome: Outcome) -> None:
        place, repeat = run
        configuration = self._file.configurations[place]
        self._count += 1
        self.new_runs += 1
        if not isinstance(outcome, str):
            self._log.add(configuration, repeat, self._file.seed + repeat, outcome)
        if self._on_progress is not None:
            news = f"{configuration.title}: {'failed' if isinstance(outcome, str) else f'run {repeat + 1}'}"
            wall_s = time.monotonic() - self._begin_s
            self._on_progress(Progress(wall_s, None, None, news, "s", self._count, self._file.runs.budget))
