"""`gapless sweep`: the instances of a file, and what systems bring to answer one question many times."""

from __future__ import annotations

import argparse
from typing import Any

from gapless.cli import sweep_file
from gapless.cli.commands.systems import add_command
from gapless.system import find_system, system_names

__all__ = ["add_commands"]

_EXAMPLE = """\
A file in TOML or JSON lists instances of any system: `gapless sweep file --help`.

example (`gapless sweep SYSTEM --help` has more):
  gapless sweep grid.toml -o results
"""


def add_commands(commands: Any) -> None:
    """Add `sweep` with the sweeps of the systems."""
    parser = commands.add_parser(
        "sweep",
        help="solve the instances of a file, or a question for many sizes or budgets",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.takes_files = dict.fromkeys(sweep_file.ENDINGS, sweep_file.NAME)
    choices = parser.add_subparsers(metavar="system", required=True)
    sweep_file.add_command(choices)
    for system in map(find_system, system_names()):
        for command in system.sweeps:
            add_command(choices, command)
