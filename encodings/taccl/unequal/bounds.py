"""Lower bounds of collectives of unlike shares, however their bytes are cut, grouped and routed.

`latency`: the alphas of the longest of the shortest paths. `cuts`: of each rank, each node and all others, what must
come in over the rate at which it can. `hops`: where no two ranks want the same and no switch multicasts, messages, and
the hops that few of them make. `bandwidth`: of ALLTOALLV what all that holds a link must carry, by prices of those
(`fluid.py`), or a linear program where it is small; of ALLGATHERV the narrowest cut in front of each rank.

Where switches add up or multicast, their operations may take less than links, one may stand for many messages, and what
many ranks hold is held once for all that it brings. There links count as no dearer than operations, no bound counts
messages, and there is no `bandwidth` unless ports are each one rank's.
"""

from __future__ import annotations

import numpy as np

from gapless.array_types import Floats, Ids, Ints, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import Network, bottleneck
from gapless.encodings.taccl.bounds.bandwidth.concurrent_flow import concurrent_flow
from gapless.encodings.taccl.bounds.link_costs import distances_s, links_into, rate_bytes_per_s, sides_of
from gapless.encodings.taccl.bounds.tradeoffs import hops_bound_s
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.encodings.taccl.switches.bounds import has_own_ports, through_s, with_least_costs
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["check_paths", "quick_bounds", "routed_bound_s"]

_MOST_UNITS = 1_000_000
"""Units that all bytes of an ALLGATHERV are counted in, rounded down: flows of more don't fit into whole numbers."""
_MOST_CUT_RANKS = 128
"""Ranks up to which the narrowest cut in front of each is looked for."""


def check_paths(problem: Unequal) -> None:
    """Raises `InputError` where bytes have no path."""
    topology, sent = problem.topology, problem.amounts.sent
    distance_s = distances_s(topology, topology.alpha_s, np.arange(len(sent)))
    lost = np.argwhere((sent > 0) & ~np.isfinite(distance_s))
    if len(lost):
        source, target = lost[0].tolist()
        raise InputError(
            f"topology {topology.name!r}: must have a path from rank {source} to rank {target}, which wants "
            f"{sent[source, target]} bytes of it, has none"
        )


def quick_bounds(problem: Unequal) -> dict[str, float]:
    """Those that are worked out at once, in seconds, by name."""
    topology, sent = with_least_costs(problem.topology), problem.amounts.sent
    distance_s = distances_s(topology, topology.alpha_s, np.arange(len(sent)))
    found = {"latency": float(distance_s[sent > 0].max()), "cuts": _cuts_s(problem)}
    if problem.amounts.is_gather or topology.switch_groups:
        return found  # one operation stands for many messages
    wanted = sent.astype(np.float64)
    hops_s = max(hops_bound_s(topology, wanted), hops_bound_s(turned_round(topology), wanted.T))
    return {**found, "hops": hops_s}


def routed_bound_s(problem: Unequal, options: SolveOptions, most_variables: int) -> float:
    """`bandwidth`, exact for ALLGATHERV and where the linear program of an ALLTOALLV is small; else 0."""
    topology = with_least_costs(problem.topology)
    if not (topology.beta_s_per_byte > 0).all() or not has_own_ports(topology):
        return 0.0
    if problem.amounts.is_gather:
        return _narrowest_s(topology, problem.amounts.table[0])
    sent = problem.amounts.sent
    if len(sent) * len(topology.links) > most_variables:
        return 0.0
    found = concurrent_flow(topology, topology.beta_s_per_byte, sent, options)
    return 0.0 if found is None else found.time_s


def _cuts_s(problem: Unequal) -> float:
    """For each rank, each node and all others, the bytes that must come in over the rate at which they can."""
    topology, amounts, best_s = problem.topology, problem.amounts, 0.0
    sets = [[rank] for rank in range(topology.device_count)]
    for inside in sides_of(topology, sets + topology.nodes * (topology.node_count > 1)):
        size, entering = _enter(amounts.table, amounts.is_gather, inside), links_into(topology, inside)
        if size and len(entering):
            through = through_s if topology.switch_groups else _through_s
            best_s = max(best_s, through(topology, entering, size))
    return best_s


def _enter(table: Ints, is_gather: bool, inside: Mask) -> int:
    """The bytes that a set of ranks wants from outside."""
    if is_gather:
        return int(table[0, ~inside].sum()) if inside.any() else 0
    return int(table[~inside][:, inside].sum())


def _through_s(topology: Topology, links: Ids, size_bytes: int) -> float:
    """So many bytes over all of these links at once."""
    return float(topology.alpha_s[links].min()) + size_bytes / rate_bytes_per_s(topology, links)


def _narrowest_s(topology: Topology, own_bytes: Ints) -> float:
    """The narrowest cut in front of each rank, for what the others own; trees that take no longer can be packed."""
    ranks = topology.device_count
    if ranks > _MOST_CUT_RANKS:
        return 0.0
    rate_s: Floats = topology.beta_s_per_byte
    network, unit_bytes = Network.of(topology, rate_s), max(1.0, float(own_bytes.sum()) / _MOST_UNITS)
    owned = np.floor(own_bytes / unit_bytes).astype(np.int64)
    if not owned.any():
        return 0.0
    times_s = [
        bottleneck(network, owned, np.array([rank])).time_s for rank in range(ranks) if np.delete(owned, rank).any()
    ]
    return max(times_s, default=0.0) * unit_bytes
