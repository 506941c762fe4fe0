"""Run a CBC executable on a model, as the `pulp` backend's default.

CBC is run here and not through PuLP's own wrapper, which can't be interrupted, calls an answer optimal that a limit
cut short, and keeps no bound. The executable is the one that PuLP brings along or finds: 2.10 with PuLP 3, a build of
3 in the package cbcbox.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np

from gapless.errors import SolverError
from gapless.model.arrays import Floats
from gapless.model.mps import mps_of_arrays
from gapless.processes.exit import temporary_folder, undone_on_leaving
from gapless.solution import Solution, Status, StopReason
from gapless.solvers.backend import FEASIBLE, Task, answer, as_minimisation, from_minimisation, infeasible_or_unbounded
from gapless.solvers.interruptible import run_interruptibly

__all__ = ["solve_with_cbc"]

# How the first line of CBC's solution file begins, and what it claims; the first match counts.
_STATUS: tuple[tuple[str, Status], ...] = (
    ("Optimal", Status.OPTIMAL),
    ("Infeasible", Status.INFEASIBLE),
    ("Integer infeasible", Status.INFEASIBLE),
    ("Unbounded", Status.UNBOUNDED),
    ("Stopped", Status.FEASIBLE),
)

# Where CBC prints a lower bound, and what its print may be off at least; six digits are all that it gives.
_BOUNDS = {
    re.compile(r"^Continuous objective value is (\S+)"): 0.0,
    re.compile(r"best possible (\S+?)\)"): 0.0,
    re.compile(r"^Lower bound:\s+(\S+)"): 1e-3,
}
_INCUMBENT = re.compile(r"Integer solution of (\S+) found|, (\S+) best solution, best possible (\S+)")

_KILL_AFTER_S = 5.0
"""How long CBC may take to answer an interrupt before it is killed."""


def solve_with_cbc(task: Task, executable: str) -> Solution:
    """Solve a MILP or LP with the CBC at path `executable`.

    Its bound is printed to six digits, so that it is loosened by 1e-5 here. Raises `SolverError` where CBC fails.
    """
    run = _run(task, executable)
    if run.is_lost and not task.deadline.over:
        run = _run(task, executable, "-preprocess", "off")
    claim = next((status for start, status in _STATUS if run.first_line.startswith(start)), None)
    if claim is None:
        if task.options.stop.is_set():
            return answer(task, Status.NO_SOLUTION, StopReason.INTERRUPTED)
        last = run.log[-1] if run.log else "no output"
        raise SolverError(f"pulp: CBC failed on model {task.model.name!r} (exit code {run.exit_code}): {last}")
    if claim in (Status.INFEASIBLE, Status.UNBOUNDED):
        return infeasible_or_unbounded(task, lambda probe: solve_with_cbc(probe, executable))
    values = None if run.is_lost or "no integer solution" in run.first_line else run.values
    claim = Status.NO_SOLUTION if values is None else claim
    bound = run.best_possible()
    if claim is Status.OPTIMAL and values is not None and not run.ended_within_gap():
        bound = task.arrays.objective(values)
    stop = StopReason.FINISHED if claim is Status.OPTIMAL else task.why_stopped()
    return answer(task, claim, stop, values, bound)


def _run(task: Task, executable: str, *arguments: str) -> _Run:
    with temporary_folder("gapless-cbc-") as folder:
        run = _Run(task, executable, Path(folder), arguments)
        with undone_on_leaving(run.close), closing(run):
            run_interruptibly(run.go, run.cancel, task.options.stop)
    return run


class _Run:
    """One CBC process; `go` runs in a worker thread, `cancel` may be called from any."""

    def __init__(self, task: Task, executable: str, folder: Path, arguments: tuple[str, ...]) -> None:
        self.first_line = ""
        self.values: Floats | None = None
        self.log: list[str] = []
        self.exit_code = 0
        self._task = task
        self._arrays = as_minimisation(task.arrays)
        self._executable = executable
        self._folder = folder
        self._more_arguments = arguments
        self._process: subprocess.Popen[str] | None = None
        self._cancelled_s: float | None = None

    def go(self) -> None:
        """Write the model, run CBC on it, read what it left behind."""
        columns = [f"c{j}" for j in range(len(self._arrays.cost))]
        rows = [f"r{i}" for i in range(len(self._arrays.row_lower))]
        (self._folder / "model.mps").write_text(mps_of_arrays("model", self._arrays, columns, rows))
        self._process = subprocess.Popen(
            [self._executable, *self._arguments(columns)], cwd=self._folder, text=True, encoding="utf-8",
            errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with self._process as process:
            try:
                for line in process.stdout or ():
                    self.log.append(line.strip())
                    self._report(self.log[-1])
            except BaseException:  # of whoever hears the reports
                process.kill()
                raise
        self.exit_code = self._process.returncode
        answer_file, values_file = self._folder / "answer.txt", self._folder / "values.bin"
        if answer_file.exists():
            self.first_line = answer_file.read_text().partition("\n")[0]
        if values_file.exists():
            self.values = self._read_values(values_file.read_bytes())

    def cancel(self) -> None:
        """Interrupt CBC, which then writes its incumbent; kill it if it does not answer."""
        if self._process is None or self._process.poll() is not None:
            return
        if self._cancelled_s is None:
            self._cancelled_s = time.monotonic()
            self._process.send_signal(signal.SIGINT if os.name == "posix" else signal.SIGTERM)
        elif time.monotonic() - self._cancelled_s > _KILL_AFTER_S:
            self._process.kill()

    def close(self) -> None:
        """End CBC at once, if it is still there."""
        if self._process is not None:
            self._process.kill()

    @property
    def is_lost(self) -> bool:
        """Whether CBC claims a solution that is none: its preprocessing (2.10.3) at times undoes itself wrongly."""
        is_claimed = self.first_line.startswith(("Optimal", "Stopped")) and "no integer" not in self.first_line
        arrays = self._task.arrays
        return is_claimed and (self.values is None or arrays.violation(self.values) > 10 * FEASIBLE)

    def best_possible(self) -> float | None:
        """The best bound that CBC has printed, each loosened by what its print leaves open."""
        matches = [(kind.search(line), slack) for line in self.log for kind, slack in _BOUNDS.items()]
        printed = [(float(match.group(1)), slack) for match, slack in matches if match is not None]
        loosened = [bound - max(slack, 1e-5 * abs(bound)) for bound, slack in printed if abs(bound) < 1e20]
        return from_minimisation(self._task.arrays, max(loosened)) if loosened else None

    def ended_within_gap(self) -> bool:
        """Whether the search ended at the gap that was asked for and not at the proof.

        Builds of CBC 3 say so of every optimum, and print all digits of the gap; before, there were two.
        """
        is_closed = any(re.fullmatch(r"Gap:\s+0", line) for line in self.log)
        return not is_closed and any("within gap tolerance" in line for line in self.log)

    def _arguments(self, columns: list[str]) -> list[str]:
        options, arguments = self._task.options, ["model.mps", "-timeMode", "elapsed"]
        if options.time_limit_s is not None:
            arguments += ["-sec", f"{max(self._task.limit_s, 0.01):.3f}"]
        if options.thread_count > 1:
            arguments += ["-threads", str(100 + options.thread_count)]  # + 100: the same twice
        if options.step_limit is not None:
            arguments += ["-maxNodes", str(options.step_limit)]
        if not options.presolve:
            arguments += ["-presolve", "off", "-preprocess", "off"]
        arguments += ["-ratio", repr(options.gap)]
        arguments += ["-randomCbcSeed", str(options.seed + 1), "-randomSeed", str(options.seed + 1)]
        start = self._task.start
        if start is not None and np.isfinite(start).all() and self._arrays.is_integer.any():
            lines = [f"{j} {name} {start[j]:.17g} 0" for j, name in enumerate(columns)]
            (self._folder / "start.txt").write_text("\n".join(["Feasible - objective value 0", *lines, ""]))
            arguments += ["-mipstart", "start.txt"]
        arguments += self._more_arguments
        return [*arguments, "-solve", "-solution", "answer.txt", "-saveSolution", "values.bin"]

    def _read_values(self, data: bytes) -> Floats | None:
        """The columns from CBC's binary file, which keeps every digit.

        Two 32-bit counts, the objective, two arrays over rows and two over columns: activities first, then duals.
        """
        row_count, column_count = np.frombuffer(data, dtype=np.int32, count=2).tolist()
        if column_count != len(self._arrays.cost):
            return None
        offset = 8 + 8 * (1 + 2 * row_count)
        return np.frombuffer(data, dtype=np.float64, count=column_count, offset=offset).copy()

    def _report(self, line: str) -> None:
        match = _INCUMBENT.search(line)
        if match is None:
            return
        incumbent, bound = (
            None if text is None or abs(float(text)) > 1e20 else from_minimisation(self._task.arrays, float(text))
            for text in (match.group(1) or match.group(2), match.group(3))
        )
        self._task.report(incumbent, bound)
