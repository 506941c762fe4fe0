"""`gapless solve`: one subcommand a system."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gapless.cli import solve_bagpipe, solve_cupcake, solve_monet, solve_taccl
from gapless.cli.running import write_plan_of

if TYPE_CHECKING:  # imported by the commands themselves: --help stays fast
    from gapless.recipe import Result
    from gapless.system import Problem

__all__ = ["SYSTEMS", "System", "add_commands"]

_EXAMPLE = """\
example (`gapless solve SYSTEM --help` has more):
  gapless solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB -o plan.json
  gapless solve cupcake --profile resnet101 -o fusion.json
"""


@dataclass(frozen=True)
class System:
    """What `solve` and the sweeps know of a system.

    `add_command` adds its subcommand to a parser, `read_problem` makes the problem of what was parsed, `try_problem`
    one that is refused for the same and may be quicker to make. `write` writes a result that has a schedule, into a
    file whose name ends in `ending`.
    """

    add_command: Callable[[Any], None]
    read_problem: Callable[[argparse.Namespace], Problem]
    try_problem: Callable[[argparse.Namespace], Problem]
    write: Callable[[str, Result], None] = write_plan_of
    ending: str = ".json"


SYSTEMS = {
    "taccl": System(solve_taccl.add_command, solve_taccl.read_problem, solve_taccl.read_problem),
    "monet": System(solve_monet.add_command, solve_monet.read_problem, solve_monet.read_problem),
    "bagpipe": System(
        solve_bagpipe.add_command, solve_bagpipe.read_problem, solve_bagpipe.read_problem,
        solve_bagpipe.write_run_of, ".npz",
    ),
    "cupcake": System(solve_cupcake.add_command, solve_cupcake.read_problem, solve_cupcake.read_problem),
}  # fmt: skip


def add_commands(commands: Any) -> None:
    """Add `solve` with its systems."""
    parser = commands.add_parser(
        "solve",
        help="solve a problem, replay the schedule, write the plan",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    systems = parser.add_subparsers(metavar="system", required=True)
    for system in SYSTEMS.values():
        system.add_command(systems)
