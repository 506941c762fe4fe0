"""What every `solve` does on the command line: run, stop on Ctrl-C, write the plan, tell the outcome."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.progress_log import ProgressLog
    from gapless.recipe import Result
    from gapless.system import Problem

__all__ = ["claim_to_keep", "finish", "run", "stop_on_interrupt", "while_written", "write_plan_of"]

_SHOWN = (
    "status", "stop_reason", "makespan_s", "energy_j", "bound_s", "bound_j", "gap", "ratio", "overhead",
    "overhead_bound", "peak_bytes", "least_budget_bound_bytes", "least_budget_found_bytes", "sends", "solve_s",
    "stages", "solver", "method", "nodes", "scaling", "exposed_s", "batches_planned", "fetched_rows", "sync_now_rows",
    "sync_later_rows", "evicted_rows", "cache_rows_peak", "partition_cost", "partition_bound", "iteration_s", "plan",
    "xml",
)  # fmt: skip
"""What a summary for people has of the JSON object, where it is there."""


def run(problem: Problem, arguments: argparse.Namespace) -> Result:
    """Solve with progress on stderr; the first Ctrl-C asks the solvers to stop, the second leaves at once."""
    from gapless.cli.progress import progress_on_stderr
    from gapless.progress_log import ProgressLog
    from gapless.recipe import solve

    stop = arguments.stop = threading.Event()
    line = "stopping with the best plan so far, if there is one, once it is replayed; Ctrl-C again leaves at once"
    with stop_on_interrupt(stop, line), progress_on_stderr(arguments.quiet) as tell:
        log = ProgressLog(tell)
        result = solve(problem, shared.solve_options(arguments, problem.default_options, log, stop))
    return replace(result, run=run_data(arguments, log))


def run_data(arguments: argparse.Namespace, log: ProgressLog) -> dict[str, Any]:
    """How a plan came to be: the command, the versions, and how incumbent and bound converged."""
    from gapless.doctor import library_versions

    convergence = log.convergence
    return {
        "command": shlex.join(["gapless", *arguments.command_line]),
        "versions": library_versions(),
        "convergence": None if convergence is None else convergence.data,
    }


@contextmanager
def stop_on_interrupt(stop: threading.Event, line: str) -> Iterator[None]:
    """The first Ctrl-C sets `stop` and prints `line`, the second raises `KeyboardInterrupt`."""

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print(f"gapless: {line}", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def while_written(arguments: argparse.Namespace) -> AbstractContextManager[None]:
    """For writing what `run` found: the first Ctrl-C since then waits for the file, the second leaves at once."""
    return stop_on_interrupt(arguments.stop, "writing what was found; Ctrl-C again leaves at once")


def finish(
    result: Result,
    arguments: argparse.Namespace,
    also: dict[str, Any],
    write: Callable[[str, Result], None] | None = None,
) -> int:
    """Write the plan if it replayed clean, tell the outcome and what is `also` to be told, return the exit code.

    `write`: how, for a system with files of its own.
    """
    from gapless.cli import output
    from gapless.io.plan import claim_data

    problem, claim = result.problem, claim_data(result.solution)
    written = None
    if result.schedule is not None and result.valid and arguments.output is not None:
        with while_written(arguments):
            (write or write_plan_of)(arguments.output, result)
        written = arguments.output
    data = {
        "problem": problem.system,
        **claim,
        **output.report_data(result.report),
        **result.details,
        **({"stages": dict(result.timings)} if result.timings else {}),
        **also,
        "plan": written,
    }
    if arguments.json:
        output.print_json(data)
    elif not arguments.quiet:
        _print_outcome(result, data)
    code = output.exit_code(result.status, result.report)
    if result.schedule is None:
        print(f"gapless: no plan: {result.status.value} ({result.solution.stop_reason.value})", file=sys.stderr)
    elif not result.valid and result.report is not None:
        print(f"gapless: {result.report.summary()}", file=sys.stderr)
    return code


def write_plan_of(path: str, result: Result) -> None:
    """Write a result that has a schedule as a plan file."""
    from gapless.io.plan import SavedPlan, write_plan

    assert result.schedule is not None
    problem, claim = result.problem, claim_to_keep(result)
    write_plan(path, SavedPlan(problem.system, problem.description, claim, result.details, result.schedule))


def claim_to_keep(result: Result) -> dict[str, Any]:
    """What a plan file has of the solver's claim, and how the plan was made."""
    from gapless.io.plan import RUN, claim_data

    return {**claim_data(result.solution), **({RUN: dict(result.run)} if result.run else {})}


def _print_outcome(result: Result, data: dict[str, Any]) -> None:
    from gapless.text import described, words

    asked = {name: value for name, value in result.problem.description.items() if not isinstance(value, list)}
    for name, value in {**asked, **{key: data[key] for key in _SHOWN if key in data}}.items():
        print(f"{words(name):<16} {described(name, value)}")
