"""The question as people ask it: a machine, a collective and a size by their names."""

from __future__ import annotations

from typing import cast

from gapless.collective import Collective
from gapless.encodings.taccl.chunked import Method
from gapless.encodings.taccl.problem import AUTO, Problem
from gapless.encodings.taccl.sketch.format import Sketch, load_sketch, read_sketch
from gapless.errors import InputError
from gapless.io.collective_file import read_collective
from gapless.topologies.families import is_generated
from gapless.topologies.files import load_topology
from gapless.topologies.topology import Topology

__all__ = ["find_sketch", "find_topology", "problem"]


def problem(
    topology: str | Topology | None = None,
    *,
    topology_file: str | None = None,
    nodes: int | None = None,
    sketch: str | Sketch | None = None,
    sketch_file: str | None = None,
    collective: str | Collective | None = None,
    collective_file: str | None = None,
    root: int | None = None,
    target: int | None = None,
    size: int | None = None,
    path_slack: float | None = None,
    method: str = "auto",
    chunks: int | None = None,
) -> Problem:
    """A collective on a machine, for buffers of `size` bytes.

    What is left out: `nodes` and `size` are the sketch's, `collective` is allgather, the rest as for `Problem`.
    Raises `InputError` that names an argument which is unknown, missing, or doesn't go with the others.
    """
    wanted = find_sketch(sketch, sketch_file)
    if wanted == AUTO:
        _check_search(topology, size, nodes)
    chosen = None if isinstance(wanted, str) else wanted
    size_bytes = size or (None if chosen is None else chosen.input_bytes)
    if size_bytes is None:
        raise InputError("size: must be given: the sketch names no input_size")
    asked = _find_collective(collective, collective_file, root, target)
    machine = find_topology(topology, topology_file, nodes, chosen)
    sought = AUTO if wanted == AUTO else chosen
    return Problem(machine, asked, size_bytes, sought, root, target, path_slack, cast("Method", method), chunks)


def find_sketch(sketch: str | Sketch | None, sketch_file: str | None) -> Sketch | str | None:
    """The sketch that is named, in a file, or given; `auto` as it is."""
    if sketch is not None and sketch_file is not None:
        raise InputError("give `sketch` or `sketch_file`, not both")
    if sketch_file is not None:
        return read_sketch(sketch_file)
    return load_sketch(sketch) if isinstance(sketch, str) and sketch != AUTO else sketch


def find_topology(
    topology: str | Topology | None, topology_file: str | None, nodes: int | None, sketch: Sketch | None
) -> Topology:
    """The topology that is named, in a file, or given; of so many nodes, or as many as the sketch has, or one."""
    if isinstance(topology, Topology):
        if nodes is not None or topology_file is not None:
            raise InputError("`nodes` and `topology_file`: must be left out with a topology that is given")
        return topology
    if topology is None and topology_file is None:
        raise InputError("give `topology` NAME (`gapless list topologies`) or `topology_file` FILE")
    return load_topology(topology, nodes or (sketch.node_count if sketch is not None else None) or 1, topology_file)


def _find_collective(
    collective: str | Collective | None, collective_file: str | None, root: int | None, target: int | None
) -> str | Collective:
    if collective_file is None:
        return collective or "allgather"
    if collective is not None:
        raise InputError("give `collective` or `collective_file`, not both")
    for name, value in (("root", root), ("target", target)):
        if value is not None:
            raise InputError(f"{name}: must be left out with `collective_file`, which says it all")
    return read_collective(collective_file)


def _check_search(topology: object, size: int | None, nodes: int | None) -> None:
    """A search over sketches has none to take defaults from."""
    is_sized = isinstance(topology, Topology) or (isinstance(topology, str) and is_generated(topology))
    for name, value in (("size", size), ("nodes", nodes)):
        if value is None and not (is_sized and name == "nodes"):
            raise InputError(f"{name}: must be given: sketch auto has no default for it")
