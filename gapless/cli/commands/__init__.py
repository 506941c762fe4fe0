"""All commands, as one parser."""

from __future__ import annotations

import argparse

from gapless import __version__
from gapless.cli import sweep_file
from gapless.cli.commands import (
    challenge,
    completion,
    convert,
    emulate,
    explain_selection,
    installation,
    lists,
    plans,
    plot,
    report,
    solve,
    systems,
)
from gapless.cli.parser import Parser

__all__ = ["build_parser"]

_EPILOG = """\
exit codes: 0 solved and replayed clean, 2 bad input, 3 proven infeasible, 4 no solution within the limit,
5 the replay found violations

example (`gapless list systems`, `gapless solve SYSTEM --help`):
  gapless check plan.json
  gapless report plan.json -o report.html
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = Parser(
        prog="gapless",
        description="Schedules for ML systems: solved with open solvers, replayed before you see them.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"gapless {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    solve.add_commands(commands)
    sweep_file.add_commands(commands)
    systems.add_commands(commands)
    plans.add_commands(commands)
    challenge.add_commands(commands)
    explain_selection.add_commands(commands)
    convert.add_commands(commands)
    emulate.add_commands(commands)
    plot.add_commands(commands)
    report.add_commands(commands)
    lists.add_commands(commands)
    installation.add_commands(commands)
    completion.add_commands(commands, build_parser)
    return parser
