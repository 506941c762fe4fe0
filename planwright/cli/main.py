"""`planwright`: the parser, the exit codes, and the one place where an error becomes a line."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from planwright import __version__
from planwright.cli import (
    advising,
    completing,
    doctoring,
    drawing,
    executing,
    listing,
    plans,
    reporting,
    solving,
    sweeping,
)
from planwright.cli.parser import EXIT_BAD_INPUT, Parser
from planwright.errors import PlanwrightError

__all__ = ["main", "script"]

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it

_EPILOG = """\
exit codes: 0 solved and replayed clean, 2 bad input, 3 proven infeasible, 4 no solution within the limit,
5 the replay found violations

example:
  planwright solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB -o plan.json
  planwright check plan.json
"""


def script() -> NoReturn:
    """`planwright` in a shell. After the second Ctrl-C, nothing waits for the threads of solvers that still run."""
    code = main()
    if code == EXIT_INTERRUPTED:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    try:
        arguments = _parser().parse_args(argv)
        arguments.command_line = list(sys.argv[1:] if argv is None else argv)
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except PlanwrightError as error:
        print(f"planwright: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except KeyboardInterrupt:
        print("planwright: interrupted; no half-written file is left", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="planwright",
        description="Schedules for ML systems: solved with open solvers, replayed before you see them.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"planwright {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    solving.add_commands(commands)
    sweeping.add_commands(commands)
    executing.add_commands(commands)
    advising.add_commands(commands)
    plans.add_commands(commands)
    drawing.add_commands(commands)
    reporting.add_commands(commands)
    listing.add_commands(commands)
    doctoring.add_commands(commands)
    completing.add_commands(commands, _parser)
    return parser


if __name__ == "__main__":
    script()
