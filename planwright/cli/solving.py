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
    from planwright.recipe import Problem, Result

__all__ = ["add_commands"]

_TACCL_EXAMPLE = """\
example:
  planwright solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB \\
      -o plan.json --xml allgather.xml --instances 8
"""


def add_commands(commands: Any) -> None:
    """Add `solve` with its systems."""
    parser = commands.add_parser("solve", help="solve a problem, replay the schedule, write the plan")
    systems = parser.add_subparsers(metavar="system", required=True)
    _add_taccl(systems)


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


# -- what all systems share --------------------------------------------------------------------------------------------


def _run(problem: Problem, arguments: argparse.Namespace) -> Result:
    """Solve with progress on stderr; the first Ctrl-C asks the solvers to stop, the second leaves at once."""
    from planwright.cli.output import ProgressLines
    from planwright.recipe import solve

    stop = threading.Event()
    on_progress = None if arguments.quiet else ProgressLines()
    options = shared.solve_options(arguments, problem.default_options, on_progress, stop)
    with _stop_on_interrupt(stop):
        return solve(problem, options)


@contextmanager
def _stop_on_interrupt(stop: threading.Event) -> Iterator[None]:
    def handle(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        print("planwright: stopping with the best plan so far; Ctrl-C again leaves at once", file=sys.stderr)

    if threading.current_thread() is not threading.main_thread():  # signals reach the main thread only
        yield
        return
    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _finish(result: Result, arguments: argparse.Namespace, files: dict[str, Any]) -> int:
    """Write the plan if it replayed clean, tell the outcome, return the exit code."""
    from planwright.cli import output
    from planwright.io.plan import SavedPlan, write_plan

    problem, claim = result.problem, output.claim_data(result.solution)
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
        **files,
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
    from planwright.cli.output import described

    shown = (
        "status",
        "stop_reason",
        "makespan_s",
        "bound_s",
        "gap",
        "ratio",
        "sends",
        "solve_s",
        "stages",
        "solver",
        "plan",
        "xml",
    )
    for name, value in {**result.problem.description, **{key: data[key] for key in shown if key in data}}.items():
        print(f"{name.removesuffix('_s').removesuffix('_bytes').replace('_', ' '):<16} {described(name, value)}")
