"""All commands, as one parser."""

from __future__ import annotations

import argparse

from gapless import __version__
from gapless.cli import (
    asking,
    benching,
    challenging,
    completing,
    converting,
    doctoring,
    drawing,
    explaining,
    listing,
    plans,
    reporting,
    solving,
    sweeping,
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
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"gapless {__version__}")
    commands = parser.add_subparsers(metavar="command", required=True)
    solving.add_commands(commands)
    sweeping.add_commands(commands)
    asking.add_commands(commands)
    plans.add_commands(commands)
    challenging.add_commands(commands)
    explaining.add_commands(commands)
    converting.add_commands(commands)
    drawing.add_commands(commands)
    reporting.add_commands(commands)
    listing.add_commands(commands)
    benching.add_commands(commands)
    doctoring.add_commands(commands)
    completing.add_commands(commands, build_parser)
    return parser
