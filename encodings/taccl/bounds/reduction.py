"""Lower bounds for sums: how fast parts can come together, and how many transfers it takes to share a sum.

*Doubling*: a rank adds to a sum one part at a time, so a copy holds at most twice as many parts after a transfer as the
largest did when it started. *Crossings*: let the ranks be cut into classes. Before any class holds all parts of a chunk
there were as many transfers between classes as classes that hold a part, less one; each other class that wants the sum
needs one more. (For single ranks and an ALLREDUCE of n: 2 (n - 1), the count behind its bandwidth bound.) *Trees*: a
plan of this encoding adds each chunk up at its home and spreads it from there. So for the parts each rank but the home
sends once, for the sums each receives once, over the links of that phase; links that cost most are loaded least if
each takes its cheapest. This bound alone rests on the home.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.topology import Topology

__all__ = ["all_over_s", "crossing_bound_s", "doubling_bound_s", "pairs_latency_s", "trees_bound_s"]

Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Mask = NDArray[np.bool_]

_HALVINGS = 60
"""Steps of the search for the time by which all crossings can be over."""


def doubling_bound_s(problem: Chunked) -> float:
    """The least time for any sum that is wanted, over the fastest link that its chunk may use."""
    collective, best_s = problem.collective, 0.0
    known: dict[tuple[int, bytes], float] = {}
    for chunk, (holders, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        if wants and len(holders) > 1:
            allowed = problem.logical.allowed[chunk]
            key = len(holders), allowed.tobytes()
            if key not in known:
                rounds = (len(holders) - 1).bit_length()
                known[key] = rounds * float(problem.duration_s[allowed].min())
            best_s = max(best_s, known[key])
    return best_s


def pairs_latency_s(problem: Chunked) -> float:
    """The longest of the shortest ways from a rank that holds a part to a rank that wants the sum."""
    from networkx import single_source_dijkstra_path_length as lengths_from

    collective, topology = problem.collective, problem.logical.topology
    known: dict[bytes, Floats] = {}
    best_s = 0.0
    for chunk, (holders, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        allowed = problem.logical.allowed[chunk]
        if not wants:
            continue
        if allowed.tobytes() not in known:
            network = topology.to_networkx(problem.chunk_bytes, np.flatnonzero(allowed).tolist())
            distance_s = np.full((topology.device_count, topology.device_count), np.inf)
            for source in range(topology.device_count):
                for target, time_s in lengths_from(network, source, weight="duration_s").items():
                    distance_s[source, target] = time_s
            known[allowed.tobytes()] = distance_s
        best_s = max(best_s, float(known[allowed.tobytes()][np.ix_(holders, wants)].max()))
    return best_s


def crossing_bound_s(problem: Chunked, may_group: Mask) -> float:
    """The largest bound over cuts into single ranks, into nodes, and into the ranks of one node and all others."""
    topology = problem.logical.topology
    kinds = Counter(zip(problem.collective.contributors, problem.collective.destinations, strict=True))
    best_s = 0.0
    for class_of in _partitions(topology):
        crossings = _crossings(kinds, class_of)
        between = np.flatnonzero(
            (class_of[topology.link_source] != class_of[topology.link_target]) & problem.logical.allowed.any(axis=0)
        )
        if crossings and len(between):
            for side in (0, -1):
                best_s = max(best_s, all_over_s(problem, may_group, between, side, crossings))
    return best_s


def trees_bound_s(problem: Chunked) -> float:
    """The largest mean load of the switch sides and NICs of one kind, whatever trees parts and sums take."""
    best_s = 0.0
    for between_nodes in (False, True):
        for side in (0, -1):
            best_s = max(best_s, _mean_load_s(problem, between_nodes, side))
    return best_s


def _mean_load_s(problem: Chunked, between_nodes: bool, side: int) -> float:
    """The mean over the resources at one side of the links inside, or between, nodes; no schedule is shorter."""
    topology = problem.logical.topology
    counted = (topology.is_inter_node == between_nodes) & np.array([bool(link.resources) for link in topology.links])
    resources = {topology.links[link].resources[side] for link in np.flatnonzero(counted).tolist()}
    if not resources:
        return 0.0
    holds = np.array([len(resources.intersection(link.resources)) for link in topology.links])
    cost_s = problem.occupancy_s * holds
    total_s = 0.0
    for phase in problem.phases:
        part = phase.problem
        for rank in range(topology.device_count):
            into = np.flatnonzero(part.logical.topology.link_target == rank)
            chunks = np.flatnonzero(part.wanted[:, rank])
            if len(chunks):
                ways_s = np.where(part.usable[np.ix_(chunks, into)], cost_s[into], np.inf)
                total_s += float(ways_s.min(axis=1).sum())
    return total_s / len(resources)


def _partitions(topology: Topology) -> list[Ids]:
    """`class_of[r]` for each way to cut the ranks."""
    ranks, node = np.arange(topology.device_count), np.array(topology.node_of_device)
    if topology.node_count == 1:
        return [ranks]
    alone = [np.where(node == number, ranks, topology.device_count) for number in range(topology.node_count)]
    return [ranks, node, *alone]


def _crossings(kinds: Counter[tuple[tuple[int, ...], tuple[int, ...]]], class_of: Ids) -> int:
    """How many times a chunk must be sent from one class to another. `kinds`: how many chunks have (holders, wants)."""
    crossings = 0
    for (holders, wants), count in kinds.items():
        if wants:
            holding, wanting = set(class_of[list(holders)].tolist()), set(class_of[list(wants)].tolist())
            first_elsewhere = not holding & wanting  # then the first to hold all parts is one more, on either side
            crossings += count * (len(holding) - 1 + len(wanting) - 1 + first_elsewhere)
    return crossings


def all_over_s(problem: Chunked, may_group: Mask, between: Ids, side: int, count: int) -> float:
    """When `count` chunks can have crossed, links that exclude each other working one at a time, without a pause."""
    topology = problem.logical.topology
    doors: dict[tuple[bool, int], list[int]] = {}
    for link in between.tolist():
        resources = topology.links[link].resources
        doors.setdefault((True, resources[side]) if resources else (False, link), []).append(link)
    head_s, chunk_s = np.empty(len(doors)), np.empty(len(doors))
    for number, links in enumerate(doors.values()):
        grouped = may_group[links]
        head_s[number] = float(topology.alpha_s[links].min()) if grouped.all() else 0.0
        occupied_s = problem.duration_s[links] - np.where(grouped, topology.alpha_s[links], 0.0)
        chunk_s[number] = float(occupied_s.min())
    if (chunk_s <= 0).any():
        return 0.0
    low_s, high_s = 0.0, float(head_s.max() + count * chunk_s.max())
    for _ in range(_HALVINGS):  # too early by `low_s`, early enough by `high_s`
        middle_s = (low_s + high_s) / 2
        through = np.floor(np.maximum(middle_s - head_s, 0.0) / chunk_s * (1 + 1e-12)).sum()
        low_s, high_s = (low_s, middle_s) if through >= count else (middle_s, high_s)
    return low_s
