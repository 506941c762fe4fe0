"""What every command that solves does: run, write the plan, report the outcome."""

from __future__ import annotations

import argparse
import shlex
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.result import Result
    from gapless.system import Problem, System

__all__ = ["CUT_SHORT", "STOPPING", "command_of", "finish", "run", "write"]

CUT_SHORT = "stopped by the time limit: a longer one may give a better plan, and another one the next time"
"""What is said of a plan whose quality the clock has decided."""

STOPPING = "stopping with the best plan so far, if there is one, once it is replayed"


def run(
    system: System, problem: Problem, arguments: argparse.Namespace, stop: threading.Event, taken_s: float = 0.0
) -> Result:  # fmt: skip
    """Solve with progress on stderr; `stop` asks the solvers for what they have. `taken_s`: of the time limit, what
    went by before, such as for reading the question.
    """
    from gapless.cli.options import solving_values
    from gapless.cli.progress import progress_on_stderr
    from gapless.errors import Note
    from gapless.io.atomic import is_special
    from gapless.question.entry import Entry, solve_options
    from gapless.recipe import solve

    parameters = Entry(system).parameters(arguments.parameters)
    with progress_on_stderr(arguments.quiet) as report:
        options = solve_options(problem, {**solving_values(arguments), "on_progress": report})
        if options.time_limit_s is not None:
            options = options.within(options.time_limit_s - taken_s)
        keep = unfinished = None
        if arguments.output is not None and not is_special(arguments.output):
            keep, unfinished = partial(_keep, path=arguments.output), Path(f"{arguments.output}.part")
        asked = replace(options, stop=stop, unfinished=unfinished)
        with warnings.catch_warnings():
            warnings.simplefilter("always", Note)
            warnings.showwarning = _say
            return solve(problem, asked, parameters, command_of(arguments), keep)


def _say(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None,
    line: str | None = None,
) -> None:  # fmt: skip
    """What a solve has to say, as a line."""
    print(f"gapless: {message}", file=sys.stderr)


def _keep(result: Result, path: str) -> None:
    """Leave the best plan so far where the last one is to be."""
    result.save(path)


def command_of(arguments: argparse.Namespace) -> str:
    """The command as it was typed."""
    return shlex.join(["gapless", *arguments.command_line])


def write(path: str, write_to: Callable[[str], object]) -> tuple[str, int]:
    """Write what was found, and say where it is, with the exit code: a disk that is full now loses nothing."""
    from gapless.cli.parser import EXIT_BAD_INPUT
    from gapless.io.atomic import rescued

    where, error = rescued(path, write_to)
    if error is None:
        return where, 0
    print(f"gapless: error: {error}; it is in {where}", file=sys.stderr)
    return where, EXIT_BAD_INPUT


def finish(result: Result, arguments: argparse.Namespace, files: Mapping[str, str | None]) -> int:
    """Report the outcome; returns the exit code. `files`: what was written, by the option that asked for it."""
    from gapless.cli import output
    from gapless.solution import StopReason
    from gapless.system import find_system

    if arguments.json:
        output.print_json({**result.data, **files})
    elif not arguments.quiet:
        print(result.summary(files))
    system = find_system(result.problem.system)
    if result.schedule is None:
        status = result.status.value.replace("_", " ")
        print(f"gapless: no plan: {status}; {result.solution.stop_reason.sentence}", file=sys.stderr)
    elif not result.valid and result.report is not None:
        print(f"gapless: {result.report.summary()}", file=sys.stderr)
    elif result.solution.stop_reason is StopReason.TIME_LIMIT and not arguments.quiet:
        print(f"gapless: {CUT_SHORT}", file=sys.stderr)
    if result.solution.stop_reason is StopReason.OUT_OF_MEMORY:
        print(f"gapless: out of memory; less is needed with {system.lighter}", file=sys.stderr)
    for line in system.remarks(result.details):
        print(f"gapless: {line}", file=sys.stderr)
    return output.exit_code(result.status, result.report)
