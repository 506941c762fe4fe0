"""A lower bound that holds however chunks are cut and grouped: what baselines and plans of other chunks compare with.

The bounds of `bounds.py` are for one problem, whose chunks are whole; a pipeline of smaller pieces may beat them.
"""

from __future__ import annotations

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.bounds.any_chunking import any_bandwidth_s_per_byte
from gapless.topologies.topology import Topology

__all__ = ["any_cut_bound_s"]

Mask = NDArray[np.bool_]


def any_cut_bound_s(
    topology: Topology, collective: Collective, chunk_bytes: int, exact_s_per_byte: float | None = None
) -> float:
    """Seconds that every schedule takes, in chunks of whatever size.

    The largest of: the alphas of the shortest way; the rounds in which a chunk can reach all that want it; for each
    rank and each node, what must come in, or go out, through all doors at once; all that must be sent, from all ranks
    at once. Links that share their first (last) resource count as the fastest of them, since one works at a time. And
    the exact bandwidth bounds (see `any_bandwidth`): `exact_s_per_byte` of a chunk, where they are known already.
    """
    sources = _holders(collective.contributors, collective.rank_count)
    targets = _holders(collective.destinations, collective.rank_count)
    latency_s = max(_latency_s(topology, sources, targets), _rounds_s(topology, collective))
    exact_s = chunk_bytes * (
        any_bandwidth_s_per_byte(topology, collective) if exact_s_per_byte is None else exact_s_per_byte
    )
    best_s = max(latency_s, exact_s, _total_s(topology, collective, chunk_bytes))
    sets = [[rank] for rank in range(topology.device_count)]
    if topology.node_count > 1:
        sets += [topology.ranks_of_node(node) for node in range(topology.node_count)]
    for ranks in sets:
        inside = np.zeros(topology.device_count, dtype=np.bool_)
        inside[ranks] = True
        for side in (inside, ~inside):
            count = int((sources[:, ~side].any(axis=1) & targets[:, side].any(axis=1)).sum())
            best_s = max(best_s, _entry_s(topology, side, count * chunk_bytes))
    return best_s


def _holders(ranks_of_chunk: tuple[tuple[int, ...], ...], rank_count: int) -> Mask:
    mask = np.zeros((len(ranks_of_chunk), rank_count), dtype=np.bool_)
    for chunk, ranks in enumerate(ranks_of_chunk):
        mask[chunk, list(ranks)] = True
    return mask


def _latency_s(topology: Topology, sources: Mask, targets: Mask) -> float:
    """The longest of the shortest ways, for messages of no bytes."""
    network, worst_s = topology.to_networkx(0), 0.0
    for rank in range(topology.device_count):
        wanted = targets[sources[:, rank]].any(axis=0)
        ways = nx.single_source_dijkstra_path_length(network, rank, weight="duration_s")
        worst_s = max([worst_s, *(ways[target] for target in np.flatnonzero(wanted).tolist())])
    return worst_s


def _rounds_s(topology: Topology, collective: Collective) -> float:
    """In the least alpha of all, a rank that has a chunk brings it to one more through each of its doors, and no more.

    Backwards, as many are added up.
    """
    if not len(topology.links):
        return 0.0
    out, into = _most_doors(topology, topology.link_source), _most_doors(topology, topology.link_target)
    alpha_s = float(topology.alpha_s.min())
    owner = 0 if collective.reduces else 1  # it is left out of the destinations
    rounds = _rounds(owner + max(map(len, collective.destinations), default=0), out)
    rounds = max(rounds, _rounds(max(map(len, collective.contributors), default=0), into))
    return rounds * alpha_s


def _rounds(ranks: int, doors: int) -> int:
    """The least k with (1 + doors) ** k >= ranks."""
    rounds, reached = 0, 1
    while reached < ranks:
        rounds, reached = rounds + 1, reached * (1 + doors)
    return rounds


def _most_doors(topology: Topology, rank_of_link: NDArray[np.int64]) -> int:
    """The most transfers that a rank sends (or receives) at once: links that share a resource count once."""
    most = 1
    links = list(topology.links)
    for rank in range(topology.device_count):
        its = np.flatnonzero(rank_of_link == rank).tolist()
        counts = []
        for end in (0, -1):
            keys = {(True, links[k].resources[end]) if links[k].resources else (False, k) for k in its}
            counts.append(len(keys))
        most = max(most, min(counts))
    return most


def _entry_s(topology: Topology, inside: Mask, size_bytes: int) -> float:
    entering = np.flatnonzero(~inside[topology.link_source] & inside[topology.link_target])
    if not size_bytes or not len(entering):
        return 0.0
    rate = _rate_bytes_per_s(topology, entering.tolist())
    return float(topology.alpha_s[entering].min()) + size_bytes / rate


def _total_s(topology: Topology, collective: Collective, chunk_bytes: int) -> float:
    """Every rank that wants a chunk, and every part of a sum, takes a transfer of it."""
    transfers = 0
    for sources, targets in zip(collective.contributors, collective.destinations, strict=True):
        if collective.reduces:
            transfers += len(sources) + len(targets) - (2 if set(sources) & set(targets) else 1)
        else:
            transfers += len(targets)
    rates = [
        _rate_bytes_per_s(topology, np.flatnonzero(topology.link_source == rank).tolist())
        for rank in range(topology.device_count)
    ]
    return transfers * chunk_bytes / sum(rates) if transfers else 0.0


def _rate_bytes_per_s(topology: Topology, links: list[int]) -> float:
    """The most that these links carry together."""
    best = np.inf
    for end in (0, -1):
        fastest: dict[tuple[bool, int], float] = {}
        for number in links:
            link = topology.links[number]
            key = (True, link.resources[end]) if link.resources else (False, number)
            rate = 1 / link.beta_s_per_byte if link.beta_s_per_byte else np.inf
            fastest[key] = max(rate, fastest.get(key, 0.0))
        best = min(best, sum(fastest.values()))
    return best
