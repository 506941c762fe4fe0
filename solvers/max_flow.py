"""Maximum flow and minimum cut with OR-tools' SimpleMaxFlow, on whole capacities and so exact."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError, SolverError
from gapless.model.arrays import Ids

__all__ = ["Cut", "max_flow"]


@dataclass(frozen=True)
class Cut:
    """`value`: of the largest flow, and so of the smallest cut. `inside`: bool per node, the cut's side of the source.

    Of the smallest cuts it is the one with the fewest nodes inside.
    """

    value: int
    inside: NDArray[np.bool_]


def max_flow(tail: Ids, head: Ids, capacity: Ids, node_count: int, source: int, sink: int) -> Cut:
    """The largest flow from `source` to `sink`; parallel arcs and loops are allowed.

    `tail`, `head`: the nodes of each arc, in 0..node_count-1. `capacity`: whole numbers >= 0, int64. Raises
    `InputError` for numbers out of range, `SolverError` where the flow leaves int64.
    """
    from ortools.graph.python import max_flow as ortools

    if len(capacity) and capacity.min() < 0:
        raise InputError(f"max_flow: capacity must be >= 0, got {capacity.min()}")
    for title, nodes in (("tail", tail), ("head", head)):
        if len(nodes) and not (nodes.min() >= 0 and nodes.max() < node_count):
            raise InputError(f"max_flow: {title} must be in 0..{node_count - 1}")
    inside = np.zeros(node_count, dtype=np.bool_)
    inside[source] = True
    if source == sink:
        raise InputError(f"max_flow: source and sink must differ, got {source} twice")
    flow = ortools.SimpleMaxFlow()
    flow.add_arcs_with_capacity(tail, head, capacity)
    flow.add_arc_with_capacity(source, node_count - 1, 0)  # the library knows of no node beyond the arcs
    flow.add_arc_with_capacity(source, sink, 0)
    status = flow.solve(source, sink)
    if status != flow.OPTIMAL:
        raise SolverError(f"max_flow: OR-tools returned {status.name}")
    inside[np.array(flow.get_source_side_min_cut(), dtype=np.int64)] = True
    return Cut(int(flow.optimal_flow()), inside)
