"""`gapless solve cupcake`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.networks import add_network_options
from gapless.cli.running import finish, run

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.cupcake import Problem

__all__ = ["add_command", "read_problem"]

_EXAMPLE = """\
example:
  gapless solve cupcake --profile resnet101 -o plan.json
  gapless solve cupcake --profile bert-base --compressor powersgd --ranks 64 --bandwidth 10Gbps -o plan.json
"""


def add_command(systems: Any) -> None:
    """Add `cupcake` to the systems of `solve`."""
    parser = systems.add_parser(
        "cupcake",
        help="the optimal fusion of gradients for compression",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    group.add_argument(
        "--profile", required=True, metavar="NAME|FILE", help="a fusion profile: `gapless list profiles`, or a file"
    )
    group.add_argument(
        "--method",
        default="auto",
        metavar="NAME",
        help="auto (default), affine, pareto, milp, algorithm1, layer-wise, one-group, buckets, even-split, selective",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    other = parser.add_argument_group("other costs than the profile's")
    other.add_argument("--compressor", metavar="NAME", help="`gapless list compressors`; needs a network")
    other.add_argument("--device", metavar="NAME", help="where gradients are encoded and decoded (default v100)")
    add_network_options(other)
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve)


def _solve(arguments: argparse.Namespace) -> int:
    from gapless.io.atomic import check_writable

    if arguments.output is not None:
        check_writable(arguments.output)
    return finish(run(read_problem(arguments), arguments), arguments, {})


def read_problem(arguments: argparse.Namespace) -> Problem:
    """The problem that the options describe."""
    from gapless.encodings.cupcake.question import problem

    return problem(**shared.given(arguments, problem))
