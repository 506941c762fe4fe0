"""`gapless solve bagpipe`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.clusters import add_cluster_options
from gapless.cli.running import claim_to_keep, finish, run
from gapless.cli.traces import add_trace_options
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.bagpipe.problem import Problem
    from gapless.recipe import Result

__all__ = ["add_command", "read_problem", "write_run_of"]

_EXAMPLE = """\
example:
  gapless solve bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 200 --batches 50 -o plan.npz
"""


def add_command(systems: Any) -> None:
    """Add `bagpipe` to the systems of `solve`."""
    parser = systems.add_parser(
        "bagpipe",
        help="caching and partitioning for recommendation training",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    add_trace_options(group)
    group.add_argument("--trainers", type=shared.Whole(1, 2**15 - 1), required=True, metavar="P")
    group.add_argument("--batch-size", type=shared.Whole(1), required=True, metavar="N", help="examples of a batch")
    group.add_argument("--lookahead", type=shared.Whole(1), metavar="L", help="in batches (default 200)")
    group.add_argument("--cache-rows", type=shared.Whole(1), metavar="N", help="L is what fits, and shrinks to fit")
    group.add_argument("--objective", default="paper", metavar="NAME", help="paper (default), fetches, max-load")
    group.add_argument(
        "--method", default="auto", metavar="NAME",
        help="auto (default), transport, search, milp, lp, min_cost_flow, contiguous, random",
    )  # fmt: skip
    group.add_argument("--ownership", default="first-touch", metavar="NAME", help="first-touch (default) or hash")
    group.add_argument("--batches", type=shared.Whole(1), metavar="N", help="(default 50)")
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write, ending in .npz")
    add_cluster_options(parser.add_argument_group("cluster"))
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve)


def _solve(arguments: argparse.Namespace) -> int:
    from gapless.io.atomic import check_writable

    if arguments.output is not None:
        if not arguments.output.endswith(".npz"):
            raise InputError(f"--output: a plan of bagpipe is a .npz file, got {arguments.output!r}")
        check_writable(arguments.output)
    return finish(run(read_problem(arguments), arguments), arguments, {}, write_run_of)


def read_problem(arguments: argparse.Namespace) -> Problem:
    """The problem that the options describe."""
    from gapless.encodings.bagpipe.question import problem

    return problem(**shared.given(arguments, problem))


def write_run_of(path: str, result: Result) -> None:
    """Write a result that has a schedule as a .npz file."""
    from gapless.encodings.bagpipe.run_file import write_run

    product = result.product
    told = {"problem": result.problem.description, "claim": claim_to_keep(result), "details": result.details}
    write_run(path, product.actions, product.users, product.trainer, product.times, product.machine, told)
