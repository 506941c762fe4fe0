"""Phases: a collective that reduces as some that don't, on the links backwards and forwards (TACCL, section 5.7).

A sum is built at the root of its chunk along a tree. Backwards in time and on reversed links that is the chunk being
spread from its root to all that hold a part of it, so it is routed as such: REDUCESCATTER as ALLGATHER, REDUCE as
BROADCAST. The links are those that the sketch keeps, and so are the transfers once time runs forwards again. Where the
sum is wanted by others than its root (ALLREDUCE) it is spread from there in a second phase.

Every schedule of the sum gives, backwards, one of the same length that spreads the chunk: follow each part of the sum
from its rank to the root. So lower bounds of the backward phase hold for the sum.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.sketch.format import Sketch
from gapless.encodings.taccl.sketch.logical import LogicalTopology, check_reach
from gapless.ir.collective import Collective
from gapless.topologies.links import Links
from gapless.topologies.topology import Topology

__all__ = ["Spread", "is_spread_backwards", "spreads_of", "turned_round"]

_MOST_CHECKED = 4_000_000
"""Pairs of chunk and link up to which it is checked that chunks find a path; beyond, routing finds out."""


@dataclass(frozen=True)
class Spread:
    """A collective that doesn't reduce, and where it may go. `backwards`: links and time run against the whole's."""

    collective: Collective
    logical: LogicalTopology
    backwards: bool


def spreads_of(collective: Collective, logical: LogicalTopology, sketch: Sketch | None) -> tuple[Spread, ...]:
    """The phases of a collective that reduces, in the order in which a chunk goes through them.

    Raises `InputError` where a rank has no path to a chunk's root, or the root none to a rank that wants its sum.
    """
    phases = [_backward(collective, logical, sketch)]
    spreading = _plain(collective, f"{collective.name}, sums", collective.destinations)
    if any(spreading.destinations) or not any(phases[0].collective.destinations):
        forward = replace(logical, allowed=_without_returns(collective, logical, sketch, logical.topology.link_target))
        _check(forward, spreading, sketch, "")
        phases.append(Spread(spreading, forward, backwards=False))
    return tuple(phase for phase in phases if any(phase.collective.destinations)) or (phases[-1],)


def is_spread_backwards(collective: Collective) -> bool:
    """Whether a collective doesn't reduce, or its phases are parts of every plan: what holds for them holds for it.

    So it is where each sum is wanted by one rank, or one that wants it has a part of it, or it has one part only.
    REDUCESCATTER, REDUCE and ALLREDUCE are of that kind, among some ranks, too.
    """
    if not collective.reduces:
        return True
    ends = zip(collective.contributors, collective.destinations, strict=True)
    return all(len(parts) == 1 or len(wants) <= 1 or not {*parts}.isdisjoint(wants) for parts, wants in ends)


def turned_round(topology: Topology) -> Topology:
    """The same links under the same numbers, each the other path round."""
    held, start = topology.held, topology.held_start
    mirrored = np.arange(len(held)) - np.repeat(start[:-1], np.diff(start))
    last_first = np.repeat(start[1:], np.diff(start)) - 1 - mirrored
    columns = topology.link_target, topology.link_source, topology.alpha_s, topology.beta_s_per_byte
    return replace(topology, links=Links(*columns, start, held[last_first]))


def _backward(collective: Collective, logical: LogicalTopology, sketch: Sketch | None) -> Spread:
    """Every chunk from its root to all that hold a part of it; parts never leave the node that they are brought to."""
    wants = tuple(ranks if wanted else () for ranks, wanted in
                  zip(collective.contributors, collective.destinations, strict=True))  # fmt: skip
    backward = replace(
        logical,
        topology=turned_round(logical.topology),
        allowed=_without_returns(collective, logical, sketch, logical.topology.link_source),
        own_first=np.zeros_like(logical.own_first),  # a part of a sum is nobody's own chunk
        one_by_one=True,
    )
    gathered = _plain(collective, f"{collective.name}, parts", wants)
    _check(backward, gathered, sketch, " backwards")
    return Spread(gathered, backward, backwards=True)


def _without_returns(
    collective: Collective, logical: LogicalTopology, sketch: Sketch | None, end: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """What is allowed without links between nodes with this end in the node of the chunk's root: sketches forbid it."""
    if sketch is None or sketch.inter_node is None:
        return logical.allowed
    topology = logical.topology
    node = np.array(topology.node_of_device)
    root_node = node[list(collective.roots)]
    return np.asarray(logical.allowed & ~((root_node[:, None] == node[end][None, :]) & topology.is_inter_node))


def _plain(collective: Collective, name: str, wants: tuple[tuple[int, ...], ...]) -> Collective:
    """Chunk c from its root to ranks `wants[c]`."""
    inputs: list[list[int]] = [[] for _ in range(collective.rank_count)]
    outputs: list[list[int]] = [[] for _ in range(collective.rank_count)]
    for chunk, (root, ranks) in enumerate(zip(collective.roots, wants, strict=True)):
        inputs[root].append(chunk)
        for rank in ranks:
            outputs[rank].append(chunk)
    return Collective(
        name, collective.rank_count, collective.chunks_per_rank, tuple(map(tuple, inputs)), tuple(map(tuple, outputs))
    )


def _check(logical: LogicalTopology, collective: Collective, sketch: Sketch | None, direction: str) -> None:
    if collective.chunk_count * len(logical.topology.links) <= _MOST_CHECKED:
        where = "topology" if sketch is None else f"sketch {sketch.name}"
        check_reach(logical, collective, f"{where}{direction}")
