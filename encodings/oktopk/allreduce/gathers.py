"""Gathering (phase 2): in which order pieces of real sizes go from their holders to all ranks, one file's portfolio.

A piece that was moved is not sent to its maker, which still has it: `lower` leaves that out of what stands here.

`direct`: every holder sends to every rank, rotated so that no two send to one rank at once. `ring`: along the
topology's fastest ring. `doubling`: recursive doubling, for 2^d ranks. `flood`: a list schedule on any topology, whose
links each take, as soon as they are free, the piece that the fewest ranks have.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.encodings.oktopk.allreduce.network import Network
from gapless.errors import InputError
from gapless.topologies.ring import fastest_ring

__all__ = ["GATHERS", "Message", "Piece"]


@dataclass(frozen=True)
class Piece:
    """A tensor, who holds it, how large it is, who made it and has it too, and about when the holder has it."""

    tensor: int
    holder: int
    size_bytes: int
    maker: int = -1
    ready_s: float = 0.0


@dataclass(frozen=True)
class Message:
    """Tensors that go together from one rank to another: along a link, or along the fastest route (-1)."""

    source: int
    target: int
    tensors: tuple[int, ...]
    link: int = -1


def _held(network: Network, pieces: Sequence[Piece]) -> list[tuple[int, ...]]:
    """The tensors of each rank."""
    held: list[list[int]] = [[] for _ in range(network.topology.device_count)]
    for piece in pieces:
        held[piece.holder].append(piece.tensor)
    return [tuple(tensors) for tensors in held]


def direct(network: Network, pieces: Sequence[Piece]) -> list[Message] | None:
    """Every holder to every rank; None where a route isn't a single link."""
    held, count = _held(network, pieces), network.topology.device_count
    if not all(network.is_direct(*pair) for pair in network.paths):
        return None
    return [
        Message(rank, (rank + shift) % count, held[rank])
        for shift in range(1, count) for rank in range(count) if held[rank]
    ]  # fmt: skip


def ring(network: Network, pieces: Sequence[Piece]) -> list[Message] | None:
    """Around the fastest ring: in step s a rank sends on what came from s ranks before; None where there is no ring."""
    try:
        links = fastest_ring(network.topology)
    except InputError:
        return None
    held, count = _held(network, pieces), network.topology.device_count
    source, target = network.topology.link_source[links].tolist(), network.topology.link_target[links].tolist()
    return [
        Message(source[place], target[place], held[source[place - shift]], links[place])
        for shift in range(count - 1) for place in range(count) if held[source[place - shift]]
    ]  # fmt: skip


def doubling(network: Network, pieces: Sequence[Piece]) -> list[Message] | None:
    """Recursive doubling (Thakur et al., 2005); None where ranks aren't a power of two or routes have several links."""
    held, count = _held(network, pieces), network.topology.device_count
    if count & (count - 1):
        return None
    found, distance = [], 1
    while distance < count:
        for rank in range(count):
            if not network.is_direct(rank, rank ^ distance):
                return None
            if held[rank]:
                found.append(Message(rank, rank ^ distance, held[rank]))
        held = [held[rank] + held[rank ^ distance] for rank in range(count)]
        distance *= 2
    return found


def flood(network: Network, pieces: Sequence[Piece]) -> list[Message]:
    """The list schedule: links as they come free, each with the piece that the fewest ranks have or await."""
    return _Flood(network, pieces).run()


class _Flood:
    """The state of the list schedule: pieces by number, what each rank has (bits) and has or awaits."""

    def __init__(self, network: Network, pieces: Sequence[Piece]) -> None:
        topology = network.topology
        self.pieces, self.topology, self.count = pieces, topology, topology.device_count
        self.source, self.target = topology.link_source.tolist(), topology.link_target.tolist()
        self.alpha_s, self.beta_s = topology.alpha_s.tolist(), topology.beta_s_per_byte.tolist()
        starts, held = topology.held_start.tolist(), topology.held.tolist()
        self.resources = [held[starts[link] : starts[link + 1]] for link in range(len(self.source))]
        self.taken = [False] * len(topology.resources)
        self.busy = [False] * len(self.source)
        self.sharing: list[list[int]] = [[] for _ in topology.resources]
        self.leaving: list[list[int]] = [[] for _ in range(self.count)]
        for link, resources in enumerate(self.resources):
            self.leaving[self.source[link]].append(link)
            for resource in resources:
                self.sharing[resource].append(link)
        self.has, self.awaits = [0] * self.count, [0] * self.count
        self.copies = [1] * len(pieces)
        for number, piece in enumerate(pieces):
            self.awaits[piece.holder] |= 1 << number
            if piece.maker >= 0:
                self.awaits[piece.maker] |= 1 << number
                self.has[piece.maker] |= 1 << number

    def run(self) -> list[Message]:
        """Event by event: a piece arrives (link -1: is there), its link is free again, links are offered work."""
        arrivals = [(piece.ready_s, -1, number) for number, piece in enumerate(self.pieces)]
        heapq.heapify(arrivals)
        found: list[Message] = []
        while arrivals:
            now_s, link, number = heapq.heappop(arrivals)
            rank = self.pieces[number].holder if link < 0 else self.target[link]
            self.has[rank] |= 1 << number
            able = list(self.leaving[rank])
            if link >= 0:
                self.busy[link] = False
                for resource in self.resources[link]:
                    self.taken[resource] = False
                    able += self.sharing[resource]
                able.append(link)
            for other in able:
                piece = self._choose(other)
                if piece is not None:
                    took_s = self.alpha_s[other] + self.beta_s[other] * self.pieces[piece].size_bytes
                    heapq.heappush(arrivals, (now_s + took_s, other, piece))
                    tensor = (self.pieces[piece].tensor,)
                    found.append(Message(self.source[other], self.target[other], tensor, other))
        return found

    def _choose(self, link: int) -> int | None:
        """The piece that a link takes now, which then travels; None if it can't, or has none to bring."""
        wanted = self.has[self.source[link]] & ~self.awaits[self.target[link]]
        if not wanted or self.busy[link] or any(self.taken[resource] for resource in self.resources[link]):
            return None
        best, least = -1, self.count + 1
        while wanted:
            number = (wanted & -wanted).bit_length() - 1
            if self.copies[number] < least:
                best, least = number, self.copies[number]
            wanted &= wanted - 1
        self.busy[link] = True
        for resource in self.resources[link]:
            self.taken[resource] = True
        self.awaits[self.target[link]] |= 1 << best
        self.copies[best] += 1
        return best


GATHERS: dict[str, Callable[[Network, Sequence[Piece]], list[Message] | None]] = {
    "direct": direct,
    "ring": ring,
    "doubling": doubling,
    "flood": flood,
}
"""By name; None where the topology doesn't have what it takes."""
