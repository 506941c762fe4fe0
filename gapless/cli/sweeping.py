"""`gapless sweep`: the instances of a file; one problem under many budgets, or for many sizes."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli import sweep_file, sweep_taccl
from gapless.cli.running import stop_on_interrupt
from gapless.cli.solve_monet import add_graph_options, add_objective_option, bytes_of, read_graph

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.monet.tradeoff import Row

__all__ = ["add_commands"]

_TIME_LIMIT_S = 120.0

_EXAMPLE = """\
A file in TOML or JSON lists instances of any system: `gapless sweep file --help`.

example (`gapless sweep SYSTEM --help` has more):
  gapless sweep grid.toml -o results
  gapless sweep monet --graph resnet50 --batch 184 --budgets 6GiB,0.6x --gap 0.02 -o curve
"""

_MONET_EXAMPLE = """\
Every budget gets the time limit for itself and a plan file in the folder, with the table as summary.csv and
summary.json. The same command again goes on with the budgets that have no answer yet. An infeasible budget is a row.
Ctrl-C ends it with the best plans so far; the same command goes on from them.

exit codes: 0 every budget is answered, 2 bad input, 4 some have no answer yet, 5 a replay found violations

example:
  gapless sweep monet --graph resnet50 --batch 184 --budgets 5GiB,6GiB,7GiB,0.6x --gap 0.02 -o curve --plot c.pdf
"""

_COSTS = {
    "time": (("cost_s", "cost"), ("bound_s", "bound")),
    "energy": (("cost_s", "time"), ("energy_j", "energy"), ("bound_j", "bound")),
}
"""The columns of the table that depend on the objective."""


def add_commands(commands: Any) -> None:
    """Add `sweep` with its systems."""
    parser = commands.add_parser(
        "sweep",
        help="solve the instances of a file, or a problem under many budgets or for many sizes",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.takes_files = dict.fromkeys(sweep_file.ENDINGS, sweep_file.NAME)
    systems = parser.add_subparsers(metavar="system", required=True)
    sweep_file.add_command(systems)
    _add_monet(systems)
    sweep_taccl.add_command(systems)


def _add_monet(systems: Any) -> None:
    parser = systems.add_parser(
        "monet",
        help="overhead against memory",
        epilog=_MONET_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    add_graph_options(group)
    group.add_argument("--budgets", type=_budgets, required=True, metavar="B,B,...", help="such as 5GiB,6GB,0.5x")
    add_objective_option(group)
    group.add_argument("-o", "--output", required=True, metavar="DIR", help="folder for the plans and the table")
    group.add_argument("--plot", metavar="FILE", help="draw the curve: .pdf, .png, .svg (needs the extra `plot`)")
    shared.add_solve_options(parser, _TIME_LIMIT_S)
    group = parser.add_argument_group("processes")
    group.add_argument(
        "--workers", type=shared.Whole(0), default=0, metavar="N", help="budgets at once, N x threads <= cores"
    )
    shared.add_output_options(parser)
    parser.set_defaults(run=_sweep_monet)


def _budgets(text: str) -> list[tuple[int, float | None]]:
    return [shared.budget(part) for part in text.split(",")]


def _sweep_monet(arguments: argparse.Namespace) -> int:
    from gapless.cli.progress import progress_on_stderr
    from gapless.encodings.monet import Problem
    from gapless.encodings.monet.sweep import sweep
    from gapless.plot import check_plot, write_plot

    if arguments.plot is not None:
        check_plot(arguments.plot)
    graph = read_graph(arguments)
    budgets = sorted({bytes_of(budget, graph) for budget in arguments.budgets})
    stop = threading.Event()
    line = "stopping with the best plans so far; the same command goes on from them; Ctrl-C again leaves at once"
    with stop_on_interrupt(stop, line), progress_on_stderr(arguments.quiet) as on_progress:
        options = shared.solve_options(arguments, Problem(graph, budgets[0]).default_options, on_progress, stop)
        rows = sweep(graph, budgets, options, arguments.workers, arguments.output, arguments.objective)
        if arguments.plot is not None:
            write_plot(arguments.plot, rows, "energy" if arguments.objective == "energy" else "compute")
    if arguments.json:
        _print_json(arguments, rows)
    elif not arguments.quiet:
        _print_table(rows, arguments.objective)
    return _verdict(rows, budgets)


def _verdict(rows: Sequence[Row], budgets: Sequence[int]) -> int:
    """The exit code, with a line on stderr where something is missing."""
    from gapless.cli.output import EXIT_CODES, EXIT_VIOLATIONS
    from gapless.solution import Status

    if any(row.violations for row in rows):
        return EXIT_VIOLATIONS
    answered = sum(row.status is not Status.NO_SOLUTION and not row.is_interrupted for row in rows)
    if answered == len(budgets):
        return 0
    begun = sum(row.is_interrupted and row.plan is not None for row in rows)
    tail = f", {begun} more a plan to go on from" if begun else ""
    print(f"gapless: {answered} of {len(budgets)} budgets have an answer{tail}", file=sys.stderr)
    return EXIT_CODES[Status.NO_SOLUTION]


def _print_json(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    from gapless.cli.output import print_json
    from gapless.encodings.monet.tradeoff import SUMMARY_CSV, SUMMARY_JSON

    folder = Path(arguments.output)
    files = {"folder": str(folder), "csv": str(folder / SUMMARY_CSV), "json": str(folder / SUMMARY_JSON)}
    asked = {"problem": "monet", "objective": arguments.objective}
    print_json({**asked, **files, "plot": arguments.plot, "rows": [row.data for row in rows]})


def _print_table(rows: Sequence[Row], objective: str) -> None:
    from gapless.text import described, table

    columns = (
        ("budget_bytes", "budget"), ("memory_ratio", "ratio"), ("status", "status"), *_COSTS[objective],
        ("gap", "gap"), ("overhead", "overhead"), ("peak_bytes", "peak"), ("solve_s", "solved in"),
    )  # fmt: skip
    lines = [[title for _, title in columns]]
    for row in rows:
        overhead = None if row.overhead is None else f"{100 * row.overhead:.2f} %"
        data = {**row.data, "status": row.verdict, "overhead": overhead}
        lines.append([described(name, data[name]) for name, _ in columns])
    print(table(lines))
