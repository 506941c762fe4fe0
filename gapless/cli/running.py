"""What every command that solves does: run, stop on Ctrl-C, write the plan, report the outcome."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.result import Result
    from gapless.system import Problem, System

__all__ = ["command_of", "finish", "run", "stop_on_interrupt", "while_written"]


def run(system: System, problem: Problem, arguments: argparse.Namespace) -> Result:
    """Solve with progress on stderr; the first Ctrl-C asks the solvers to stop, the second leaves at once."""
    from gapless.cli.options import solving_values
    from gapless.cli.progress import progress_on_stderr
    from gapless.entry import Entry, solve_options
    from gapless.recipe import solve

    stop = arguments.stop = threading.Event()
    line = "stopping with the best plan so far, if there is one, once it is replayed; Ctrl-C again leaves at once"
    parameters = Entry(system).parameters(arguments.parameters)
    with stop_on_interrupt(stop, line), progress_on_stderr(arguments.quiet) as report:
        options = solve_options(problem, {**solving_values(arguments), "on_progress": report})
        keep = None if arguments.output is None else partial(_keep, path=arguments.output)
        return solve(problem, replace(options, stop=stop), parameters, command_of(arguments), keep)


def _keep(result: Result, path: str) -> None:
    """Leave the best plan so far where the last one is to be."""
    result.save(path)


def command_of(arguments: argparse.Namespace) -> str:
    """The command as it was typed."""
    return shlex.join(["gapless", *arguments.command_line])


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


def finish(result: Result, arguments: argparse.Namespace, beside: Mapping[str, Any]) -> int:
    """Write the plan if it replayed clean, report the outcome, return the exit code.

    `beside`: other files that were written, by the option that asked for them.
    """
    from gapless.cli import output
    from gapless.system import find_system

    written = None
    if result.valid and arguments.output is not None:
        with while_written(arguments):
            result.save(arguments.output)
        written = arguments.output
    files = {**beside, "plan": written}
    if arguments.json:
        output.print_json({**result.data, **files})
    elif not arguments.quiet:
        print(result.summary())
        for name, path in files.items():
            if path is not None:
                print(f"{name:<16} {path}")
    if result.schedule is None:
        status = f"{result.status.value} ({result.solution.stop_reason.value})"
        print(f"gapless: no plan: {status}", file=sys.stderr)
    elif not result.valid and result.report is not None:
        print(f"gapless: {result.report.summary()}", file=sys.stderr)
    for line in find_system(result.problem.system).remarks(result.details):
        print(f"gapless: {line}", file=sys.stderr)
    return output.exit_code(result.status, result.report)
