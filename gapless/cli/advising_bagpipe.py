"""`gapless advise bagpipe`: which cache design and which lookahead suit a trace and a cluster."""

from __future__ import annotations

import argparse
from typing import Any

from gapless.cli import arguments as shared
from gapless.cli.clusters import add_cluster_options
from gapless.cli.traces import add_trace_options

__all__ = ["add_question"]

_EXAMPLE = """\
Batches are planned for a window of the lookahead and as many again (50 at least), and their times follow from the
cluster. `critical`: rows synchronised while training waits; of a partitioned cache, what its busiest trainer sends and
receives, once each way. With a cache size, lookaheads that fit are tried first, and the smallest within 1 % of the
fastest is taken.

examples:
  gapless advise bagpipe --trace criteo-like --trainers 8 --batch-size 16384 --lookahead 50
  gapless advise bagpipe --trace clicks.csv --columns user,item --trainers 4 --cache-size 200MB --fetch-latency 50ms
"""


def add_question(questions: Any) -> None:
    """Add `bagpipe` to the questions of `advise`."""
    parser = questions.add_parser(
        "bagpipe",
        help="cache designs side by side, and the lookahead for a cache",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_trace_options(parser.add_argument_group("trace"))
    group = parser.add_argument_group("problem")
    group.add_argument("--trainers", type=shared.Whole(1, 10_000), default=8, metavar="N", help="(default 8)")
    group.add_argument("--batch-size", type=shared.Whole(1), default=16_384, metavar="N", help="(default 16384)")
    group.add_argument(
        "--lookahead", type=shared.Whole(1, 10_000), metavar="L",
        help="batches (default 200); with a cache size, the largest to try",
    )  # fmt: skip
    group.add_argument(
        "--cache-rows", type=shared.Whole(1, 2**40), metavar="N", help="tune the lookahead for this cache"
    )
    group.add_argument("--cache-size", type=shared.size, metavar="SIZE", help="the same, in bytes such as 500MB")
    group.add_argument("--batches", type=shared.Whole(1), metavar="N", help="plan no more than so many each time")
    group.add_argument(
        "--objective", default="paper", metavar="NAME", help="of the partition: paper (default), fetches, max-load"
    )
    group.add_argument("--design", default="lrpp-delayed", metavar="NAME", help="to tune for (default lrpp-delayed)")
    add_cluster_options(parser.add_argument_group("cluster"))
    shared.add_output_options(parser)
    parser.set_defaults(run=_advise)


def _advise(arguments: argparse.Namespace) -> int:
    from gapless.encodings.bagpipe.advice import advise
    from gapless.encodings.bagpipe.cluster import find_cluster

    return shared.print_answer(arguments, advise(**shared.given(arguments, advise, find_cluster)))
