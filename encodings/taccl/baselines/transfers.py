"""Transfers: the sends of an algorithm, laid along links, and turned round where a collective reduces.

An algorithm says which rank sends which chunks to which, and in which step. Where two have no link the chunks go along
the shortest path, stored on each rank of it; a rank that has a chunk already is not sent it again, so each chunk
travels along a tree. Backwards, such a tree collects: every rank adds its part to what it has from its children, and
sends it on. REDUCESCATTER is that of ALLGATHER, REDUCE of BROADCAST, ALLREDUCE one after the other.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gapless.encodings.taccl.bounds.link_costs import distances_s
from gapless.encodings.taccl.ordering.sends import Transfer
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = [
    "DETOUR",
    "MOVES",
    "Network",
    "Send",
    "backwards",
    "end_s_of",
    "lay",
    "one_after_the_other",
    "paced",
    "work_of",
]

_SAME = 1e-12
"""Paths whose lengths differ by less than this part are equally long."""
MOVES = 6
"""To send so many chunks takes as long as to lay out a transfer."""
DETOUR = 5
"""A shortest path is found in the time in which so many transfers are laid out."""
_LEAST_S = 1e-15
"""What a link takes at least where paths are compared, so that none goes in circles along links that take no time."""


class Send(NamedTuple):
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
        links = self._paths.get((source, target))
        if links is None:
            is_direct = (source, target) in self._link
            ranks = [source, target] if is_direct else self._detour(source, target)
            if not is_direct:
                self._detours.append((source, target))
            links = [self._link[hop] for hop in pairwise(ranks)]
            self._paths[source, target] = links
            self._uses.update(links)
        return links

    @property
    def work(self) -> int:
        """What it took to find paths so far, in transfers that are laid out meanwhile."""
        return DETOUR * len(self._detours)

    @cached_property
    def targets(self) -> list[int]:
        """Where each link leads to."""
        found: list[int] = self.topology.link_target.tolist()
        return found

    @cached_property
    def clocks(self) -> list[tuple[int, ...]]:
        """What each link takes for itself while it sends: its own number, and those of its resources behind them."""
        start, count = self.topology.held_start.tolist(), len(self.targets)
        held = (self.topology.held + count).tolist()
        return [(link, *held[start[link] : start[link + 1]]) for link in range(count)]

    @cached_property
    def _duration_s(self) -> list[float]:
        duration_s = self.topology.alpha_s + self.topology.beta_s_per_byte * self.message_bytes
        found: list[float] = np.maximum(duration_s, _LEAST_S).tolist()
        return found

    @cached_property
    def _link(self) -> dict[tuple[int, int], int]:
        """The fastest link between two ranks, of equally fast ones the first."""
        order = np.lexsort((-np.arange(len(self.targets)), -np.array(self._duration_s)))
        ends = zip(self.topology.link_source[order].tolist(), self.topology.link_target[order].tolist(), strict=True)
        return dict(zip(ends, order.tolist(), strict=True))

    @cached_property
    def _distance_s(self) -> list[list[float]]:
        topology = self.topology
        ranks = np.arange(topology.device_count)
        found: list[list[float]] = distances_s(topology, np.array(self._duration_s), ranks).tolist()
        return found

    @cached_property
    def _into(self) -> list[list[tuple[int, float]]]:
        """For each rank those with a link to it, and its time."""
        found: list[list[tuple[int, float]]] = [[] for _ in range(self.topology.device_count)]
        for (source, target), link in self._link.items():
            found[target].append((source, self._duration_s[link]))
        return [sorted(entries) for entries in found]

    @cached_property
    def _paths(self) -> dict[tuple[int, int], list[int]]:
        return {}

    @cached_property
    def _detours(self) -> list[tuple[int, int]]:
        return []

    @cached_property
    def _uses(self) -> Counter[int]:
        return Counter()

    def _detour(self, source: int, target: int) -> list[int]:
        distance_s = self._distance_s[source]
        if distance_s[target] == np.inf:
            raise InputError(f"topology {self.topology.name!r}: rank {source} must reach rank {target}, it has no path")
        before: dict[int, list[int]] = {}  # of each rank on a shortest path, those before it on one
        front = [target]
        for rank in front:
            reached_s = distance_s[rank] * (1 + _SAME)
            before[rank] = [one for one, duration_s in self._into[rank] if distance_s[one] + duration_s <= reached_s]
            front += [one for one in dict.fromkeys(before[rank]) if one not in before and one not in front]
        least = {source: (0, 0, [source])}  # the most, and the sum, of the paths on a link of the best path; that path
        for rank in sorted(before, key=lambda rank: distance_s[rank]):
            if rank != source:
                least[rank] = min(self._followed(least[one], rank) for one in before[rank])
        return least[target][2]

    def _followed(self, best: tuple[int, int, list[int]], rank: int) -> tuple[int, int, list[int]]:
        most, total, path = best
        uses = self._uses[self._link[path[-1], rank]]
        return max(most, uses), total + uses, [*path, rank]


def lay(network: Network, sends: Iterable[Send], most: float = math.inf) -> list[Transfer] | None:
    """The sends along links, in order of their steps; None once these and the search for paths are more than `most`.

    Whoever sends a chunk first has it at the start.
    """
    targets, most = network.targets, most + network.work
    held: dict[int, set[int]] = {}
    transfers: list[Transfer] = []
    for piece, step, source, target, chunks in sorted(sends, key=lambda send: send.step):
        missing = []
        for chunk in chunks:
            holders = held.get(chunk)
            if holders is None:
                holders = held[chunk] = {source}
            assert source in holders, f"rank {source} sends chunk {chunk} before it has it"
            if target not in holders:
                missing.append(chunk)
        if not missing:
            continue
        if len(transfers) + network.work > most:
            return None
        links = network.path(source, target)
        if len(links) == 1:
            transfers.append(Transfer(links[0], tuple(missing), False, step, piece))
            for chunk in missing:
                held[chunk].add(target)
            continue
        for link in links:
            moved = tuple(chunk for chunk in missing if targets[link] not in held[chunk])
            if moved:
                transfers.append(Transfer(link, moved, False, step, piece))
            for chunk in moved:
                held[chunk].add(targets[link])
    return transfers


def work_of(transfers: Sequence[Transfer]) -> int:
    """How many transfers of nothing would be as much work to lay out."""
    return len(transfers) + sum(len(transfer.chunks) for transfer in transfers) // MOVES


def backwards(transfers: list[Transfer]) -> list[Transfer]:
    """What collects where the transfers, laid on the reverse network, spread."""
    last = max((transfer.step for transfer in transfers), default=0)
    return [Transfer(link, chunks, True, last - step, piece) for link, chunks, _, step, piece in reversed(transfers)]


def one_after_the_other(first: list[Transfer], second: list[Transfer]) -> list[Transfer]:
    """The second's steps after those of the first, piece by piece."""
    if not first:
        return second
    shift = 1 + max(transfer.step for transfer in first)
    later = (Transfer(link, chunks, reduces, step + shift, piece) for link, chunks, reduces, step, piece in second)
    return [*first, *later]


def paced(transfers: list[Transfer], pace: tuple[int, int]) -> list[Transfer]:
    """The transfers in the order of step * pace[0] + piece * pace[1].

    A pipeline sends a later piece in an earlier step before an earlier piece in a later one.
    """
    return sorted(transfers, key=lambda transfer: transfer.step * pace[0] + transfer.piece * pace[1])


def end_s_of(network: Network, transfers: Iterable[Transfer], chunk_bytes: int) -> float:
    """When the last transfer ends, each as early as those before it allow: the makespan of its schedule's replay.

    Where the topology has congestion the replay alone can say it.
    """
    topology, ranks = network.topology, network.topology.device_count
    source, target, clocks = topology.link_source.tolist(), network.targets, network.clocks
    alpha_s, beta_s = topology.alpha_s.tolist(), (topology.beta_s_per_byte * chunk_bytes).tolist()
    free_s = [0.0] * (len(target) + len(topology.resources))
    there_s: dict[int, float] = {}
    last_s = 0.0
    for link, chunks, _, _, _ in transfers:
        by, to, begin_s = source[link], target[link], 0.0
        for clock in clocks[link]:
            if free_s[clock] > begin_s:
                begin_s = free_s[clock]
        for chunk in chunks:
            for rank in (by, to):  # what is added to is there, too
                ready_s = there_s.get(chunk * ranks + rank, 0.0)
                if ready_s > begin_s:
                    begin_s = ready_s
        end_s = begin_s + alpha_s[link] + beta_s[link] * len(chunks)
        for clock in clocks[link]:
            free_s[clock] = end_s
        for chunk in chunks:
            there_s[chunk * ranks + to] = end_s
        if end_s > last_s:
            last_s = end_s
    return last_s
