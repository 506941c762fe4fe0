"""`planwright solve`: one subcommand a system."""

from __future__ import annotations

import argparse
from typing import Any

from planwright.cli import solve_bagpipe, solve_cupcake, solve_monet, solve_taccl

__all__ = ["add_commands"]

_EXAMPLE = """\
example (`planwright solve SYSTEM --help` has more):
  planwright solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB -o plan.json
  planwright solve cupcake --profile resnet101 -o fusion.json
"""


def add_commands(commands: Any) -> None:
    """Add `solve` with its systems."""
    parser = commands.add_parser(
        "solve",
        help="solve a problem, replay the schedule, write the plan",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    systems = parser.add_subparsers(metavar="system", required=True)
    for system in (solve_taccl, solve_monet, solve_bagpipe, solve_cupcake):
        system.add_command(systems)
