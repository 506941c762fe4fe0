"""Transfers: the sends of an algorithm, laid along links, and turned round where a collective reduces.

An algorithm says which rank sends which chunks to which, and in which step. Where two have no link the chunks go along
the shortest path, stored on each rank of it; a rank that has a chunk already is not sent it again, so each chunk
travels along a tree. Backwards, such a tree collects: every rank adds its part to what it has from its children, and
sends it on. REDUCESCATTER is that of ALLGATHER, REDUCE of BROADCAST, ALLREDUCE one after the other.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import networkx as nx

from gapless.encodings.taccl.sends import Transfer
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["Network", "Send", "backwards", "lay", "one_after_the_other", "paced"]

_MOST_PATHS = 16
"""Paths of the same length that are compared."""


@dataclass(frozen=True)
class Send:
    """Chunks from one rank to another, in a step of the pieces' own time; pieces are independent of each other."""

    piece: int
    step: int
    source: int
    target: int
    chunks: tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """A topology, and the paths between its ranks that are shortest for messages of `message_bytes`."""

    topology: Topology
    message_bytes: int

    @cached_property
    def reverse(self) -> Network:
        """The same links the other path round, with the same numbers."""
        return Network(turned_round(self.topology), self.message_bytes)

    def path(self, source: int, target: int) -> list[int]:
        """The links from one rank to another: the direct one, or those of a shortest path.

        Of paths of the same length it is the one whose links are on the fewest paths so far. Raises `InputError` where
        there is no path.
        """
        if (source, target) not in self._paths:
            ranks = [source, target] if self._graph.has_edge(source, target) else self._detour(source, target)
            links = [self._graph.edges[hop]["link"] for hop in pairwise(ranks)]
            self._paths[source, target] = links
            self._uses.update(links)
        return self._paths[source, target]

    @cached_property
    def _graph(self) -> nx.DiGraph[int]:
        return self.topology.to_networkx(self.message_bytes)

    @cached_property
    def _paths(self) -> dict[tuple[int, int], list[int]]:
        return {}

    @cached_property
    def _uses(self) -> Counter[int]:
        return Counter()

    @cached_property
    def _before(self) -> dict[int, dict[int, list[int]]]:
        return {}

    def _detour(self, source: int, target: int) -> list[int]:
        if source not in self._before:
            found = nx.dijkstra_predecessor_and_distance(self._graph, source, weight="duration_s")
            self._before[source] = found[0]
        before = self._before[source]
        if target not in before:
            raise InputError(f"topology {self.topology.name!r}: rank {source} must reach rank {target}, it has no path")
        paths: list[list[int]] = []
        front = deque([[target]])
        while front and len(paths) < _MOST_PATHS:
            path = front.popleft()
            for rank in before[path[0]]:
                if rank not in path:
                    (paths if rank == source else front).append([rank, *path])
        return min(paths, key=self._busiest)

    def _busiest(self, ranks: list[int]) -> tuple[int, list[int]]:
        uses = [self._uses[self._graph.edges[hop]["link"]] for hop in pairwise(ranks)]
        return max(uses), ranks


def lay(network: Network, sends: Iterable[Send]) -> list[Transfer]:
    """The sends along links, in order of their steps. Whoever sends a chunk first has it at the start."""
    target_of = network.topology.link_target.tolist()
    held: dict[int, set[int]] = {}
    transfers = []
    for send in sorted(sends, key=lambda send: send.step):
        missing = []
        for chunk in send.chunks:
            holders = held.setdefault(chunk, {send.source})
            assert send.source in holders, f"rank {send.source} sends chunk {chunk} before it has it"
            if send.target not in holders:
                missing.append(chunk)
        for link in network.path(send.source, send.target) if missing else []:
            moved = tuple(chunk for chunk in missing if target_of[link] not in held[chunk])
            if moved:
                transfers.append(Transfer(link, moved, False, send.step, send.piece))
            for chunk in moved:
                held[chunk].add(target_of[link])
    return transfers


def backwards(transfers: list[Transfer]) -> list[Transfer]:
    """What collects where the transfers, laid on the reverse network, spread."""
    last = max((transfer.step for transfer in transfers), default=0)
    return [replace(transfer, step=last - transfer.step, reduces=True) for transfer in reversed(transfers)]


def one_after_the_other(first: list[Transfer], second: list[Transfer]) -> list[Transfer]:
    """The second's steps after those of the first, piece by piece."""
    shift = 1 + max((transfer.step for transfer in first), default=-1)
    return [*first, *(replace(transfer, step=transfer.step + shift) for transfer in second)]


def paced(transfers: list[Transfer], pace: tuple[int, int]) -> list[Transfer]:
    """The transfers in the order of step * pace[0] + piece * pace[1].

    A pipeline sends a later piece in an earlier step before an earlier piece in a later one.
    """
    return sorted(transfers, key=lambda transfer: transfer.step * pace[0] + transfer.piece * pace[1])
