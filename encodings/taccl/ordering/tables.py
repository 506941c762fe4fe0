"""Tables: the sends of routings as rows to be put in order, one row a send or one row an orbit of sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ids
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.list_scheduling import Order, Table
from gapless.encodings.taccl.ordering.sends import Sends, Times
from gapless.encodings.taccl.symmetry.rotations import lanes_of, orbits

__all__ = ["MANY_SENDS", "SendTable", "send_orbits", "single_sends", "tables", "times_of"]

MANY_SENDS = 1000
"""More are only ordered by orbits, where there are orbits: one by one they take seconds, and come out no better."""


@dataclass(frozen=True)
class SendTable(Table):
    """`row_of[k]`: the row of send k. `lanes[i]`: row i's link and the resources that it holds, numbered so that two
    rows conflict if and only if they share a number; `clocks[i]` are the same and the sum that row i adds to, since a
    rank adds to a sum one part at a time.
    """

    row_of: Ids = ()  # type: ignore[assignment]
    lanes: tuple[tuple[int, ...], ...] = ()


def tables(problem: Chunked, sends: Sends) -> list[SendTable]:
    """Orbit by orbit where the routing is symmetric, and send by send unless there are many."""
    by_orbit = send_orbits(problem, sends)
    if by_orbit is None:
        return [single_sends(problem, sends)]
    return [by_orbit] if len(sends) > MANY_SENDS else [by_orbit, single_sends(problem, sends)]


def times_of(order: Order) -> Times:
    """The times of all sends from those of their rows."""
    assert isinstance(order.table, SendTable)
    row = order.table.row_of
    return Times(order.start_s[row], order.end_s[row], order.place[row])


def single_sends(problem: Chunked, sends: Sends) -> SendTable:
    """One row a send."""
    return _table(problem, sends, np.arange(len(sends)), _lanes(problem, sends), _sums(problem, sends))


def send_orbits(problem: Chunked, sends: Sends) -> SendTable | None:
    """One row an orbit under the sketch's symmetry: its sends start at the same time, each on its own link and ports.

    None where there is no symmetry, where the sends don't have it, or where two sends of one orbit share a link or a
    port, so that they can't start together.
    """
    symmetry, link_count = problem.logical.symmetry, problem.link_count
    if not symmetry:
        return None
    first = sends.phase * len(problem.owners)
    cell = (first + sends.chunk) * link_count + sends.link
    order = np.argsort(cell)
    images = []
    for s in symmetry:
        carried_to = (first + s.chunks[sends.chunk]) * link_count + s.links[sends.link]
        place = np.minimum(np.searchsorted(cell, carried_to, sorter=order), len(cell) - 1)
        if not np.array_equal(cell[order[place]], carried_to):
            return None
        images.append(order[place])
    row_of = _rank_by_first(orbits(images, len(cell)))
    lanes, sums = _lanes(problem, sends), _sums(problem, sends)
    held = [
        (row, clock)
        for row, taken, summed in zip(row_of.tolist(), lanes, sums, strict=True)
        for clock in (*taken, *(len(lanes) + cell for cell in summed))
    ]
    if len(set(held)) < len(held):
        return None
    clock_count = link_count + len(problem.logical.topology.resources)
    carried = orbits([_image_of_lanes(problem, s.links) for s in symmetry], clock_count)
    rank_count = problem.collective.rank_count
    cell_images = [(s.chunks[:, None] * rank_count + s.ranks[None, :]).reshape(-1) for s in symmetry]
    carried_cell = orbits(cell_images, problem.wanted.size)
    return _table(
        problem,
        sends,
        row_of,
        [tuple(sorted({int(carried[lane]) for lane in taken})) for taken in lanes],
        [tuple(int(carried_cell[cell]) for cell in summed) for summed in sums],
    )


def _table(
    problem: Chunked, sends: Sends, row_of: Ids, lanes: list[tuple[int, ...]], sums: list[tuple[int, ...]]
) -> SendTable:
    """Rows from the first send of each; `lanes` and `sums` are given per send."""
    firsts = np.unique(row_of, return_index=True)[1]
    link = sends.link[firsts]
    own_first = problem.logical.own_first[link] & ~sends.reduces[firsts]
    topology = problem.logical.topology
    is_own = problem.owners[sends.chunk[firsts]] == topology.link_source[link]
    lane = [lanes[k][0] for k in firsts.tolist()]
    own_on_link: dict[int, list[int]] = {}
    for row in np.flatnonzero(own_first & is_own).tolist():
        own_on_link.setdefault(lane[row], []).append(row)
    after = [own_on_link.get(lane[row], []) if own_first[row] and not is_own[row] else [] for row in range(len(firsts))]
    sum_base = problem.link_count + len(topology.resources)
    numbers, phases = row_of.tolist(), sends.phase[firsts].tolist()
    return SendTable(
        needs=[tuple(sorted({numbers[need] for need in sends.needs[k]})) for k in firsts.tolist()],
        link=[phase * sum_base + number for phase, number in zip(phases, lane, strict=True)],  # phases don't mix
        clocks=[(*lanes[k], *(sum_base + cell for cell in sums[k])) for k in firsts.tolist()],
        alpha_s=topology.alpha_s[link],
        beta_s=problem.duration_s[link] - topology.alpha_s[link],
        may_join=problem.may_group[link] & ~sends.fills[firsts],  # what may be a copy can't go with what is added
        after=after,
        row_of=row_of,
        lanes=tuple(lanes[k] for k in firsts.tolist()),
    )


def _lanes(problem: Chunked, sends: Sends) -> list[tuple[int, ...]]:
    """What each send holds."""
    lanes = lanes_of(problem.logical.topology)
    return [lanes[link] for link in sends.link.tolist()]


def _sums(problem: Chunked, sends: Sends) -> list[tuple[int, ...]]:
    """The sum that each send adds to, as chunk * ranks + rank; none for a send that only copies."""
    target = problem.logical.topology.link_target[sends.link]
    cell = sends.chunk * problem.collective.rank_count + target
    return [(number,) if adds else () for number, adds in zip(cell.tolist(), sends.reduces.tolist(), strict=True)]


def _image_of_lanes(problem: Chunked, link_image: Ids) -> Ids:
    """Where an automorphism carries each link and each resource; int64, links first, as `lanes_of` numbers them."""
    topology, link_count = problem.logical.topology, problem.link_count
    image = np.arange(link_count + len(topology.resources))
    image[:link_count] = link_image
    users: dict[int, set[int]] = {}
    for number, link in enumerate(topology.links):
        for resource in link.resources:
            users.setdefault(resource, set()).add(number)
    by_users: dict[frozenset[int], list[int]] = {frozenset(links): [] for links in users.values()}
    for resource in sorted(users):
        by_users[frozenset(users[resource])].append(resource)
    for links, resources in by_users.items():
        targets = by_users[frozenset(int(link_image[number]) for number in links)]
        for resource, target in zip(resources, targets, strict=True):
            image[link_count + resource] = link_count + target
    return image


def _rank_by_first(label: Ids) -> Ids:
    """Labels renumbered 0, 1, ... in the order in which they first occur, so that needs keep standing first."""
    firsts, inverse = np.unique(label, return_index=True, return_inverse=True)[1:]
    rank = np.empty(len(firsts), dtype=np.int64)
    rank[np.argsort(firsts, kind="stable")] = np.arange(len(firsts))
    return rank[inverse]
