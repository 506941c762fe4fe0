"""Ordering of an ALLTOALLV: event by event, links whose lanes are free send messages of waiting pieces.

Of links that wait for the same lane, that goes first whose lanes have most left to carry: so the busiest lane is never
idle while something waits for it. Links that hold the same lanes are looked at together; of them that goes first for
which most waits. A message takes the pieces that have farthest to go first, up to a time.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass

from gapless.encodings.taccl.unequal.fluid import Lanes
from gapless.encodings.taccl.unequal.routing import Piece
from gapless.topologies.topology import Topology

__all__ = ["Message", "Rule", "ordered"]

_REST = 0.3
"""A message takes all that waits where no more than this part of the longest message would be left."""


@dataclass(frozen=True)
class Rule:
    """`longest_s`: of a message's bytes. `noise`: by which share what is left to carry is varied at random."""

    longest_s: float
    noise: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Message:
    """Pieces over a link together, by their numbers."""

    link: int
    pieces: tuple[int, ...]
    start_s: float
    end_s: float


def ordered(topology: Topology, lanes: Lanes, pieces: Sequence[Piece], rule: Rule, limit_s: float) -> list[Message]:
    """The messages in order of their starts; cut short once one ends after `limit_s`."""
    run = _Run(topology, lanes, pieces, rule)
    return run.work(limit_s)


class _Run:
    """One construction. `waiting[l]`: pieces at the start of link l, by how far they have to go; `queued_s[l]`: what
    their bytes take there. `left_s[g]`: what lane g has to carry yet. `after[k][i]`: what piece k has to go behind link
    i of its path, alone. `links_of[p]`: links with something waiting that hold the lanes `lanes_of[p]`.
    """

    def __init__(self, topology: Topology, lanes: Lanes, pieces: Sequence[Piece], rule: Rule) -> None:
        self.lanes, self.pieces, self.rule = lanes, pieces, rule
        self.alpha_s, self.beta_s = topology.alpha_s.tolist(), topology.beta_s_per_byte.tolist()
        links = len(self.alpha_s)
        self.waiting: list[list[tuple[float, int]]] = [[] for _ in range(links)]
        self.queued_s = [0.0] * links
        self.left_s, self.free_s = [0.0] * lanes.count, [0.0] * lanes.count
        self.step, self.after = [0] * len(pieces), list[list[float]]()
        used = sorted({link for piece in pieces for link in piece.path})
        number: dict[tuple[int, ...], int] = {}
        self.port_of = {link: number.setdefault(lanes.of_link[link], len(number)) for link in used}
        self.lanes_of, self.links_of = list(number), [set[int]() for _ in number]
        self.ports_of: list[list[int]] = [[] for _ in range(lanes.count)]
        chance = random.Random(rule.seed)
        self.factor = [1 + rule.noise * chance.random() for _ in number]
        for port, held in enumerate(self.lanes_of):
            for lane in held:
                self.ports_of[lane].append(port)
        for link in used:
            for lane in lanes.of_link[link]:
                self.left_s[lane] += self.alpha_s[link]
        for piece in pieces:
            rest_s, behind = 0.0, []
            for link in reversed(piece.path):
                size_s = piece.size_bytes * self.beta_s[link]
                behind.append(rest_s)
                rest_s += self.alpha_s[link] + size_s
                for lane in lanes.of_link[link]:
                    self.left_s[lane] += size_s
            self.after.append(behind[::-1])
        self.messages: list[Message] = []

    def work(self, limit_s: float) -> list[Message]:
        """Event by event, until nothing is left to send, or one ends too late."""
        touched = {self._queue(number) for number in range(len(self.pieces))}
        events: list[tuple[float, int]] = []
        self.now_s = now_s = 0.0
        while True:
            for port in sorted(filter(self._may_send, touched), key=self._urgency):
                while self._may_send(port):
                    self._send(max(self.links_of[port], key=lambda link: (self.queued_s[link], -link)), now_s, events)
                    if self.messages[-1].end_s > limit_s:
                        return self.messages
            if not events:
                return self.messages
            self.now_s = now_s = events[0][0]
            touched = set()
            while events and events[0][0] <= now_s:
                message = self.messages[heapq.heappop(events)[1]]
                for number in message.pieces:
                    self.step[number] += 1
                    if self.step[number] < len(self.pieces[number].path):
                        touched.add(self._queue(number))
                for lane in self.lanes.of_link[message.link]:
                    touched.update(self.ports_of[lane])

    def _queue(self, number: int) -> int:
        """A piece is where its next link starts; returns the port of that."""
        piece, step = self.pieces[number], self.step[number]
        link = piece.path[step]
        heapq.heappush(self.waiting[link], (-self.after[number][step], number))
        self.queued_s[link] += piece.size_bytes * self.beta_s[link]
        port = self.port_of[link]
        self.links_of[port].add(link)
        return port

    def _may_send(self, port: int) -> bool:
        """Whether something waits, and all lanes are free."""
        if not self.links_of[port]:
            return False
        return all(self.free_s[lane] <= self.now_s for lane in self.lanes_of[port])

    def _urgency(self, port: int) -> tuple[float, float, int]:
        """What goes first sorts first."""
        left = [self.left_s[lane] for lane in self.lanes_of[port]]
        return -max(left) * self.factor[port], -sum(left), port

    def _send(self, link: int, now_s: float, events: list[tuple[float, int]]) -> None:
        """A message of what waits for a link."""
        longest_s, queue, beta_s = self.rule.longest_s, self.waiting[link], self.beta_s[link]
        is_all = self.queued_s[link] <= longest_s * (1 + _REST)
        taken, size_s = list[int](), 0.0
        while queue and (is_all or not taken or size_s < longest_s):
            number = heapq.heappop(queue)[1]
            taken.append(number)
            size_s += self.pieces[number].size_bytes * beta_s
        self.queued_s[link] = self.queued_s[link] - size_s if queue else 0.0
        if not queue:
            self.links_of[self.port_of[link]].discard(link)
        end_s = now_s + self.alpha_s[link] + size_s
        for lane in self.lanes.of_link[link]:
            self.free_s[lane] = end_s
            self.left_s[lane] -= size_s
        self.messages.append(Message(link, tuple(taken), now_s, end_s))
        heapq.heappush(events, (end_s, len(self.messages) - 1))
