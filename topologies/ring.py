"""A ring through all ranks of a topology, whose slowest link is as fast as a simple search can make it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["fastest_ring"]

Held = dict[tuple[int, int], frozenset[int]]

_STEPS = 5_000
"""Extensions of a path that one search tries before it gives up; a node of 16 ranks in full takes 16."""


def fastest_ring(topology: Topology) -> list[int]:
    """Links that lead through every rank once and back, from rank 0; empty for a single rank.

    Links are admitted from the largest bandwidth down until a depth-first search closes a ring, first among rings that
    visit node after node, which cross each network interface once. With the same links, rings of which no two links
    share a resource come first. Deterministic; a ring may exist where a search gives up, and is then not found. Raises
    `InputError` where none is found.
    """
    if topology.device_count == 1:
        return []
    best, beta_s = _best_links(topology), topology.beta_s_per_byte.tolist()
    slowest = sorted({beta_s[number] for number in best.values()})
    start, resources = topology.held_start.tolist(), topology.held.tolist()
    held = {hop: frozenset(resources[start[number] : start[number + 1]]) for hop, number in best.items()}
    for node_by_node in (True, False):
        for limit in slowest if node_by_node else slowest[-1:]:
            hops = {hop: held[hop] for hop, number in best.items() if beta_s[number] <= limit}
            if not _is_connected(topology.device_count, hops):
                continue
            for apart in (True, False) if resources else (False,):
                ring = _ring(topology, hops, node_by_node, apart)
                if ring:
                    return [best[hop] for hop in zip(ring, [*ring[1:], ring[0]], strict=True)]
    raise InputError(
        f"topology {topology.name!r}: no ring through all {topology.device_count} ranks was found along its links"
    )


def _best_links(topology: Topology) -> dict[tuple[int, int], int]:
    """The fastest link of each ordered pair of ranks, the fastest of all first."""
    order = np.lexsort((topology.alpha_s, topology.beta_s_per_byte))
    ends = zip(topology.link_source[order].tolist(), topology.link_target[order].tolist(), strict=True)
    best: dict[tuple[int, int], int] = {}
    for pair, number in zip(ends, order.tolist(), strict=True):
        best.setdefault(pair, number)
    return best


def _is_connected(count: int, hops: Iterable[tuple[int, int]]) -> bool:
    """Whether every rank can be reached from every other: without that no search need look for a ring."""
    after: list[list[int]] = [[] for _ in range(count)]
    before: list[list[int]] = [[] for _ in range(count)]
    for source, target in hops:
        after[source].append(target)
        before[target].append(source)
    return all(all(neighbours) and _reached(neighbours) == count for neighbours in (after, before))


def _reached(neighbours: list[list[int]]) -> int:
    """How many ranks can be reached from rank 0."""
    reached, front = {0}, [0]
    for rank in front:
        further = [other for other in neighbours[rank] if other not in reached]
        reached.update(further)
        front += further
    return len(reached)


def _ring(topology: Topology, held: Held, node_by_node: bool, apart: bool) -> list[int]:
    """The ranks in the order of a ring, or nothing; `apart`: no two of its links share a resource.

    `held`: the pairs of ranks with a link, and the resources that these hold.
    """
    count, node_of = topology.device_count, topology.node_of_device
    successors: list[list[int]] = [[] for _ in range(count)]
    predecessors: list[list[int]] = [[] for _ in range(count)]
    for source, target in held:
        successors[source].append(target)
        predecessors[target].append(source)
    unvisited = set(range(1, count))
    in_use: set[int] = set()
    open_successors = [len(unvisited.intersection(targets)) for targets in successors]

    def is_free(hop: tuple[int, int]) -> bool:
        return not apart or in_use.isdisjoint(held[hop])

    def step(rank: int, target: int, back: bool = False) -> None:
        """Go to an unvisited rank, or back from it."""
        (unvisited.add if back else unvisited.remove)(target)
        (in_use.difference_update if back else in_use.update)(held[rank, target])
        for source in predecessors[target]:
            open_successors[source] += 1 if back else -1

    def next_ranks(rank: int) -> Iterator[int]:
        """Unvisited ranks, the hardest to come back to first: those with the fewest such successors, then near ones."""
        found = [target for target in successors[rank] if target in unvisited and is_free((rank, target))]
        if node_by_node and any(node_of[other] == node_of[rank] for other in unvisited):
            found = [target for target in found if node_of[target] == node_of[rank]]
        return iter(sorted(found, key=lambda target: (open_successors[target], len(held[rank, target]), target)))

    path, choices = [0], [next_ranks(0)]
    for _ in range(_STEPS):
        rank = next(choices[-1], None)
        if rank is None:
            choices.pop()
            if not choices:
                return []
            last = path.pop()
            step(path[-1], last, back=True)
            continue
        step(path[-1], rank)
        path.append(rank)
        if len(path) == count and (rank, 0) in held and is_free((rank, 0)):
            return path
        choices.append(next_ranks(rank))
    return []
