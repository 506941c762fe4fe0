"""Spreading bounds: how many ranks can know of something by when, whatever is grouped.

*Spreading*: a chunk reaches its ranks along a tree; who has it sends it on through each of its ports, again and again.
Counted by nodes, since links inside and between them differ. *Influence*: take a node, and count the pairs of a rank in
it and a chunk from outside that the rank has. In the time of the shortest message inside, what is sent inside adds at
most as many pairs (for each port of a sender) as there were. So a pair that comes in early counts for many in the end;
what comes in through the node's ports, each one message at a time, must be worth all pairs. Where ranks want different
chunks, a pair is a rank and a source that it has heard of: no less must be known, and one chunk is enough for that.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.arrival import Costs, earliest_s
from gapless.encodings.taccl.bounds.link_costs import (
    SIDES,
    distances_s,
    links_into,
    links_within,
    most_at_once,
    port_of_links,
)
from gapless.encodings.taccl.chunked import Chunked

__all__ = ["influence_bound_s", "spreading_bound_s"]


_MOST_UNLIKE = 50
"""Where messages within and between nodes differ more, what happens within is left out: steps would be too many."""
_COARSER_AT_PORTS = 5
"""The time of a message at a node's ports is cut into so many times fewer steps at least than one inside."""
_LONGEST = 200
"""The time is followed for so many messages inside a node; what takes longer isn't proven to."""


@dataclass(frozen=True)
class _Pace:
    """Of some links: the time of the fastest for one chunk, and how many of them a rank uses at once (by ports)."""

    chunk_s: float
    ports: int


def spreading_bound_s(problem: Chunked, one_at_a_time: bool) -> float:
    """The least time for any chunk to reach as many ranks as want it, in all and in a node that is not its owner's."""
    topology = problem.logical.topology
    within, between = (_pace(problem, np.flatnonzero(topology.is_inter_node == between)) for between in (False, True))
    nodes = topology.node_of
    everywhere = int(problem.wanted.sum(axis=1).max(initial=0))
    elsewhere = 0
    for node in range(topology.node_count):
        counts = problem.wanted[:, nodes == node].sum(axis=1)[nodes[problem.owners] != node]
        elsewhere = max(elsewhere, int(counts.max(initial=0)))
    paces = [pace for pace in (within, between) if pace is not None]
    fastest_s = min((pace.chunk_s for pace in paces), default=0.0)
    if not paces or max(pace.chunk_s for pace in paces) > _MOST_UNLIKE * fastest_s:
        return between.chunk_s if between is not None and elsewhere else 0.0
    tree = _Tree.of((within, between), one_at_a_time, topology.node_count > 2)
    best_s = tree.least_s("any", everywhere)
    if one_at_a_time:
        best_s = max(best_s, _leaves_s(problem))
    return max(best_s, tree.least_s("owner", elsewhere)) if elsewhere else best_s


def _leaves_s(problem: Chunked) -> float:
    """The longest that a rank sends a chunk to those that it alone has links to, one after the other."""
    topology, best_s = problem.logical.topology, 0.0
    only: dict[int, list[int]] = {}
    for rank in range(topology.device_count):
        sources = np.unique(topology.link_source[topology.link_target == rank]).tolist()
        if len(sources) == 1:
            only.setdefault(sources[0], []).append(rank)
    for hub, leaves in only.items():
        links = np.isin(topology.link_target, leaves) & (topology.link_source == hub)
        most = int(problem.wanted[:, leaves].sum(axis=1).max(initial=0))
        best_s = max(best_s, most * float(problem.duration_s[links].min()))
    return best_s


@dataclass(frozen=True)
class _Tree:
    """How many ranks can be below one that has a chunk, with `left_s` seconds to go; by recursion on the time left.

    `steps[kind]`: of a rank of some kind, the ranks that it may send to inside its node, and out of it, each with 1
    where it counts. Kinds: any rank; one of the owner's node, or of no node that counts; one of another node.
    """

    paces: tuple[_Pace | None, _Pace | None]
    one_at_a_time: bool
    steps: dict[str, tuple[list[tuple[str, int]], list[tuple[str, int]]]]
    known: dict[tuple[str, int], float] = field(default_factory=dict)

    @classmethod
    def of(cls, paces: tuple[_Pace | None, _Pace | None], one_at_a_time: bool, several: bool) -> _Tree:
        """`several`: there are more than two nodes, so a chunk may leave the owner's for one that doesn't count."""
        out_of_owners = [("there", 1), ("owner", 0)] if several else [("there", 1)]
        steps = {
            "any": ([("any", 1)], [("any", 1)]),
            "owner": ([("owner", 0)], out_of_owners),
            "there": ([("there", 1)], [("owner", 0)]),
        }
        return cls(paces, one_at_a_time, steps)

    def least_s(self, kind: str, needed: int) -> float:
        """The least time of messages one after the other in which `needed` ranks can be below one of this kind."""
        paces_s = [pace.chunk_s for pace in self.paces if pace is not None]
        most_s = sum(paces_s) + (needed + 1).bit_length() * max(paces_s)  # by then they have doubled often enough
        sums = {0.0}
        for pace_s in paces_s:
            sums = {
                s for so_far in sums for k in range(int(most_s / pace_s) + 2) if (s := so_far + k * pace_s) <= most_s
            }
        times_s = sorted(sums)
        low, high = 0, len(times_s) - 1
        while low < high:
            middle = (low + high) // 2
            is_enough = self.below(kind, times_s[middle] * (1 + 1e-12)) >= needed
            low, high = (low, middle) if is_enough else (middle + 1, high)
        return times_s[low]

    def below(self, kind: str, left_s: float) -> float:
        """All that stems from a rank's sends in the time left, its ports one by one or all at once."""
        least_s = min(pace.chunk_s for pace in self.paces if pace is not None)
        key = kind, round(left_s / least_s * 1e6)
        if key in self.known:
            return self.known[key]
        counts = []
        for pace, receivers in zip(self.paces, self.steps[kind], strict=True):
            if pace is None:
                continue
            rest_s, count = left_s - pace.chunk_s, 0.0
            while rest_s >= 0:
                received = max(counted + self.below(receiver, rest_s) for receiver, counted in receivers)
                if self.one_at_a_time:
                    count = received + self.below(kind, rest_s)
                    break
                count += pace.ports * received
                rest_s -= pace.chunk_s
            counts.append(count)
        self.known[key] = max(counts) if self.one_at_a_time else sum(counts)
        return self.known[key]


def _pace(problem: Chunked, links: Ids) -> _Pace | None:
    if not len(links):
        return None
    return _Pace(float(problem.duration_s[links].min()), most_at_once(problem.logical.topology, links))


def influence_bound_s(
    problem: Chunked, one_at_a_time: bool, time_steps: int, most_chunks: int, known_s: float = 0.0
) -> float:
    """The largest bound over the nodes that are not single ranks; nodes that want the same count are looked at once.

    `time_steps`, `most_chunks`: how finely time is cut and how many chunks are counted, see `BoundParameters`.
    `known_s`: another bound; 0 is returned, in a fraction of the time, where none of these is larger.
    """
    nodes, best_s = problem.logical.topology.node_of, known_s
    seen = set()
    for node in range(problem.logical.topology.node_count):
        inside = nodes == node
        if 1 < inside.sum() < len(nodes):
            found = _pairs(problem, inside, most_chunks)
            if found is not None and (key := (int(found[0].sum()), found[1], found[2])) not in seen:
                seen.add(key)
                best_s = max(best_s, _influence_s(problem, inside, one_at_a_time, time_steps, best_s, *found))
    return best_s if best_s > known_s else 0.0


def _pairs(problem: Chunked, inside: Mask, most_chunks: int) -> tuple[Ids, int, bool] | None:
    """What each rank outside has that counts; the pairs needed; whether a chunk's own bytes count."""
    members = np.flatnonzero(inside)
    wanted = problem.wanted[:, members] & ~inside[problem.owners][:, None]
    some = wanted.any(axis=1)
    count = problem.collective.rank_count
    if not some.any():
        return None
    if wanted[some].all():
        own: Ids = np.bincount(problem.owners[some], minlength=count)
        return (own, int(wanted.sum()), True) if own.sum() <= most_chunks else None
    heard_of = np.zeros((count, len(members)), dtype=np.bool_)
    np.logical_or.at(heard_of, problem.owners, wanted)
    return np.asarray(heard_of.any(axis=1), dtype=np.int64), int(heard_of.sum()), False


def _influence_s(
    problem: Chunked,
    inside: Mask,
    one_at_a_time: bool,
    time_steps: int,
    known_s: float,
    own: Ids,
    needed: int,
    by_bytes: bool,
) -> float:
    """The least time in which the messages into a node can be worth the pairs that are needed; 0 if `known_s` is."""
    topology = problem.logical.topology
    within, entering = _pace(problem, links_within(topology, inside)), links_into(topology, inside)
    if within is None or not len(entering):
        return 0.0
    alpha_s, beta_s = topology.alpha_s, topology.beta_s_per_byte * problem.chunk_bytes
    if not by_bytes:
        alpha_s, beta_s = problem.duration_s, np.zeros_like(beta_s)
    ports = [len(np.unique(port_of_links(topology, entering, side))) for side in SIDES]
    single = ports[-1] == len(entering)  # every port brings what one rank sends to one rank
    had_s = earliest_s(topology, Costs(alpha_s, beta_s), own, np.arange(len(own)))[~inside].min(axis=0)
    entry_s: Floats = float(alpha_s[entering].min()) + float(beta_s[entering].min()) * np.arange(
        len(had_s), dtype=float
    )
    inner = max(time_steps, int(np.ceil(time_steps / _COARSER_AT_PORTS * within.chunk_s / entry_s[1])))
    if inner > _MOST_UNLIKE * time_steps:
        return 0.0
    step_s = within.chunk_s / inner
    growth = 2 if one_at_a_time else 1 + within.ports
    near_s = _near_s(problem, inside)

    def is_enough(steps: int) -> bool:
        worth = _worth(steps, step_s, entry_s, had_s, _weights(steps, inner, step_s, growth, near_s), single)
        return min(ports) * worth >= needed

    low = int(known_s / step_s)
    if low and (low >= _LONGEST * time_steps or is_enough(low)):
        return 0.0
    high = 2 * low or 1
    while high < _LONGEST * time_steps and not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return low * step_s


def _near_s(problem: Chunked, inside: Mask) -> Floats:
    """`near[k]`: the least time in which k + 1 ranks of the set can be reached from one of them, inside it."""
    topology, members = problem.logical.topology, np.flatnonzero(inside)
    distance_s = distances_s(topology, problem.duration_s, members, links_within(topology, inside))[:, members]
    return np.asarray(np.sort(distance_s, axis=1).min(axis=0))


def _weights(steps: int, inner: int, step_s: float, growth: int, near_s: Floats) -> Floats:
    """For each step from 1 on, how many ranks a block can reach by the end if it comes in within the step, at most."""
    left = steps - np.arange(1, steps + 1) + 1  # from the start of the step
    spread = float(growth) ** np.minimum(np.ceil(left / inner) - 1, 60)
    reached = np.searchsorted(near_s, left * step_s * (1 + 1e-9), side="right")
    return np.asarray(np.minimum(spread, reached), dtype=np.float64)


def _worth(steps: int, step_s: float, entry_s: Floats, had_s: Floats, weights: Floats, single: bool) -> float:
    """The most pairs in the end that messages through one port can make, over `steps` steps.

    `table[y, i]`: of messages that are over by step i and bring y chunks in all. Each chunk of a message that is over
    within step i counts for `weights[i - 1]`. `entry_s[x]`: the time of a message of x chunks, which starts when its
    sender has them (where it is the port's only one: all y so far).
    """
    count = len(entry_s) - 1
    table = np.full((count + 1, steps + 1), -np.inf)
    table[0] = 0.0
    took = entry_s / step_s
    ready = had_s / step_s
    for i in range(1, steps + 1):
        weight = float(weights[i - 1])
        table[1:, i] = table[1:, i - 1]
        for x in range(1, count + 1):
            start = i - took[x]
            if start < 0:
                break
            before = int(np.ceil(start - 1e-9))
            if single:
                y = np.arange(x, count + 1)
                fit = ready[x:] <= start + 1e-9
                value = np.where(fit, table[y - x, before] + x * weight, -np.inf)
                table[x:, i] = np.maximum(table[x:, i], value)
            elif ready[x] <= start + 1e-9:
                table[1, i] = max(table[1, i], max(table[0, before], table[1, before]) + x * weight)
    return float(table[:, steps].max())
