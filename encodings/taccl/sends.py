"""Sends: a routing as a table of transfers to be put in order, one row a send or one row an orbit of sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from planwright.encodings.taccl.problem import Problem
from planwright.encodings.taccl.routing import Routing
from planwright.encodings.taccl.symmetry import orbits

__all__ = ["Sends", "send_orbits", "single_sends"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sends:
    """Rows in an order in which parents stand before children.

    `row_of[k]`: the row of send k of the routing. `parent[i]`: the row that brings the chunk, -1 at its owner.
    `link[i]`: where row i travels, `groups[i]`: that link and everything else that it holds exclusively, numbered so
    that two rows conflict if and only if they share a number. `alpha_s`, `beta_s`: float, latency and chunk time.
    `may_join[i]`: whether the row may be grouped with others. `after[i]`: rows on the same link that must go before.
    """

    row_of: Ids
    parent: list[int]
    link: list[int]
    groups: list[tuple[int, ...]]
    alpha_s: Floats
    beta_s: Floats
    may_join: NDArray[np.bool_]
    after: list[list[int]]

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def duration_s(self) -> Floats:
        """Seconds for each row's chunk alone, float."""
        return np.asarray(self.alpha_s + self.beta_s)


def single_sends(problem: Problem, routing: Routing) -> Sends:
    """One row a send."""
    return _table(problem, routing, np.arange(len(routing)), _groups(problem, routing, np.arange(problem.link_count)))


def send_orbits(problem: Problem, routing: Routing) -> Sends | None:
    """One row an orbit under the sketch's symmetry: its sends start at the same time, each on its own link and sides.

    None where there is no symmetry, where the routing doesn't have it, or where two sends of one orbit share a link or
    a side, so that they can't start together.
    """
    symmetry, link_count = problem.logical.symmetry, problem.link_count
    if not symmetry:
        return None
    moves = [(s.chunks[:, None] * link_count + s.links[None, :]).reshape(-1) for s in symmetry]
    sends = routing.chunk * link_count + routing.link
    if not all(np.isin(move[sends], sends).all() for move in moves):
        return None
    row_of = _rank_by_first(orbits(moves, problem.usable.size)[sends])
    exclusive = _groups(problem, routing, np.arange(link_count))
    held = [(row, group) for row, its in zip(row_of.tolist(), exclusive, strict=True) for group in its]
    if len(set(held)) < len(held):
        return None
    resource_count = link_count + len(problem.logical.topology.resources)
    carried = orbits([_image_of_groups(problem, s.links) for s in symmetry], resource_count)
    return _table(problem, routing, row_of, [tuple(sorted({int(carried[g]) for g in its})) for its in exclusive])


def _table(problem: Problem, routing: Routing, row_of: Ids, groups: list[tuple[int, ...]]) -> Sends:
    """Rows from the first send of each; `groups` are given per send."""
    firsts = np.unique(row_of, return_index=True)[1]
    link = routing.link[firsts]
    parent = routing.parent[firsts]
    own_first = problem.logical.own_first[link]
    topology = problem.logical.topology
    is_own = problem.owners[routing.chunk[firsts]] == topology.link_source[link]
    group_link = [groups[k][0] for k in firsts.tolist()]
    own_on_link: dict[int, list[int]] = {}
    for row in np.flatnonzero(own_first & is_own).tolist():
        own_on_link.setdefault(group_link[row], []).append(row)
    after = [
        own_on_link.get(group_link[row], []) if own_first[row] and not is_own[row] else [] for row in range(len(firsts))
    ]
    return Sends(
        row_of=row_of,
        parent=[-1 if k < 0 else int(row_of[k]) for k in parent.tolist()],
        link=group_link,
        groups=[groups[k] for k in firsts.tolist()],
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link],
        after=after,
    )


def _groups(problem: Problem, routing: Routing, link_number: Ids) -> list[tuple[int, ...]]:
    """What each send holds: its link under its own number, and the link's resources, numbered behind the links."""
    links, link_count = problem.logical.topology.links, problem.link_count
    return [
        (int(link_number[link]), *(link_count + resource for resource in links[link].resources))
        for link in routing.link.tolist()
    ]


def _image_of_groups(problem: Problem, link_image: Ids) -> Ids:
    """Where an automorphism carries each link and each resource; int64, links first, as `_groups` numbers them."""
    topology, link_count = problem.logical.topology, problem.link_count
    image = np.arange(link_count + len(topology.resources))
    image[:link_count] = link_image
    users: dict[int, set[int]] = {}
    for number, link in enumerate(topology.links):
        for resource in link.resources:
            users.setdefault(resource, set()).add(number)
    by_users: dict[frozenset[int], list[int]] = {frozenset(its): [] for its in users.values()}
    for resource in sorted(users):
        by_users[frozenset(users[resource])].append(resource)
    for its, resources in by_users.items():
        targets = by_users[frozenset(int(link_image[number]) for number in its)]
        for resource, target in zip(resources, targets, strict=True):
            image[link_count + resource] = link_count + target
    return image


def _rank_by_first(label: Ids) -> Ids:
    """Labels renumbered 0, 1, ... in the order in which they first occur, so that parents keep standing first."""
    firsts, inverse = np.unique(label, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(firsts), dtype=np.int64)
    rank[np.argsort(firsts, kind="stable")] = np.arange(len(firsts))
    return rank[inverse]
