"""Hops: where every rank wants other bytes, few messages make long paths, and long paths make bytes that are resent.

Let a be the least alpha of all, and let a rank have got M messages by time T. A byte comes to it as the last message of
a path. If d messages come through that message's port after it, it starts by T - (d + 1) a; so of the message before it
on the path, too, the number of those after it is bounded: these d + 1, along a path, add up to at most R = T / a. So no
more than C(R - 1 - d, h - 1) paths of h messages end with a given one (for one port a rank). Paths from different
sources differ. So M messages bring what M sources have in one hop, what that many paths bring in two, and so on; the
bytes of each source take at least its least number of hops. The ranks' ports must carry all of these, and M alphas: a
trade-off of latency and bandwidth that Bruck's algorithm makes for ALLTOALL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.bounds.link_costs import distances_s, port_of_links
from gapless.topologies.topology import Topology

__all__ = ["hops_bound_s"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

_LAST_DIGITS = 1e-6
"""Where the search for the time ends, relative to it; it stays below."""
_MOST_PAIRS = 2_000_000
"""Pairs of rank and link up to which ranks that are links apart count for as many hops."""


@dataclass(frozen=True)
class _Rank:
    """What a rank receives over: the ports, their rates together and the least of them, in bytes a second.

    `left[k]`: how many bytes it wants but those from the k sources that it wants most from. `beyond[h]`: how many from
    sources more than h links away. `count`: ranks alike.
    """

    ports: int
    rate: float
    least_rate: float
    left: Floats
    beyond: Floats
    count: int


def hops_bound_s(topology: Topology, wanted: Floats) -> float:
    """No plan takes less to bring `wanted[s, t]` bytes from each rank s to each rank t; 0 if some link costs none."""
    alpha_s = float(topology.alpha_s.min(initial=np.inf))
    if not wanted.any() or not 0 < alpha_s < np.inf or not (topology.beta_s_per_byte > 0).all():
        return 0.0
    ranks = _ranks(topology, wanted)
    ports = max(rank.ports for rank in ranks)
    low_s = alpha_s
    high_s = 2 * low_s
    while not _is_enough(ranks, ports, alpha_s, high_s):
        low_s, high_s = high_s, 2 * high_s
    while high_s - low_s > _LAST_DIGITS * high_s:
        middle_s = (low_s + high_s) / 2
        low_s, high_s = (low_s, middle_s) if _is_enough(ranks, ports, alpha_s, middle_s) else (middle_s, high_s)
    return low_s


def _ranks(topology: Topology, wanted: Floats) -> list[_Rank]:
    """Those that receive, one of each kind."""
    links = np.arange(len(topology.links))
    pairs = topology.link_target * (1 << 32) + port_of_links(topology, links, -1)
    port, place = np.unique(pairs, return_inverse=True)
    rate = np.zeros(len(port))
    np.maximum.at(rate, place, 1 / topology.beta_s_per_byte)
    everyone = np.arange(topology.device_count)
    is_small = len(everyone) * len(links) <= _MOST_PAIRS
    away = distances_s(topology, np.ones(len(links)), everyone) if is_small else np.zeros_like(wanted)
    kinds: dict[tuple[bytes, bytes, bytes], list[int]] = {}
    for rank in everyone.tolist():
        rates, sources = np.sort(rate[port >> 32 == rank]), np.flatnonzero(wanted[:, rank])
        if not len(rates):
            continue
        most = np.append(np.cumsum(np.sort(wanted[sources, rank]))[::-1], 0.0)
        by_hops = np.bincount(away[sources, rank].astype(np.int64), weights=wanted[sources, rank])
        beyond = by_hops.sum() - np.cumsum(by_hops)
        kinds.setdefault((rates.tobytes(), most.tobytes(), beyond.tobytes()), []).append(rank)
    found = []
    for kind, ranks in kinds.items():
        rates, left, beyond = map(np.frombuffer, kind)
        found.append(_Rank(len(rates), float(rates.sum()), float(rates[0]), left, beyond, len(ranks)))
    return found


def _is_enough(ranks: list[_Rank], ports: int, alpha_s: float, time_s: float) -> bool:
    """Whether all ranks' ports can carry by `time_s` what there is, whatever number of messages each one gets."""
    rounds = int(time_s / alpha_s * (1 + 1e-9))
    return sum(rank.count * _spare_bytes(rank, ports, rounds, alpha_s, time_s) for rank in ranks) >= 0


def _spare_bytes(rank: _Rank, ports: int, rounds: int, alpha_s: float, time_s: float) -> float:
    """The most bytes that a rank's ports can carry besides those that it wants, with each of their hops."""
    sources = len(rank.left) - 1
    most = min(rank.ports * rounds, max(sources, 1))
    capacity = time_s * rank.rate - alpha_s * rank.least_rate * np.arange(most + 1)
    if not sources:
        return float(capacity[0])
    carried = np.full(most + 1, np.inf)
    carried[1:] = 0.0
    reached = np.zeros(most + 1)
    before = np.maximum(rounds - 1 - np.arange(most) // rank.ports, 0)  # messages before each, the last one first
    paths = np.ones(most)  # of so many hops, that end with each message
    for hops in range(1, sources + 1):
        too_far = rank.beyond[hops - 1] if hops <= len(rank.beyond) else 0.0
        carried += np.maximum(rank.left[np.minimum(reached, sources).astype(np.int64)], too_far)
        reached[1:] += np.cumsum(paths)
        paths = paths * np.maximum(before - hops + 1, 0) * (ports / hops)
        if hops >= len(rank.beyond) and (reached[min(1, most)] >= sources or not paths.any()):
            break
    carried[reached < sources] = np.inf
    return float((capacity - carried).max())
