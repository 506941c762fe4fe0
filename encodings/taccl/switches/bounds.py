"""Bounds that hold where switches add up and multicast: what must leave and enter ranks, and how far data have to go.

A switch that adds up lets the parts of many ranks enter one as a single sum, and one that multicasts lets one copy
reach many. So what crosses ports to many ranks may not be counted for each of them: most bounds for plain
transfers don't hold. What is left: what a rank or a node has for others must leave it once, and what others have for it
must enter it once. Where no switch adds up across classes of ranks, sums cross between these as they always do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.chunked import Chunked
from gapless.topologies.links import Links
from gapless.topologies.ports.switch_groups import Reduction
from gapless.topologies.topology import Topology

__all__ = [
    "has_own_ports",
    "has_plain_bandwidth",
    "is_bandwidth_plain",
    "switch_bounds_s",
    "through_s",
    "with_least_costs",
]

_MOST_STARTS = 64
"""Ranks from which distances are worked out."""
_MOST_SETS = 256
"""Sets of ranks around which is counted what crosses; of more, as many in even steps."""


def switch_bounds_s(problem: Chunked) -> dict[str, float]:
    """Seconds that no plan of the question takes less, with whatever its switches do, by where they come from.

    `latency`: the longest of the shortest paths. `ports`: what must leave, or enter, a rank, a node or all ranks behind
    a switch, once. `classes`: an ALLREDUCE between classes of ranks that no switch joins.
    """
    parts, joined = _parts(problem), _by_group(problem.topology)
    crossing_s = (_crossing_s(problem, *parts, inside, joined) for inside in _sets(problem.topology))
    return {
        "latency": _latency_s(problem, *parts),
        "ports": max(crossing_s, default=0.0),
        "classes": _classes_s(problem, joined),
    }


def is_bandwidth_plain(problem: Chunked) -> bool:
    """Whether bandwidth bounds of plain transfers hold: each chunk is for one rank, and travels there alone.

    Of an operation that brings such a chunk on, one transfer would have done. That takes no more of any port, where the
    switch is no faster than its links, and what they hold is each one rank's.
    """
    collective, topology = problem.collective, problem.topology
    if collective.reduces or max(map(len, collective.destinations)) > 1:
        return False
    return has_plain_bandwidth(topology)


def has_plain_bandwidth(topology: Topology) -> bool:
    """Whether no operation of a switch takes less than a message for each of the bytes that differ, of any port."""
    for group in topology.switch_groups:
        links = _joined(topology, group.ranks)
        if (topology.beta_s_per_byte[links] > group.reduction.beta_s_per_byte * (1 + 1e-9)).any():
            return False
    return has_own_ports(topology)


def has_own_ports(topology: Topology) -> bool:
    """Whether what links between ranks of a switch group hold is each one rank's, the sender's or the receiver's.

    What many ranks hold is held once by an operation, whatever it brings to all of them.
    """
    for group in topology.switch_groups:
        links = np.flatnonzero(_joined(topology, group.ranks))
        held = np.isin(topology.held_by, links)
        ports, link = topology.held[held], topology.held_by[held]
        ends = (topology.link_source[link], topology.link_target[link])
        counts = [np.bincount(np.unique(np.stack([ports, end], axis=1), axis=0)[:, 0]) for end in ends]
        if len(ports) and (np.minimum(*counts) > 1).any():
            return False
    return True


def with_least_costs(topology: Topology) -> Topology:
    """The same with links between ranks of a switch group that take no longer than its operations.

    No plan is slower there, so that bounds hold for the topology which hold where operations take no less than links.
    """
    alpha_s, beta_s_per_byte = topology.alpha_s.copy(), topology.beta_s_per_byte.copy()
    for group in topology.switch_groups:
        joined = _joined(topology, group.ranks)
        alpha_s[joined] = np.minimum(alpha_s[joined], group.reduction.alpha_s)
        beta_s_per_byte[joined] = np.minimum(beta_s_per_byte[joined], group.reduction.beta_s_per_byte)
    columns = topology.link_source, topology.link_target, alpha_s, beta_s_per_byte
    return replace(topology, links=Links(*columns, topology.held_start, topology.held))


def _sets(topology: Topology) -> Iterator[Mask]:
    """Single ranks, nodes, and the ranks behind switches, as masks; all ranks together are none."""
    singles = ((rank,) for rank in range(topology.device_count))
    groups = (group.ranks for group in topology.switch_groups)
    found = {frozenset(ranks) for part in (singles, map(tuple, topology.nodes), groups) for ranks in part}
    for ranks in sorted(map(sorted, found))[:: max(1, len(found) // _MOST_SETS)]:
        if len(ranks) < topology.device_count:
            inside = np.zeros(topology.device_count, dtype=np.bool_)
            inside[ranks] = True
            yield inside


def _parts(problem: Chunked) -> tuple[Mask, Mask]:
    """Which ranks start with (a part of) each chunk, and which want it: bool, shape (chunks, ranks)."""
    collective = problem.collective
    starters = collective.contributors if collective.reduces else [(owner,) for owner in collective.owners]
    found = []
    for lists in (starters, collective.destinations):
        mask = np.zeros((collective.chunk_count, collective.rank_count), dtype=np.bool_)
        for chunk, ranks in enumerate(lists):
            mask[chunk, list(ranks)] = True
        found.append(mask)
    return found[0], found[1]


def _latency_s(problem: Chunked, starts: Mask, wanted: Mask) -> float:
    """The longest of the shortest paths, each link at the least latency of what may use it."""
    topology = with_least_costs(problem.topology)
    farthest_s = 0.0
    for start in range(min(problem.collective.rank_count, _MOST_STARTS)):
        targets = wanted[starts[:, start]].any(axis=0)
        if targets.any():
            distance_s = distances_s(topology, topology.alpha_s, np.array([start]))[0]
            farthest_s = max(farthest_s, float(distance_s[targets].max()))
    return farthest_s


def _joined(topology: Topology, ranks: tuple[int, ...]) -> Mask:
    """The links between some ranks."""
    inside = np.zeros(topology.device_count, dtype=np.bool_)
    inside[list(ranks)] = True
    return np.asarray(inside[topology.link_source] & inside[topology.link_target])


Joined = list[tuple[Reduction, Mask]]
"""What each switch group does, and the links between its ranks."""


def _by_group(topology: Topology) -> Joined:
    return [(group.reduction, _joined(topology, group.ranks)) for group in topology.switch_groups]


def through_s(topology: Topology, links: Ids, size_bytes: float) -> float:
    """How long it takes to get so many bytes over some links, each once, by messages or by operations of switches."""
    return _through_s(topology, links, size_bytes, _by_group(topology))


def _crossing_s(problem: Chunked, starts: Mask, wanted: Mask, inside: Mask, joined: Joined) -> float:
    """What some ranks have for others leaves them once, and what others have for them comes in once."""
    topology = problem.topology
    source, target = inside[topology.link_source], inside[topology.link_target]
    found = [0.0]
    for own, links in ((inside, source & ~target), (~inside, ~source & target)):
        must = int((starts[:, own].any(axis=1) & wanted[:, ~own].any(axis=1)).sum()) * problem.chunk_bytes
        if must and links.any():
            found.append(_through_s(topology, np.flatnonzero(links), must, joined))
    return max(found)


def _classes_s(problem: Chunked, joined: Joined) -> float:
    """An ALLREDUCE between p classes crosses from one to another 2 (p - 1) times a byte, as directed gossip does.

    Classes are what switches that add up or multicast leave apart; and the same with nodes as wholes.
    """
    if not problem.sums_for_all:
        return 0.0
    topology = problem.topology
    groups = [group.ranks for group in topology.switch_groups]
    found = [0.0]
    for classes in (groups, [*groups, *map(tuple, topology.nodes)]):
        label = _labels(topology.device_count, classes)
        crossing = np.flatnonzero(label[topology.link_source] != label[topology.link_target])
        times = 2 * (len(np.unique(label)) - 1)
        if times and len(crossing):
            size_bytes = problem.collective.chunk_count * problem.chunk_bytes
            found.append(_through_s(topology, crossing, times * size_bytes, joined))
    return max(found)


def _labels(devices: int, joined: list[tuple[int, ...]]) -> Ids:
    """A number for each rank, the same for those that are joined."""
    label = np.arange(devices)
    for ranks in joined:
        mine = np.unique(label[list(ranks)])
        label[np.isin(label, mine)] = mine[0]
    return label


def _through_s(topology: Topology, links: Ids, size_bytes: float, joined: Joined) -> float:
    """How long it takes to get so many bytes over some links, whatever uses them.

    Each link is counted with one port: itself or one of its resources, which each message over it holds. So what passes
    in a time is limited by these ports alone, and each waits for a latency first.
    """
    alpha_s = float(topology.alpha_s[links].min())
    own = [(reduction, mask[links]) for reduction, mask in joined]
    own = [(reduction, mask) for reduction, mask in own if mask.any()]
    alpha_s = min([alpha_s, *(reduction.alpha_s for reduction, _ in own)])
    rate = min(_rate_bytes_per_s(topology, links, port, own) for port in _ports_of(topology, links))
    return alpha_s if np.isinf(rate) else alpha_s + size_bytes / rate


def _rate_bytes_per_s(topology: Topology, links: Ids, port: Ids, joined: Joined) -> float:
    """What passes the ports of some links in a second, at most; `port`: a number for each link's. `joined`: of these
    links.
    """
    ports, place = np.unique(port, return_inverse=True)
    rate = np.zeros(len(ports))
    with np.errstate(divide="ignore"):
        np.maximum.at(rate, place, 1 / topology.beta_s_per_byte[links])
    for reduction, own in joined:
        many = _at_once(topology, links[own], place[own], len(ports), reduction.beta_s_per_byte)
        np.maximum(rate, many, out=rate)
    return float(rate.sum())


def _at_once(topology: Topology, links: Ids, place: Ids, ports: int, beta_s_per_byte: float) -> Floats:
    """The bytes a second that operations of a switch may get through each port: of all ranks that send by it together,
    or of all that receive, if those are fewer.
    """
    with np.errstate(divide="ignore"):
        one = np.inf if not beta_s_per_byte else 1 / beta_s_per_byte
    ends = (topology.link_source[links], topology.link_target[links])
    counts = [np.bincount(np.unique(np.stack([place, end], axis=1), axis=0)[:, 0], minlength=ports) for end in ends]
    many = np.minimum(*counts)
    return np.where(many > 0, many * one if np.isfinite(one) else np.inf, 0.0)


def _ports_of(topology: Topology, links: Ids) -> list[Ids]:
    """Choices of a port for each link: the first of its resources (where it leaves), the last (where it comes in), and
    the one that most of the links hold; the link itself (numbers below 0) without any.
    """
    lengths = np.diff(topology.held_start)[links]
    owner = np.repeat(np.arange(len(links)), lengths)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    held = topology.held[np.repeat(topology.held_start[links], lengths) + within]
    holders = np.bincount(held, minlength=len(topology.resources) + 1)
    choices = []
    for rank in (-within, within, holders[held]):
        # The last of each link's wins; of equal ones that with the lowest number.
        port = -1 - links
        order = np.lexsort((-held, rank, owner))
        port[owner[order]] = held[order]
        choices.append(port)
    return choices
