"""`gapless solve monet`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.running import finish, run
from gapless.errors import InputError

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.encodings.monet import Problem
    from gapless.profiles.training.graph import TrainingGraph
    from gapless.recipe import Result

__all__ = ["add_command", "add_graph_options", "add_objective_option", "bytes_of", "read_graph", "read_problem"]

_EXAMPLE = """\
example:
  gapless solve monet --graph resnet50 --batch 184 --device p100 --budget 8GiB --gap 0.02 -o plan.json
"""


def add_command(systems: Any) -> None:
    """Add `monet` to the systems of `solve`."""
    parser = systems.add_parser(
        "monet",
        help="checkpointing and operator selection under a memory budget",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    add_graph_options(group)
    group.add_argument("--budget", type=shared.budget, required=True, metavar="SIZE", help="8GiB, 8GB (10^9), or 0.5x")
    add_objective_option(group)
    help_text = "what decides: auto (default), or what it is compared with, such as checkmate, gist, noop, sqrt"
    group.add_argument("--method", default="auto", metavar="NAME", help=help_text)
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve)


def _solve(arguments: argparse.Namespace) -> int:
    from gapless.io.atomic import check_writable

    if arguments.output is not None:
        check_writable(arguments.output)
    result = run(read_problem(arguments), arguments)
    code = finish(result, arguments, {"objective": arguments.objective})
    if "least_budget_bound_bytes" in result.details:
        _say_least_budget(result)
    return code


def read_problem(arguments: argparse.Namespace) -> Problem:
    """The problem that the options describe."""
    from gapless.encodings.monet import Problem

    graph = read_graph(arguments)
    budget_bytes = bytes_of(arguments.budget, graph)
    return Problem(graph, budget_bytes, objective=arguments.objective, method=arguments.method)


def add_graph_options(group: Any) -> None:
    """The options that name a training graph, for `read_graph`."""
    group.add_argument("--graph", required=True, metavar="NAME|FILE", help="`gapless list profiles`, or a file")
    group.add_argument("--batch", type=shared.Whole(1), metavar="N", help="batch size of a named network")
    group.add_argument("--device", metavar="NAME", help="p100 (default), v100, a100, h100: costs of a named network")


def add_objective_option(group: Any) -> None:
    """What a step is to take the least of, as `encodings/monet/objective.py` has it."""
    help_text = "least time (default), or least energy, for graphs whose power is known"
    group.add_argument("--objective", choices=["time", "energy"], default="time", help=help_text)


def read_graph(arguments: argparse.Namespace) -> TrainingGraph:
    """The training graph that the options name."""
    from gapless.io.record import suggestion
    from gapless.profiles.training.graph_file import read_training_graph
    from gapless.profiles.training.networks import build, network_names

    if arguments.graph in network_names():
        if arguments.batch is None:
            raise InputError(f"give --batch: {arguments.graph} is built for any batch size")
        return build(arguments.graph, arguments.batch, arguments.device or "p100")
    hint = suggestion(arguments.graph, network_names())
    if arguments.batch is not None or arguments.device is not None:
        tail = f"{arguments.graph!r}" + (f"; {hint}" if hint else "")
        raise InputError(f"--batch and --device go with a named network ({', '.join(network_names())}), got {tail}")
    if hint and not Path(arguments.graph).exists():
        names = ", ".join(network_names())
        raise InputError(f"--graph: must be a file or one of {names}, got {arguments.graph!r}; {hint}")
    return read_training_graph(arguments.graph)


def bytes_of(budget: tuple[int, float | None], graph: TrainingGraph) -> int:
    """A budget from the command line in bytes, where it is a share of what the graph takes without saving."""
    from gapless.profiles.training.baseline import peak_without_saving_bytes

    size_bytes, ratio = budget
    return size_bytes if ratio is None else max(int(ratio * peak_without_saving_bytes(graph)), 1)


def _say_least_budget(result: Result) -> None:
    from gapless.units import format_bytes

    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    tail = "" if found is None else f"; a plan was found for {found} ({format_bytes(found)})"
    print(f"gapless: every plan needs at least {bound} bytes ({format_bytes(bound)}), proven{tail}", file=sys.stderr)
