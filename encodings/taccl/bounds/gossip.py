"""Gossip bounds: every rank must get the sum of all, and a copy of a chunk is never sent while it is added to.

Cut time into rounds as long as the shortest message, and put each message into the round in which it starts. Then a
round's messages read what was there before the round, and a rank is in it the receiver of one message for the chunk or
the sender of some. Let M count, for ranks v and u, the ways by which u's part has got into v's copy: a round with one
sender for d receivers multiplies the norm of M by at most the larger root of x - 1/x = sqrt(d). In the end all n * n
entries are at least 1, so the norm is at least n. (For d = 1 the root is the golden ratio: the bound on gossip in
one-way mode.) And who has the sum first has it after ceil(log2 n) rounds, and others only after one more.
"""

from __future__ import annotations

import math

import numpy as np

from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.topology import Topology

__all__ = ["gossip_bound_s", "gossip_rounds"]


def gossip_bound_s(problem: Chunked) -> float:
    """Seconds for the sums that all of their contributors want; 0 where there are none."""
    collective, topology, best_s = problem.collective, problem.logical.topology, 0.0
    known: dict[tuple[int, bytes], float] = {}
    for chunk, (holders, wants) in enumerate(zip(collective.contributors, collective.destinations, strict=True)):
        if len(holders) < 2 or not set(holders) <= set(wants):
            continue
        allowed = problem.logical.allowed[chunk]
        key = len(holders), allowed.tobytes()
        if key not in known:
            links = np.flatnonzero(allowed)
            rounds = gossip_rounds(len(holders), _most_at_once(topology, links.tolist()))
            known[key] = rounds * float(problem.duration_s[links].min())
        best_s = max(best_s, known[key])
    return best_s


def gossip_rounds(ranks: int, receivers: int) -> int:
    """The least rounds for `ranks` ranks to get the sum of all, where one sends to `receivers` others at once."""
    growth = (math.sqrt(receivers) + math.sqrt(receivers + 4)) / 2
    by_norm = math.ceil(math.log(ranks) / math.log(growth) - 1e-9)
    return max(by_norm, (ranks - 1).bit_length() + 1)


def _most_at_once(topology: Topology, links: list[int]) -> int:
    """The most transfers that one rank sends at once: links that share their first resource count once."""
    doors: dict[int, set[tuple[bool, int]]] = {}
    for number in links:
        first, last = topology.held_start[number : number + 2].tolist()
        key = (True, int(topology.held[first])) if last > first else (False, number)
        doors.setdefault(int(topology.link_source[number]), set()).add(key)
    return max(map(len, doors.values()), default=1)
