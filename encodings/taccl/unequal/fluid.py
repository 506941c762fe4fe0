"""Fluid: an ALLTOALLV as a flow, whose prices prove a bound, and whose paths are a choice for pieces.

What all holds a link (a switch side, a NIC, a cable, or the link itself) is a lane. Give every lane a price: the
cheapest paths of all bytes cost no more than all lanes' time at these prices. So no plan takes less than the cost of
those over the sum of prices, whatever the prices are (the dual of the maximum concurrent flow). Good prices follow the
loads: all bytes take the paths that are cheapest now, loads are averaged over such rounds, and prices are powers of
them (Frank and Wolfe's method for the largest load). Work is counted in rounds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.symmetry.rotations import resources_of
from gapless.topologies.topology import Topology

__all__ = ["Fluid", "Lanes", "Path", "fluid"]

Path = tuple[int, ...]

_SHARPEST = 60.0
"""How sharply prices follow loads at the end."""
_PROVE_EVERY = 4
"""Rounds after which the bound of the prices is worked out."""
_CLOSER = 1e-9
"""A path must be shorter by this share to take the place of one of fewer links."""
_ROUNDING = 1e-9
_MOST_PATHS = 16
"""Paths of a pair that are a choice, the first that are found."""
_MOST_NOTED = 1_000_000
"""Pairs whose paths are looked at, in all rounds."""


@dataclass(frozen=True)
class Lanes:
    """`link[h]` holds lane `lane[h]`: int64. `count`: of lanes. `of_link[l]`: the lanes of link l."""

    link: Ids
    lane: Ids
    count: int
    of_link: list[tuple[int, ...]]

    @classmethod
    def of(cls, topology: Topology) -> Lanes:
        """The resources, and behind these the links that have none."""
        held, links = resources_of(topology), len(topology.links)
        alone = np.flatnonzero(held.lengths == 0)
        link = np.concatenate([held.owner, alone])
        lane = np.concatenate([held.values, len(topology.resources) + np.arange(len(alone))])
        of_link: list[list[int]] = [[] for _ in range(links)]
        for one, held_lane in zip(link.tolist(), lane.tolist(), strict=True):
            of_link[one].append(held_lane)
        return cls(link, lane, len(topology.resources) + len(alone), [tuple(lanes) for lanes in of_link])

    def load_s(self, through: Floats) -> Floats:
        """Seconds that each lane is held; `through[l]`: seconds that bytes take on each link."""
        return np.asarray(np.bincount(self.lane, weights=through[self.link], minlength=self.count), dtype=np.float64)

    def cost(self, price: Floats, links: int) -> Floats:
        """The prices of all lanes of each link together."""
        return np.asarray(np.bincount(self.link, weights=price[self.lane], minlength=links), dtype=np.float64)


@dataclass(frozen=True)
class Fluid:
    """`bound_s`: no plan takes less. `load_s`: the largest load of the flow, above 0. `paths[s, t]`: those that bytes
    of a pair took, the first ones found first.
    """

    bound_s: float
    load_s: float
    paths: dict[tuple[int, int], list[Path]]


def fluid(topology: Topology, sent: Floats, rounds: int) -> Fluid:
    """A flow of `sent[s, t]` bytes from each rank s to each rank t, in so many rounds of cheapest paths."""
    lanes, beta_s = Lanes.of(topology), topology.beta_s_per_byte
    links = len(beta_s)
    trees, least_s = _Trees(topology, sent), float(beta_s.max(initial=0.0)) + float(topology.alpha_s.max(initial=0.0))
    through = trees.send(beta_s + topology.alpha_s / max(float(sent[sent > 0].mean()), 1.0)) * beta_s
    bound_s, mean = 0.0, np.zeros(lanes.count)
    for number in range(1, rounds + 1):
        load_s = lanes.load_s(through)
        top_s = max(float(load_s.max()), _ROUNDING * least_s)
        sharp = _SHARPEST * min(1.0, 2 * number / rounds)
        price = np.exp(sharp * (load_s / top_s - 1))
        cost = beta_s * lanes.cost(price, links)
        mean += number * price / price.sum()
        if number % _PROVE_EVERY == 0 or number == rounds:
            distance = distances_s(topology, beta_s * lanes.cost(mean, links), trees.sources)
            bound_s = max(bound_s, float((trees.amount * np.where(trees.amount > 0, distance, 0.0)).sum() / mean.sum()))
        step = 2.0 / (number + 2)
        through = (1 - step) * through + step * trees.send(cost + _CLOSER * beta_s * price.sum()) * beta_s
    return Fluid(bound_s * (1 - _ROUNDING), max(float(lanes.load_s(through).max()), _ROUNDING * least_s), trees.paths)


class _Trees:
    """Cheapest paths from all ranks that send something, and the distinct paths of pairs so far."""

    def __init__(self, topology: Topology, sent: Floats) -> None:
        self.topology, self.sources = topology, np.flatnonzero(sent.any(axis=1))
        self.amount = sent[self.sources]
        self.order = np.argsort(topology.link_target, kind="stable")
        self.heads, self.first = np.unique(topology.link_target[self.order], return_index=True)
        self.tail = topology.link_source[self.order]
        self.lengths = np.diff(np.append(self.first, len(self.order)))
        self.paths: dict[tuple[int, int], list[Path]] = {}
        self.known: set[bytes] = set()
        self.noted = 0
        row, target = np.nonzero(self.amount)
        self.pairs = list(zip(row.tolist(), self.sources[row].tolist(), target.tolist(), strict=True))

    def send(self, cost: Floats) -> Floats:
        """Bytes on each link where all take the cheapest paths, of fewest links where several cost the same."""
        link_to = self._tree(cost)
        self._note(link_to)
        waiting, through = self.amount.copy(), np.zeros(len(cost))
        depth = self._depth(link_to)
        for level in range(int(depth.max()), 0, -1):
            row, rank = np.nonzero(depth == level)
            link, size = link_to[row, rank], waiting[row, rank]
            np.add.at(through, link, size)
            np.add.at(waiting, (row, self.topology.link_source[link]), size)
        return through

    def _tree(self, cost: Floats) -> Ids:
        """`link_to[k, r]`: the last link of the path from source k to rank r, -1 at the source and out of reach."""
        count = len(self.sources)
        distance = np.full((count, self.topology.device_count), np.inf)
        distance[np.arange(count), self.sources] = 0.0
        link_to = np.full(distance.shape, -1, dtype=np.int64)
        by_head = cost[self.order]
        while True:
            through = distance[:, self.tail] + by_head
            least = np.minimum.reduceat(through, self.first, axis=1)
            better = least < distance[:, self.heads] * (1 - _CLOSER)
            if not better.any():
                return link_to
            is_least = through == np.repeat(least, self.lengths, axis=1)
            place = np.where(is_least, np.arange(len(self.order)), len(self.order))
            chosen = self.order[np.minimum.reduceat(place, self.first, axis=1)]
            distance[:, self.heads] = np.where(better, least, distance[:, self.heads])
            link_to[:, self.heads] = np.where(better, chosen, link_to[:, self.heads])

    def _depth(self, link_to: Ids) -> Ids:
        """How many links each path has."""
        before = np.where(link_to >= 0, self.topology.link_source[link_to], -1)
        depth = np.zeros(link_to.shape, dtype=np.int64)
        at = np.broadcast_to(np.arange(link_to.shape[1]), link_to.shape)
        rows = np.arange(len(link_to))[:, None]
        while True:
            step = before[rows, at]
            moving = step >= 0
            if not moving.any():
                return depth
            depth += moving
            at = np.where(moving, step, at)

    def _note(self, link_to: Ids) -> None:
        """Keep the paths that are new."""
        key = link_to.tobytes()
        if key in self.known or (self.known and self.noted + len(self.pairs) > _MOST_NOTED):
            return
        self.known.add(key)
        self.noted += len(self.pairs)
        before, links = self.topology.link_source.tolist(), link_to.tolist()
        for row, source, target in self.pairs:
            found = self.paths.setdefault((source, target), [])
            if len(found) >= _MOST_PATHS:
                continue
            path, at, tree = [], target, links[row]
            while at != source:
                path.append(tree[at])
                at = before[tree[at]]
            taken = tuple(reversed(path))
            if taken not in found:
                found.append(taken)
