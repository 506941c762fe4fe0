"""`planwright solve bagpipe`."""

from __future__ import annotations

import argparse
from typing import Any

from planwright.cli import arguments as shared
from planwright.cli.clusters import add_cluster_options, read_cluster_options
from planwright.cli.running import finish, run
from planwright.cli.traces import add_trace_options, read_trace_options

__all__ = ["add_command"]

_EXAMPLE = """\
example:
  planwright solve bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 200 --batches 50
"""
_BATCHES = 50


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
    group.add_argument("--trainers", type=shared.whole(1, 2**15 - 1), required=True, metavar="P")
    group.add_argument("--batch-size", type=shared.whole(1), required=True, metavar="N", help="examples of a batch")
    group.add_argument("--lookahead", type=shared.whole(1), metavar="L", help="in batches (default 200)")
    group.add_argument("--cache-rows", type=shared.whole(1), metavar="N", help="L is what fits, and shrinks to fit")
    group.add_argument("--objective", default="paper", metavar="NAME", help="paper (default), fetches, max-load")
    group.add_argument(
        "--method", default="auto", metavar="NAME",
        help="auto (default), transport, search, milp, lp, min_cost_flow, contiguous, random",
    )  # fmt: skip
    group.add_argument("--ownership", default="first-touch", metavar="NAME", help="first-touch (default) or hash")
    group.add_argument("--batches", type=shared.whole(1), default=_BATCHES, metavar="N", help=f"(default {_BATCHES})")
    group.add_argument("--search-rounds", type=shared.whole(0), default=24, metavar="N", help="a batch (default 24)")
    group.add_argument(
        "--bound-rounds", type=shared.whole(0), default=0, metavar="N", help="a batch; 0 for no bound (default)"
    )
    add_cluster_options(parser.add_argument_group("cluster"))
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve, output=None)


def _solve(arguments: argparse.Namespace) -> int:
    from planwright.encodings.bagpipe import Effort, Planning
    from planwright.encodings.bagpipe.problem import Problem

    names = ("trainers", "batch_size", "lookahead", "cache_rows", "objective", "method", "ownership", "batches")
    planning = Planning(**{name: getattr(arguments, name) for name in names})
    effort = Effort(arguments.search_rounds, arguments.bound_rounds, with_bound=arguments.bound_rounds > 0)
    cluster = read_cluster_options(arguments, arguments.trainers)
    problem = Problem(read_trace_options(arguments), planning, cluster, effort)
    return finish(run(problem, arguments), arguments, {})
