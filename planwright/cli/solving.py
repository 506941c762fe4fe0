"""`planwright solve`: one subcommand a system, and what they share."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planwright.cli import arguments as shared
from planwright.errors import InputError

if TYPE_CHECKING:  # the systems are imported by the command that needs them: --help stays fast
    from planwright.profiles.training_graph import TrainingGraph
    from planwright.recipe import Problem, Result

__all__ = ["add_commands", "add_graph_options", "add_objective_option", "bytes_of", "read_graph", "stop_on_interrupt"]

_TACCL_EXAMPLE = """\
example:
  planwright solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB \\
      -o plan.json --xml allgather.xml --instances 8
"""

_SHOWN = (
    "status", "stop_reason", "makespan_s", "energy_j", "bound_s", "bound_j", "gap", "ratio", "overhead",
    "overhead_bound", "peak_bytes", "least_budget_bound_bytes", "least_budget_found_bytes", "sends", "solve_s",
    "stages", "solver", "plan", "xml",
)  # fmt: skip
"""What a summary for people has of the JSON object, where it is there."""

_MONET_EXAMPLE = """\
example:
  planwright solve monet --graph resnet50 --batch 184 --device p100 --budget 8GiB --gap 0.02 -o plan.json
"""


def add_commands(commands: Any) -> None:
    """Add `solve` with its systems."""
    parser = commands.add_parser("solve", help="solve a problem, replay the schedule, write the plan")
    systems = parser.add_subparsers(metavar="system", required=True)
    _add_taccl(systems)
    _add_monet(systems)


def _add_taccl(systems: Any) -> None:
    parser = systems.add_parser(
        "taccl",
        help="synthesise a collective for a topology under a sketch",
        epilog=_TACCL_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    group.add_argument("--topology", metavar="NAME", help="a shipped machine: `planwright list topologies`")
    group.add_argument("--topology-file", metavar="FILE", help="a topology in planwright's or TACCL's format")
    group.add_argument(
        "--nodes", type=shared.whole(1, 10**6), metavar="N", help="number of nodes (default: the sketch's, or 1)"
    )
    group.add_argument("--sketch", metavar="NAME", help="a shipped sketch: `planwright list sketches`")
    group.add_argument("--sketch-file", metavar="FILE", help="a sketch in TACCL's format")
    group.add_argument("--collective", default="allgather", metavar="NAME", help="allgather (default)")
    group.add_argument(
        "--size", type=shared.size, metavar="SIZE", help="one rank's input buffer, such as 1MB = 10^6 bytes"
    )
    group.add_argument(
        "--path-slack",
        type=shared.number(0),
        metavar="S",
        help="only links within (1 + S) of the shortest way of a chunk (default: all)",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    group.add_argument("--xml", metavar="FILE", help="also write TACCL-EF XML")
    group.add_argument("--write-model", metavar="FILE", help="also write the routing MILP, as .lp or .mps")
    shared.add_solve_options(parser)
    shared.add_ef_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve_taccl)


def _solve_taccl(arguments: argparse.Namespace) -> int:
    from planwright.encodings.taccl.export import write_taccl_ef
    from planwright.io.atomic import check_writable

    problem = _taccl_problem(arguments)
    for path in (arguments.output, arguments.xml):
        if path is not None:
            check_writable(path)
    if arguments.write_model is not None:
        _write_model(problem, arguments.write_model)
    result = _run(problem, arguments)
    if result.schedule is not None and result.valid and arguments.xml is not None:
        write_taccl_ef(arguments.xml, result.schedule, problem.description, **shared.ef_options(arguments))
    return _finish(result, arguments, {"xml": arguments.xml if result.valid else None})


def _taccl_problem(arguments: argparse.Namespace) -> Any:
    from planwright.encodings import taccl
    from planwright.topologies.files import load_topology

    if arguments.sketch is not None and arguments.sketch_file is not None:
        raise InputError("give --sketch or --sketch-file, not both")
    if arguments.topology is None and arguments.topology_file is None:
        raise InputError("give --topology NAME (`planwright list topologies`) or --topology-file FILE")
    sketch = None
    if arguments.sketch_file is not None:
        sketch = taccl.read_sketch(arguments.sketch_file)
    elif arguments.sketch is not None:
        sketch = taccl.load_sketch(arguments.sketch)
    nodes = arguments.nodes or (sketch.node_count if sketch is not None else None) or 1
    size_bytes = arguments.size or (sketch.input_bytes if sketch is not None else None)
    if size_bytes is None:
        raise InputError("give --size: the sketch names no input_size")
    topology = load_topology(arguments.topology, nodes, arguments.topology_file)
    return taccl.Problem.of(topology, arguments.collective, size_bytes, sketch, arguments.path_slack)


def _write_model(problem: Any, path: str) -> None:
    from planwright.io.lp import write_lp
    from planwright.io.mps import write_mps

    writers = {".lp": write_lp, ".mps": write_mps}
    if Path(path).suffix not in writers:
        raise InputError(f"--write-model: the file must end in .lp or .mps, got {path!r}")
    writers[Path(path).suffix](problem.model(), path)


def _add_monet(systems: Any) -> None:
    parser = systems.add_parser(
        "monet",
        help="checkpointing and operator selection under a memory budget",
        epilog=_MONET_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    add_graph_options(group)
    group.add_argument("--budget", type=shared.budget, required=True, metavar="SIZE", help="8GiB, 8GB (10^9), or 0.5x")
    add_objective_option(group)
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    shared.add_solve_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve_monet)


def _solve_monet(arguments: argparse.Namespace) -> int:
    from planwright.encodings.monet import Problem
    from planwright.io.atomic import check_writable

    if arguments.output is not None:
        check_writable(arguments.output)
    graph = read_graph(arguments)
    problem = Problem(graph, bytes_of(arguments.budget, graph), objective=arguments.objective)
    result = _run(problem, arguments)
    code = _finish(result, arguments, {"objective": arguments.objective})
    if "least_budget_bound_bytes" in result.details:
        _say_least_budget(result)
    return code


def add_graph_options(group: Any) -> None:
    """The options that name a training graph, for `read_graph`."""
    group.add_argument("--graph", required=True, metavar="NAME|FILE", help="`planwright list profiles`, or a file")
    group.add_argument("--batch", type=shared.whole(1), metavar="N", help="batch size of a named network")
    group.add_argument("--device", metavar="NAME", help="p100 (default), v100, a100, h100: costs of a named network")


def add_objective_option(group: Any) -> None:
    """What a step is to take the least of, as `encodings/monet/objective.py` has it."""
    help_text = "least time (default), or least energy, for graphs whose power is known"
    group.add_argument("--objective", choices=["time", "energy"], default="time", help=help_text)


def read_graph(arguments: argparse.Namespace) -> TrainingGraph:
    """The training graph that the options name."""
    from planwright.profiles.networks import build, network_names
    from planwright.profiles.training_graph_file import read_training_graph

    if arguments.graph in network_names():
        if arguments.batch is None:
            raise InputError(f"give --batch: {arguments.graph} is built for any batch size")
        return build(arguments.graph, arguments.batch, arguments.device or "p100")
    if arguments.batch is not None or arguments.device is not None:
        names = ", ".join(network_names())
        raise InputError(f"--batch and --device go with a named network ({names}), got {arguments.graph!r}")
    return read_training_graph(arguments.graph)


def bytes_of(budget: tuple[int, float | None], graph: TrainingGraph) -> int:
    """A budget from the command line in bytes, where it is a share of what the graph takes without saving."""
    from planwright.profiles.baseline import peak_without_saving_bytes

    size_bytes, ratio = budget
    return size_bytes if ratio is None else max(int(ratio * peak_without_saving_bytes(graph)), 1)


def _say_least_budget(result: Result) -> None:
    from planwright.units import format_bytes

    bound, found = (result.details[f"least_budget_{title}_bytes"] for title in ("bound", "found"))
    tail = "" if found is None else f"; a plan was found for {found} ({format_bytes(found)})"
    print(f"planwright: every plan needs at least {bound} bytes ({format_bytes(bound)}), proven{tail}", file=sys.stderr)


# -- what all systems share --------------------------------------------------------------------------------------------


def _run(problem: Problem, arguments: argparse.Namespace) -> Result:
    """Solve with progress on stderr; the first Ctrl-C asks the solvers to stop, the second leaves at once."""
    from planwright.cli.output import ProgressLines
    from planwright.recipe import solve

    stop = threading.Event()
    on_progress = None if arguments.quiet else ProgressLines()
    options = shared.solve_options(arguments, problem.default_options, on_progress, stop)
    with stop_on_interrupt(stop, "stopping with the best plan so far; Ctrl-C again leaves at once"):
        return solve(problem, options)


@contextmanager
def stop_on_interrupt(stop: threading.Event, line: str) -> Iterator[None]:
    """The first Ctrl-C sets `stop` and prints `line`, the second raises `KeyboardInterrupt`."""

    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print(f"planwright: {line}", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(result: Result, arguments: argparse.Namespace, also: dict[str, Any]) -> int:
    """Write the plan if it replayed clean, tell the outcome and what is `also` to be told, return the exit code."""
    from planwright.cli import output
    from planwright.io.plan import SavedPlan, claim_data, write_plan

    problem, claim = result.problem, claim_data(result.solution)
    written = None
    if result.schedule is not None and result.valid and arguments.output is not None:
        write_plan(
            arguments.output, SavedPlan(problem.system, problem.description, claim, result.details, result.schedule)
        )
        written = arguments.output
    data = {
        "problem": problem.system,
        **claim,
        **output.report_data(result.report),
        **result.details,
        **also,
        "plan": written,
    }
    if arguments.json:
        output.print_json(data)
    elif not arguments.quiet:
        _print_outcome(result, data)
    code = output.exit_code(result.status, result.report)
    if result.schedule is None:
        print(f"planwright: no plan: {result.status.value} ({result.solution.stop_reason.value})", file=sys.stderr)
    elif not result.valid and result.report is not None:
        print(f"planwright: {result.report.summary()}", file=sys.stderr)
    return code


def _print_outcome(result: Result, data: dict[str, Any]) -> None:
    from planwright.cli.output import described, words

    for name, value in {**result.problem.description, **{key: data[key] for key in _SHOWN if key in data}}.items():
        print(f"{words(name):<16} {described(name, value)}")
