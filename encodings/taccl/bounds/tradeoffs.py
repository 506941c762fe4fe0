"""Trade-offs of latency and bandwidth, where few messages make long paths, and large ones keep bytes waiting.

**Hops**, where every rank wants other bytes: few messages make long paths, and long paths make bytes that are resent.

Let a be the least alpha of all, and let a rank have got M messages by time T. A byte comes to it as the last message of
a path. If d messages come through that message's port after it, it starts by T - (d + 1) a; so of the message before it
on the path, too, the number of those after it is bounded: these d + 1, along a path, add up to at most R = T / a. So no
more than C(R - 1 - d, h - 1) paths of h messages end with a given one (for one port a rank). Paths from different
sources differ. So M messages bring what M sources have in one hop, what that many paths bring in two, and so on; the
bytes of each source take at least its least number of hops. The ranks' ports must carry all of these, and M alphas: a
trade-off of latency and bandwidth that Bruck's algorithm makes for ALLTOALL.

**Byte trees**: small messages cost alphas of the ports, large ones keep each of their bytes waiting.

A byte that n ranks hold in the end (or hold parts of, at first) takes n - 1 transfers. Where a copy is in one transfer
at a time, they are the inner nodes of a full binary tree whose leaves are the copies: on the path to a leaf is what
happened to its copy, one transfer after the other. (Of sums: what became of a rank's part, backwards in time. A copy is
neither sent nor added to while it is added to.) A message of x bytes over a link takes d = alpha + beta x. So

- on the path to each leaf the d add up to at most T. So do their means over the leaves: the sum of W d, where W is the
  share of leaves below a transfer;
- a byte's share of its message's time is d / x = beta * (1 + alpha / (d - alpha)), and shares of all bytes add up to at
  most T on each port.

With e = d - alpha, Cauchy and Schwarz say that the sum of 1 / e is at least (sum of sqrt(W))^2 / (sum of W e). Both
sums of W and of sqrt(W) are least for balanced trees; no path has fewer transfers than the ranks are links apart, and
no lower alphas than these links have. That leaves one inequality for T.

*A sum that all ranks want*: let r be the first to have it, by means of a last transfer from s. Before it is such a
tree. Every other rank completes its copy by one more transfer, which ends later. That of s starts later, too, since its
copy was read until then: so it is on the path of all. The others don't start before half of all parts are together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.cuts import Kind, crossings, kinds_of
from gapless.encodings.taccl.bounds.link_costs import (
    distances_s,
    least_time_s,
    most_at_once,
    port_of_links,
    rate_bytes_per_s,
)
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.symmetry.rotations import find_rotations
from gapless.topologies.topology import Topology

__all__ = ["byte_trees_bound_s", "hops_bound_s"]


_NEAR = 1e-6
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
    return least_time_s(lambda time_s: _is_enough(ranks, ports, alpha_s, time_s), alpha_s, 2 * alpha_s, _NEAR)


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


_CLOSER = 1e-9
"""Where the search for the time ends, relative to it; it stays below."""


@dataclass(frozen=True)
class _Tree:
    """`count` bytes, each in `transfers` transfers; their sum of 1 / e is at least that of `weight / (T - late_s)`.

    `terms`: pairs of weight and late_s.
    """

    count: int
    transfers: int
    terms: tuple[tuple[float, float], ...]


def byte_trees_bound_s(problem: Chunked) -> float:
    """Seconds for all bytes of a problem; 0 where a link takes no time, or ranks send a byte to several at once."""
    topology, links = problem.logical.topology, np.arange(problem.link_count)
    if not len(links) or not (topology.beta_s_per_byte > 0).all() or not topology.alpha_s.min() > 0:
        return 0.0
    if problem.collective.reduces:
        trees = _of_sums(topology, kinds_of(problem), problem.chunk_bytes)
    elif most_at_once(topology, links) == 1:
        trees = _of_copies(problem)
    else:
        return 0.0
    return _least_s(trees, float(topology.alpha_s.min()), rate_bytes_per_s(topology, links))


def _of_copies(problem: Chunked) -> list[_Tree]:
    """Of what doesn't reduce, and is sent to one rank at a time."""
    topology, trees = problem.logical.topology, []
    alike, count = np.unique(
        np.column_stack([problem.owners, problem.wanted]), axis=0, return_counts=True
    )  # fmt: skip
    waits = _Waits.of(topology, backwards=False)
    for row, chunks in zip(alike, count.tolist(), strict=True):
        ranks = np.flatnonzero(row[1:])
        if len(ranks):
            bytes_ = chunks * problem.chunk_bytes
            late_s = waits.late_s(int(row[0]), np.append(ranks, row[0]))
            trees.append(_Tree(bytes_, len(ranks), ((_spread(len(ranks) + 1) ** 2, late_s),)))
    return trees


def _of_sums(topology: Topology, kinds: list[Kind], chunk_bytes: int) -> list[_Tree]:
    """Of sums: to the rank that wants them, or to the first that has them, and on to others."""
    waits, trees = _Waits.of(topology, backwards=True), []
    orbits = np.unique(find_rotations(topology).rank_orbit).tolist()
    everyone, alpha_s = np.arange(topology.device_count), float(topology.alpha_s.min())
    for kind in kinds:
        holders, parts = np.array(kind.holders), len(kind.holders)
        if parts < 2:
            continue
        is_whole = parts == len(kind.wants) == len(everyone)
        ends = kind.wants if len(kind.wants) == 1 else orbits if is_whole else everyone.tolist()
        late_s = min(waits.late_s(end, holders) for end in ends)
        transfers, root = crossings(kind, everyone), _spread(parts)
        terms: tuple[tuple[float, float], ...] = ((root**2, late_s),)
        if is_whole:
            half_s = alpha_s * (parts - 1).bit_length()
            terms = ((root + 1) ** 2, late_s + alpha_s), (float(parts - 2), half_s)
        trees.append(_Tree(kind.count * chunk_bytes, transfers, terms))
    return trees


def _spread(leaves: int) -> float:
    """The least sum of sqrt(W) over the transfers of a tree with so many leaves, W the share of leaves below."""
    least = np.zeros(leaves + 1)
    for below in range(2, leaves + 1):
        least[below] = np.sqrt(below) + (least[1:below] + least[below - 1 : 0 : -1]).min()
    return float(least[leaves] / np.sqrt(leaves))


@dataclass(frozen=True)
class _Waits:
    """`hops[r, v]`: links between rank r and v; `excess_s[r, v]`: alphas above the least, added up on the path."""

    alpha_s: float
    hops: Floats
    excess_s: Floats

    @classmethod
    def of(cls, topology: Topology, backwards: bool) -> _Waits:
        """`backwards`: links lead to r."""
        everyone, alpha_s = np.arange(topology.device_count), float(topology.alpha_s.min())
        costs = np.ones(len(topology.links)), topology.alpha_s - alpha_s
        return cls(alpha_s, *(distances_s(topology, cost, everyone, backwards=backwards) for cost in costs))

    def late_s(self, root: int, leaves: Ids) -> float:
        """The least mean over the leaves of the alphas on their paths; 0 where one has no path to the root."""
        hops = self.hops[root, leaves]
        if not np.isfinite(hops).all():
            return 0.0
        return self.alpha_s * _mean_depth(hops.astype(np.int64)) + float(self.excess_s[root, leaves].mean())


def _mean_depth(least: Ids) -> float:
    """The least mean of depths of a binary tree's leaves, that of leaf k at least `least[k]` (Kraft's inequality)."""
    count = np.bincount(least, minlength=int(least.max()) + 64).astype(np.float64)
    level = np.arange(len(count))
    over = float((count * 0.5**level).sum()) - 1
    for depth in level[:-1].tolist():
        if over <= 0:
            break
        moved = min(count[depth], np.ceil(over * 2.0 ** (depth + 1)))
        count[depth], count[depth + 1] = count[depth] - moved, count[depth + 1] + moved
        over -= moved * 0.5 ** (depth + 1)
    return float((count * level).sum() / len(least))


def _least_s(trees: list[_Tree], alpha_s: float, rate: float) -> float:
    """The least time in which ports of that rate together (bytes a second) carry the shares of all bytes."""
    if not trees:
        return 0.0

    def is_enough(time_s: float) -> bool:
        needed = (tree.count * (tree.transfers + alpha_s * _over(tree, time_s)) for tree in trees)
        return sum(needed) <= time_s * rate

    latest_s = max(late_s for tree in trees for _, late_s in tree.terms)
    high_s = 2 * max(latest_s, alpha_s)  # nobody is late where a rank has no path to the root
    return least_time_s(is_enough, latest_s, high_s, _CLOSER)


def _over(tree: _Tree, time_s: float) -> float:
    """The least sum of 1 / e by that time."""
    return sum(weight / (time_s - late_s) for weight, late_s in tree.terms)
