"""`gapless sweep taccl`."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.running import stop_on_interrupt
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.taccl.sweep import Outcome, Request

__all__ = ["add_command"]

_TIME_LIMIT_S = 600.0

_EXAMPLE = """\
A size is that of the larger of one rank's two buffers, as the runtimes compare it with minBytes and maxBytes. Every
size gets a plan of its own and an even share of the time limit; then every plan is tried at every size, with every
number of instances and in pieces, beside ring, tree, doubling, direct and hierarchical algorithms, and the fastest
serves the size. The folder gets xml/ with one program for each range of sizes, the plans, and the table as summary.csv
and summary.json. The same command again goes on with the sizes that have no plan yet, or would get more time now.
Ctrl-C ends the synthesis and chooses from what is there.

exit codes: 0 every size has its plan and is served, 2 bad input, 4 some have no plan yet or nothing can be lowered

example:
  gapless sweep taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather \\
      --min-size 1KB --max-size 1GB --factor 4 --time-limit 120 -o allgather
"""


def add_command(systems: Any) -> None:
    """Add `taccl` to the systems of `sweep`."""
    parser = systems.add_parser(
        "taccl",
        help="one collective for a range of sizes: a program for each, beside the usual algorithms",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_problem(parser.add_argument_group("problem"))
    group = parser.add_argument_group("instances")
    group.add_argument(
        "--instances", type=_numbers, default=(1, 2, 4, 8), metavar="N,N,...", help="to choose from (default 1,2,4,8)"
    )
    group.add_argument(
        "--block-bandwidth", type=shared.bandwidth, default=20e9, metavar="B", help="of a thread block (default 20GB/s)"
    )
    group.add_argument(
        "--alpha-growth",
        type=shared.Number(0),
        default=0.05,
        metavar="G",
        help="part of a link's alpha that each further instance adds (default 0.05)",
    )
    group = parser.add_argument_group("TACCL-EF")
    group.add_argument("--proto", choices=["Simple", "LL", "LL128"], default="Simple", help="(default Simple)")
    group.add_argument(
        "--placement", choices=["out-of-place", "in-place", "both"], default="both", help="buffers served"
    )
    group.add_argument(
        "--runtime", choices=["both", "executor", "original"], default="both", help="whose limits to keep"
    )
    shared.add_solve_options(parser, _TIME_LIMIT_S)
    shared.add_output_options(parser)
    parser.set_defaults(run=_sweep)


def _add_problem(group: Any) -> None:
    shared.add_topology_options(group)
    group.add_argument("--sketch", metavar="NAME", help="a shipped sketch: `gapless list sketches`")
    group.add_argument("--sketch-file", metavar="FILE", help="a sketch in TACCL's format")
    group.add_argument("--collective", default="allgather", metavar="NAME", help="allgather (default)")
    group.add_argument("--min-size", type=shared.size, default=1000, metavar="SIZE", help="(default 1KB)")
    group.add_argument("--max-size", type=shared.size, default=10**9, metavar="SIZE", help="(default 1GB)")
    group.add_argument("--factor", type=shared.Whole(2), default=4, metavar="N", help="between sizes (default 4)")
    group.add_argument("--sizes", type=_sizes, metavar="SIZE,SIZE,...", help="these, instead of a range")
    group.add_argument(
        "--parts",
        type=_numbers,
        metavar="N,N,...",
        help="into how many parts chunks are cut, each way tried (default 1,2, and without a sketch the best number)",
    )
    group.add_argument(
        "--tolerance",
        type=shared.Number(0),
        default=0.0,
        metavar="T",
        help="a plan serves a size if it is at most (1 + T) times as slow as the fastest (default 0)",
    )
    group.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for programs, plans and the table")


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(shared.size(part) for part in text.split(","))


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(shared.Whole(1, 64)(part) for part in text.split(","))


def _sweep(arguments: argparse.Namespace) -> int:
    from gapless.cli.progress import progress_on_stderr
    from gapless.encodings.taccl.sweep import sweep

    request = _request(arguments)
    stop = threading.Event()
    default = request.problem(request.sizes_bytes[-1], 1).default_options
    line = "choosing from the plans so far; the same command goes on; Ctrl-C again leaves at once"
    with stop_on_interrupt(stop, line), progress_on_stderr(arguments.quiet) as on_progress:
        outcome = sweep(request, shared.solve_options(arguments, default, on_progress, stop), arguments.output)
    if arguments.json:
        _print_json(arguments, outcome)
    elif not arguments.quiet:
        _print_tables(outcome)
    return _verdict(outcome)


def _request(arguments: argparse.Namespace) -> Request:
    from gapless.encodings import taccl
    from gapless.encodings.taccl.programs.instances import InstanceCosts
    from gapless.encodings.taccl.sweep import Request, sizes_between
    from gapless.topologies.files import load_topology

    if arguments.sketch is not None and arguments.sketch_file is not None:
        raise InputError("give --sketch or --sketch-file, not both")
    if arguments.topology is None and arguments.topology_file is None:
        raise InputError("give --topology NAME (`gapless list topologies`) or --topology-file FILE")
    sketch = None
    if arguments.sketch_file is not None:
        sketch = taccl.read_sketch(arguments.sketch_file)
    elif arguments.sketch is not None:
        sketch = taccl.load_sketch(arguments.sketch)
    nodes = arguments.nodes or (sketch.node_count if sketch is not None else None)
    sizes = arguments.sizes or sizes_between(arguments.min_size, arguments.max_size, arguments.factor)
    return Request(
        topology=load_topology(arguments.topology, nodes, arguments.topology_file),
        collective=arguments.collective,
        sizes_bytes=sizes,
        instances=arguments.instances,
        parts=arguments.parts,
        sketch=sketch,
        costs=InstanceCosts(arguments.block_bandwidth, arguments.alpha_growth),
        lowering={key: getattr(arguments, key) for key in ("proto", "placement", "runtime")},
        tolerance=arguments.tolerance,
    )


def _verdict(outcome: Outcome) -> int:
    """The exit code, with a line on stderr where something is missing."""
    from gapless.cli.output import EXIT_CODES
    from gapless.solution import Status

    if outcome.is_complete:
        return 0
    if not outcome.ranges and outcome.refused:
        first = outcome.refused[0]
        print(f"gapless: nothing could be lowered; {first['plan']}: {first['reason']}", file=sys.stderr)
    else:
        solved = sum(row.solve_s is not None for row in outcome.rows)
        print(f"gapless: {solved} of {len(outcome.rows)} sizes have a plan of their own", file=sys.stderr)
    return EXIT_CODES[Status.NO_SOLUTION]


def _print_json(arguments: argparse.Namespace, outcome: Outcome) -> None:
    from gapless.cli.output import print_json
    from gapless.encodings.taccl.sweep.table import SUMMARY_CSV, SUMMARY_JSON

    folder = Path(arguments.output)
    files = {"folder": str(folder), "csv": str(folder / SUMMARY_CSV), "json": str(folder / SUMMARY_JSON)}
    rows = [row.data for row in outcome.rows]
    found = {"complete": outcome.is_complete, "ranges": outcome.ranges, "refused": outcome.refused, "rows": rows}
    print_json({"problem": "taccl", "collective": arguments.collective, **files, **found})


def _print_tables(outcome: Outcome) -> None:
    from gapless.text import described, table

    columns = (
        ("size_bytes", "size"), ("plan", "plan"), ("instances", "x"), ("makespan_s", "time"),
        ("algbw_bytes_per_s", "algbw"), ("ratio_to_bound", "/ bound"), ("ratio_to_baseline", "/ baseline"),
        ("synthesised_ratio", "synthesised /"), ("baseline", "best baseline"), ("baseline_s", "its time"),
        ("solve_s", "solved in"),
    )  # fmt: skip
    cells = [[described(name, row.data[name]) for name, _ in columns] for row in outcome.rows]
    print(table([[title for _, title in columns], *cells]))
    if outcome.ranges:
        print()
        heads = ("min_bytes", "max_bytes", "instances", "xml")
        print(table([heads, *([str(its[name]) for name in heads] for its in outcome.ranges)]))
