"""Sends: moves as a table of transfers to be put in order, one row a send or one row an orbit of sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.moves import Moves
from gapless.encodings.taccl.symmetry.orbits import orbits

__all__ = ["MANY_SENDS", "Sends", "send_orbits", "single_sends", "tables"]

Ids = NDArray[np.int64]
Floats = NDArray[np.float64]

MANY_SENDS = 1000
"""More are only ordered by orbits, where there are orbits: one by one they take seconds, and come out no better."""


@dataclass(frozen=True)
class Sends:
    """Rows in an order in which those that a row needs stand before it.

    `row_of[k]`: the row of send k of the moves. `needs[i]`: the rows that must be over before row i starts, because
    they bring its chunk or parts of its sum. `link[i]`: where row i travels, `lanes[i]`: that link and everything else
    that it holds exclusively, numbered so that two rows conflict if and only if they share a number; `groups[i]`: the
    same and the sum that row i adds to, since a rank adds to a sum one part at a time. `alpha_s`, `beta_s`: float,
    latency and chunk time. `may_join[i]`: whether the row may be grouped with others of its `phase[i]`. `after[i]`:
    rows on the same link that must go before.
    """

    row_of: Ids
    needs: list[tuple[int, ...]]
    link: list[int]
    lanes: list[tuple[int, ...]]
    groups: list[tuple[int, ...]]
    alpha_s: Floats
    beta_s: Floats
    may_join: NDArray[np.bool_]
    phase: Ids
    after: list[list[int]]

    def __len__(self) -> int:
        return len(self.needs)

    @property
    def duration_s(self) -> Floats:
        """Seconds for each row's chunk alone, float."""
        return np.asarray(self.alpha_s + self.beta_s)

    def part(self, rows: Ids) -> Sends:
        """Some of the rows, ascending, without what they need of the others; `row_of` is left empty."""
        number = {row: k for k, row in enumerate(rows.tolist())}

        def kept(lists: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
            return [tuple(number[other] for other in lists[row] if other in number) for row in number]

        return Sends(
            row_of=np.empty(0, dtype=np.int64),
            needs=kept(self.needs),
            link=[self.link[row] for row in number],
            lanes=[self.lanes[row] for row in number],
            groups=[self.groups[row] for row in number],
            alpha_s=self.alpha_s[rows],
            beta_s=self.beta_s[rows],
            may_join=self.may_join[rows],
            phase=self.phase[rows],
            after=[list(its) for its in kept(self.after)],
        )


def tables(problem: Chunked, moves: Moves) -> list[Sends]:
    """Orbit by orbit where the routing is symmetric, and send by send unless there are many."""
    by_orbit = send_orbits(problem, moves)
    if by_orbit is None:
        return [single_sends(problem, moves)]
    return [by_orbit] if len(moves) > MANY_SENDS else [by_orbit, single_sends(problem, moves)]


def single_sends(problem: Chunked, moves: Moves) -> Sends:
    """One row a send."""
    return _table(problem, moves, np.arange(len(moves)), _lanes(problem, moves), _sums(problem, moves))


def send_orbits(problem: Chunked, moves: Moves) -> Sends | None:
    """One row an orbit under the sketch's symmetry: its sends start at the same time, each on its own link and sides.

    None where there is no symmetry, where the moves don't have it, or where two sends of one orbit share a link or a
    side, so that they can't start together.
    """
    symmetry, link_count, cells = problem.logical.symmetry, problem.link_count, problem.wanted.size
    if not symmetry:
        return None
    cell = (moves.phase * len(problem.owners) + moves.chunk) * link_count + moves.link
    order = np.argsort(cell)
    images = []
    for s in symmetry:
        carried_to = (moves.phase * len(problem.owners) + s.chunks[moves.chunk]) * link_count + s.links[moves.link]
        place = np.minimum(np.searchsorted(cell, carried_to, sorter=order), len(cell) - 1)
        if not np.array_equal(cell[order[place]], carried_to):
            return None
        images.append(order[place])
    row_of = _rank_by_first(orbits(images, len(cell)))
    lanes, sums = _lanes(problem, moves), _sums(problem, moves)
    held = [
        (row, group)
        for row, its, summed in zip(row_of.tolist(), lanes, sums, strict=True)
        for group in (*its, *(len(lanes) + cell for cell in summed))
    ]
    if len(set(held)) < len(held):
        return None
    resource_count = link_count + len(problem.logical.topology.resources)
    carried = orbits([_image_of_groups(problem, s.links) for s in symmetry], resource_count)
    rank_count = problem.collective.rank_count
    cell_images = [(s.chunks[:, None] * rank_count + s.ranks[None, :]).reshape(-1) for s in symmetry]
    carried_cell = orbits(cell_images, cells)
    return _table(
        problem,
        moves,
        row_of,
        [tuple(sorted({int(carried[group]) for group in its})) for its in lanes],
        [tuple(int(carried_cell[cell]) for cell in its) for its in sums],
    )


def _table(
    problem: Chunked, moves: Moves, row_of: Ids, lanes: list[tuple[int, ...]], sums: list[tuple[int, ...]]
) -> Sends:
    """Rows from the first send of each; `lanes` and `sums` are given per send."""
    firsts = np.unique(row_of, return_index=True)[1]
    link = moves.link[firsts]
    own_first = problem.logical.own_first[link] & ~moves.reduces[firsts]
    topology = problem.logical.topology
    is_own = problem.owners[moves.chunk[firsts]] == topology.link_source[link]
    group_link = [lanes[k][0] for k in firsts.tolist()]
    own_on_link: dict[int, list[int]] = {}
    for row in np.flatnonzero(own_first & is_own).tolist():
        own_on_link.setdefault(group_link[row], []).append(row)
    after = [
        own_on_link.get(group_link[row], []) if own_first[row] and not is_own[row] else [] for row in range(len(firsts))
    ]
    sum_base = problem.link_count + len(topology.resources)
    numbers = row_of.tolist()
    return Sends(
        row_of=row_of,
        needs=[tuple(sorted({numbers[need] for need in moves.needs[k]})) for k in firsts.tolist()],
        link=group_link,
        lanes=[lanes[k] for k in firsts.tolist()],
        groups=[(*lanes[k], *(sum_base + cell for cell in sums[k])) for k in firsts.tolist()],
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        # What may turn out to be a copy can't travel with what is added.
        may_join=problem.may_group[link] & ~moves.fills[firsts],
        phase=moves.phase[firsts],
        after=after,
    )


def _lanes(problem: Chunked, moves: Moves) -> list[tuple[int, ...]]:
    """What each send holds: its link under its own number, and the link's resources, numbered behind the links."""
    topology, link_count = problem.logical.topology, problem.link_count
    lanes = [
        (number, *(link_count + resource for resource in link.resources)) for number, link in enumerate(topology.links)
    ]
    return [lanes[link] for link in moves.link.tolist()]


def _sums(problem: Chunked, moves: Moves) -> list[tuple[int, ...]]:
    """The sum that each send adds to, as chunk * ranks + rank; none for a send that only copies."""
    target = problem.logical.topology.link_target[moves.link]
    cell = moves.chunk * problem.collective.rank_count + target
    return [(number,) if adds else () for number, adds in zip(cell.tolist(), moves.reduces.tolist(), strict=True)]


def _image_of_groups(problem: Chunked, link_image: Ids) -> Ids:
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
    """Labels renumbered 0, 1, ... in the order in which they first occur, so that needs keep standing first."""
    firsts, inverse = np.unique(label, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(firsts), dtype=np.int64)
    rank[np.argsort(firsts, kind="stable")] = np.arange(len(firsts))
    return rank[inverse]
