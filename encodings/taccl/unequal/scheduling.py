"""List-scheduled plans of an ALLTOALLV: a fluid, pieces along its paths, messages of many lengths, both ways in time.

Backwards in time a plan for links turned round is one, too: where the ports that take in most are the busiest, it is
the last messages that have to be right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.taccl.parameters import Shares
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.encodings.taccl.unequal.fluid import Fluid, Lanes, fluid
from gapless.encodings.taccl.unequal.ordering import Message, Rule, ordered
from gapless.encodings.taccl.unequal.problem import Unequal, UnequalInChunks
from gapless.encodings.taccl.unequal.routing import Piece, pieces_by_share, routed
from gapless.ir.schedule import EventKind, Ragged, Schedule
from gapless.ir.simulate import retime
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["Listed", "flow_of", "list_scheduled", "lowered", "perturbed"]

_MOST_WORK = 10_000_000
"""Pairs of source and link that all rounds of a fluid look at."""
_FEWEST_ROUNDS = 40
_NOISE = (0.1, 0.3, 0.6)
_LEAST_GAIN = 1e-6
_SEEDS = 1 << 20
"""More than the orders of one seed."""


@dataclass(frozen=True)
class Listed:
    """Messages of pieces; `rule`, `backwards`: how they were found, for `name` and for more of the kind."""

    pieces: tuple[Piece, ...]
    messages: tuple[Message, ...]
    parts: int
    rule: Rule
    backwards: bool

    @property
    def end_s(self) -> float:
        """When the last message ends."""
        return max(message.end_s for message in self.messages)

    def name(self, load_s: float) -> str:
        """The variant, in words."""
        lengths = f"messages of 1/{load_s / self.rule.longest_s:.0f}"
        words = [f"shares in {self.parts} parts of the busiest lane", lengths]
        words += ["backwards"] * self.backwards + ["perturbed"] * bool(self.rule.noise)
        return ", ".join(words)


def flow_of(problem: Unequal, parameters: Shares) -> Fluid:
    """The fluid in as many rounds as the size of the question leaves."""
    sent = problem.amounts.sent
    pairs = max(len(sent) * len(problem.topology.links), 1)
    rounds = min(max(_MOST_WORK // pairs, _FEWEST_ROUNDS), parameters.rounds)
    return fluid(problem.topology, sent.astype(np.float64), rounds)


def list_scheduled(problem: Unequal, flow: Fluid, parameters: Shares, deadline: Deadline, enough_s: float) -> Listed:
    """The best of the plans that are tried, until one takes no longer than `enough_s`."""
    sent, rows = problem.amounts.sent.astype(np.float64), 0
    best: Listed | None = None
    for parts in parameters.parts:
        if best is not None and deadline.over:
            return best
        largest_s = flow.load_s / parts
        pieces = routed(problem.topology, sent, flow.paths, largest_s, flow.load_s, parameters.routing_rounds)
        for count, backwards in product(parameters.messages, (False, True)):
            if best is not None and (deadline.over or rows >= parameters.rows or best.end_s <= enough_s):
                return best
            rows += _rows(pieces)
            limit_s = np.inf if best is None else best.end_s
            found = _listed(problem.topology, pieces, parts, Rule(flow.load_s / count), backwards, limit_s)
            best = found or best
    assert best is not None, "without a limit there is a plan"
    return best


def perturbed(
    problem: Unequal, best: Listed, parameters: Shares, seed: int, deadline: Deadline, enough_s: float
) -> Listed:
    """The best of plans of a plan's kind, what goes first being varied at random."""
    for number in range(parameters.perturbed_rows // _rows(best.pieces)):
        if deadline.over or best.end_s <= enough_s:
            return best
        rule = replace(best.rule, noise=_NOISE[number % len(_NOISE)], seed=seed * _SEEDS + number)
        found = _listed(problem.topology, best.pieces, best.parts, rule, best.backwards, best.end_s)
        best = found or best
    return best


def _rows(pieces: Sequence[Piece]) -> int:
    """How often a piece is sent."""
    return sum(len(piece.path) for piece in pieces)


def _listed(
    topology: Topology, pieces: Sequence[Piece], parts: int, rule: Rule, backwards: bool, limit_s: float
) -> Listed | None:
    """A plan that ends before the limit."""
    network, asked = topology, list(pieces)
    if backwards:
        network, asked = turned_round(topology), [replace(piece, path=piece.path[::-1]) for piece in pieces]
    messages = ordered(network, Lanes.of(network), asked, rule, limit_s * (1 - _LEAST_GAIN))
    end_s = max(message.end_s for message in messages)
    if end_s >= limit_s * (1 - _LEAST_GAIN):
        return None
    if backwards:
        messages = [
            replace(message, start_s=end_s - message.end_s, end_s=end_s - message.start_s) for message in messages[::-1]
        ]
    return Listed(tuple(pieces), tuple(messages), parts, rule, backwards)


def lowered(problem: Unequal, listed: Listed) -> tuple[UnequalInChunks, Schedule]:
    """The question in the plan's chunks, and the plan, each message as early as it can be."""
    amounts, ranks = problem.amounts, problem.amounts.rank_count
    shares = pieces_by_share(listed.pieces, ranks)
    for rank in range(ranks):
        own_bytes = amounts.rows[rank][rank]
        shares[rank * ranks + rank] = [own_bytes] if own_bytes else []
    collective = amounts.cut(shares)
    first = np.append(0, np.cumsum([len(share) for share in shares]))
    chunk = [int(first[piece.source * ranks + piece.target]) + piece.place for piece in listed.pieces]
    messages = sorted(listed.messages, key=lambda message: (message.start_s, message.end_s))
    count, nothing = len(messages), np.full(len(messages), -1)
    links: Ints = np.array([message.link for message in messages], dtype=np.int64)
    schedule = Schedule(
        graph=collective.graph(0),
        topology=problem.topology,
        kind=np.full(count, int(EventKind.TRANSFER)),
        start_s=np.array([message.start_s for message in messages]),
        end_s=np.array([message.end_s for message in messages]),
        place=links,
        op=nothing,
        implementation=nothing.copy(),
        reduces=np.zeros(count, dtype=np.bool_),
        moves=Ragged.of([[chunk[piece] for piece in message.pieces] for message in messages]),
        freed_tensor=Ragged.empty(count),
        freed_device=Ragged.empty(count),
        name=f"{collective.name} on {problem.topology.name}",
    )
    return UnequalInChunks(problem, collective), retime(schedule)
