"""`planwright solve`: one subcommand a system."""

from __future__ import annotations

from typing import Any

from planwright.cli import solve_bagpipe, solve_cupcake, solve_monet, solve_taccl

__all__ = ["add_commands"]


def add_commands(commands: Any) -> None:
    """Add `solve` with its systems."""
    parser = commands.add_parser("solve", help="solve a problem, replay the schedule, write the plan")
    systems = parser.add_subparsers(metavar="system", required=True)
    for system in (solve_taccl, solve_monet, solve_bagpipe, solve_cupcake):
        system.add_command(systems)
