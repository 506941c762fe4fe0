"""`gapless solve taccl`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gapless.cli import arguments as shared
from gapless.cli.running import finish, run, while_written
from gapless.errors import InputError

__all__ = ["add_command", "read_problem"]

_EXAMPLE = """\
example:
  gapless solve taccl --topology ndv2 --nodes 2 --sketch ndv2-sk-1 --collective allgather --size 1MB \\
      -o plan.json --xml allgather.xml --instances 8
  gapless solve taccl --topology dgx2 --nodes 2 --sketch auto --size 1MB --time-limit 60 -o plan.json

SIZE is the largest input buffer of a rank: what it sends to all (alltoall, scatter's root), what it adds (allreduce,
reducescatter, reduce), or its own data (the others). The sketch's input_chunkup cuts the part that is for one rank, or
comes from one: 16 ranks and input_chunkup 2 make 32 chunks of an alltoall's, reducescatter's or allreduce's buffer.
"""


AUTO = "auto"
"""The sketch that stands for a search over sketches."""


def add_command(systems: Any) -> None:
    """Add `taccl` to the systems of `solve`."""
    parser = systems.add_parser(
        "taccl",
        help="synthesise a collective for a topology under a sketch",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("problem")
    shared.add_topology_options(group)
    group.add_argument("--sketch", metavar="NAME", help="a shipped sketch (`gapless list sketches`), or auto")
    group.add_argument("--sketch-file", metavar="FILE", help="a sketch in TACCL's format")
    group.add_argument("--collective", metavar="NAME", help="allgather (default), or one of `gapless list collectives`")
    group.add_argument("--collective-file", metavar="FILE", help="one of your own, in gapless's format")
    group.add_argument(
        "--root", type=shared.Whole(0), metavar="R", help="rank that broadcast, reduce, gather, ... start or end on (0)"
    )
    group.add_argument("--target", type=shared.Whole(0), metavar="R", help="rank that sendrecv ends on (the last)")
    group.add_argument(
        "--size", type=shared.size, metavar="SIZE", help="one rank's input buffer, such as 1MB = 10^6 bytes"
    )
    group.add_argument(
        "--path-slack",
        type=shared.Number(0),
        metavar="S",
        help="only links within (1 + S) of the shortest way of a chunk (default: all)",
    )
    group.add_argument(
        "--method",
        choices=["auto", "milp", "greedy"],
        default="auto",
        help="auto (default): the fastest of the MILP where it is small enough, the greedy, whole messages (all that a "
        "rank has at once) and what libraries do; the answer says which",
    )
    group.add_argument(
        "--chunks",
        type=shared.Whole(1),
        metavar="N",
        help="chunks that a rank's own data are cut into (default: the sketch's, else the best of some)",
    )
    group.add_argument("-o", "--output", metavar="FILE", help="the plan to write")
    group.add_argument("--xml", metavar="FILE", help="also write TACCL-EF XML")
    group.add_argument("--write-model", metavar="FILE", help="also write the routing MILP, as .lp or .mps")
    shared.add_solve_options(parser)
    shared.add_ef_options(parser)
    shared.add_output_options(parser)
    parser.set_defaults(run=_solve)


def _solve(arguments: argparse.Namespace) -> int:
    from gapless.encodings.taccl.programs.export import write_taccl_ef
    from gapless.io.atomic import check_writable

    problem = read_problem(arguments)
    for path in (arguments.output, arguments.xml):
        if path is not None:
            check_writable(path)
    if arguments.write_model is not None:
        _write_model(problem, arguments.write_model)
    result = run(problem, arguments)
    if result.schedule is not None and result.valid and arguments.xml is not None:
        with while_written(arguments):
            write_taccl_ef(arguments.xml, result.schedule, result.problem.description, **shared.ef_options(arguments))
    if "sketches" in result.details and not arguments.json and not arguments.quiet:
        _print_tried(result.details["sketches"])
    return finish(result, arguments, {"xml": arguments.xml if result.valid else None})


def read_problem(arguments: argparse.Namespace) -> Any:
    """The problem that the options describe."""
    from gapless.encodings import taccl
    from gapless.topologies.files import load_topology

    if arguments.sketch is not None and arguments.sketch_file is not None:
        raise InputError("give --sketch or --sketch-file, not both")
    if arguments.topology is None and arguments.topology_file is None:
        raise InputError("give --topology NAME (`gapless list topologies`) or --topology-file FILE")
    if arguments.sketch == AUTO:
        _check_search(arguments)
    sketch = None
    if arguments.sketch_file is not None:
        sketch = taccl.read_sketch(arguments.sketch_file)
    elif arguments.sketch is not None and arguments.sketch != AUTO:
        sketch = taccl.load_sketch(arguments.sketch)
    nodes = arguments.nodes or (sketch.node_count if sketch is not None else None) or 1
    size_bytes = arguments.size or (sketch.input_bytes if sketch is not None else None)
    if size_bytes is None:
        raise InputError("give --size: the sketch names no input_size")
    topology = load_topology(arguments.topology, nodes, arguments.topology_file)
    how = {"path_slack": arguments.path_slack, "method": arguments.method, "chunks": arguments.chunks}
    ends = {"root": arguments.root, "target": arguments.target}
    wanted = AUTO if arguments.sketch == AUTO else sketch
    return taccl.Problem(topology, _collective(arguments), size_bytes, wanted, **how, **ends)


def _collective(arguments: argparse.Namespace) -> Any:
    """The collective in the file, or the name of one."""
    from gapless.io.collective_file import read_collective

    if arguments.collective_file is None:
        return arguments.collective or "allgather"
    if arguments.collective is not None:
        raise InputError("give --collective or --collective-file, not both")
    for option in ("root", "target"):
        if getattr(arguments, option) is not None:
            raise InputError(f"--{option}: must be left out with --collective-file, which says it all")
    return read_collective(arguments.collective_file)


def _check_search(arguments: argparse.Namespace) -> None:
    from gapless.topologies.families import is_generated

    sized = arguments.topology is not None and is_generated(arguments.topology)
    for option, value in (("--size", arguments.size), ("--nodes", arguments.nodes)):
        if value is None and not (sized and option == "--nodes"):
            raise InputError(f"give {option}: --sketch auto has no default for it")
    for option, value in (
        ("--write-model", arguments.write_model), ("--path-slack", arguments.path_slack), ("--chunks", arguments.chunks)
    ):  # fmt: skip
        if value is not None:
            raise InputError(f"{option}: is for one sketch, not for --sketch auto")


def _print_tried(rows: list[dict[str, Any]]) -> None:
    """The sketches that were tried, the best first."""
    from gapless.text import described, table

    columns = ("sketch", "status", "makespan_s", "bound_s")
    titles = ["sketch", "status", "makespan", "bound"]
    print(table([titles, *([described(column, row[column]) for column in columns] for row in rows)]))


def _write_model(problem: Any, path: str) -> None:
    from gapless.encodings.taccl.milp.routers import routing_model
    from gapless.encodings.taccl.solve import in_chunks
    from gapless.io.lp import write_lp
    from gapless.io.mps import write_mps

    writers = {".lp": write_lp, ".mps": write_mps}
    if Path(path).suffix not in writers:
        raise InputError(f"--write-model: the file must end in .lp or .mps, got {path!r}")
    writers[Path(path).suffix](routing_model(in_chunks(problem, problem.default_options)), path)
