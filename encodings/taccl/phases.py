"""Phases: a collective that reduces as problems that don't, on the links backwards and forwards (TACCL, section 5.7).

A sum is built at the home of its chunk along a tree. Backwards in time and on reversed links that is the chunk being
spread from its home to all that hold a part of it, so it is routed as such: REDUCESCATTER as ALLGATHER, REDUCE as
BROADCAST. The links are those that the sketch keeps, and so are the transfers once time runs forwards again. Where the
sum is wanted by others than its home (ALLREDUCE) it is spread from there in a second phase.

Every schedule of the sum gives, backwards, one of the same length that spreads the chunk: follow each part of the sum
from its rank to the home. So lower bounds of the backward phase hold for the sum.

The greedy keeps to no sketch and has too many chunks and links for a table of which may use which: `bare_phases_of`
are its phases, for the kinds of sums that it takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gapless.collective import Collective
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.homes import homes
from gapless.encodings.taccl.sketch.logical import check_reach
from gapless.errors import InputError
from gapless.topologies.links import Links
from gapless.topologies.topology import Topology

__all__ = ["Phase", "bare_phases_of", "is_spread_backwards", "phases_of", "turned_round"]


@dataclass(frozen=True)
class Phase:
    """A problem that doesn't reduce. `backwards`: its links and its time run against those of the whole."""

    problem: Chunked
    backwards: bool


def phases_of(problem: Chunked) -> tuple[Phase, ...]:
    """The phases in the order in which a chunk goes through them.

    Raises `InputError` where a rank has no way to a chunk's home, or the home none to a rank that wants its sum.
    """
    if not problem.collective.reduces:
        return (Phase(problem, backwards=False),)
    spreading = _spreading(problem.collective)
    phases = [_backward_phase(problem)]
    if any(spreading.destinations) or not any(phases[0].problem.collective.destinations):
        phases.append(_forward_phase(problem, spreading))
    return tuple(phase for phase in phases if any(phase.problem.collective.destinations)) or (phases[-1],)


def is_spread_backwards(collective: Collective) -> bool:
    """Whether a collective doesn't reduce, or is REDUCESCATTER, REDUCE or ALLREDUCE in kind.

    In kind: its sums are wanted by one rank each, or by all, and every rank holds a part of every chunk.
    """
    ranks = collective.rank_count
    wanted = {len(its) for its in collective.destinations}
    everywhere = all(len(its) == ranks for its in collective.contributors)
    return not collective.reduces or (everywhere and wanted in ({1}, {ranks}))


def bare_phases_of(problem: Chunked) -> tuple[Phase, ...]:
    """The phases where every chunk may use every link; `InputError` for a collective that isn't spread backwards."""
    collective = problem.collective
    if not collective.reduces:
        return (Phase(problem, backwards=False),)
    if not is_spread_backwards(collective):
        raise InputError(f"{collective.name}: the greedy takes sums of all ranks, wanted by one rank or by all of them")
    spread = _plain(collective, f"{collective.name}, sums", homes(collective), collective.contributors)
    summing = replace(problem, topology=turned_round(problem.topology), collective=spread)
    phases = (Phase(summing, backwards=True), Phase(replace(problem, collective=spread), backwards=False))
    return phases if all(len(its) == collective.rank_count for its in collective.destinations) else phases[:1]


def turned_round(topology: Topology) -> Topology:
    """The same links under the same numbers, each the other way round."""
    held, start = topology.held, topology.held_start
    mirrored = np.arange(len(held)) - np.repeat(start[:-1], np.diff(start))
    last_first = np.repeat(start[1:], np.diff(start)) - 1 - mirrored
    columns = topology.link_target, topology.link_source, topology.alpha_s, topology.beta_s_per_byte
    return replace(topology, links=Links(*columns, start, held[last_first]))


def _backward_phase(problem: Chunked) -> Phase:
    """Every chunk from its home to all that hold a part of it; parts never leave the node that they are brought to."""
    collective, logical = problem.collective, problem.logical
    wants = tuple(ranks if wanted else () for ranks, wanted in
                  zip(collective.contributors, collective.destinations, strict=True))  # fmt: skip
    backward = replace(
        logical,
        topology=turned_round(logical.topology),
        allowed=logical.allowed & ~_touches_home(problem, logical.topology.link_source),
        own_first=np.zeros_like(logical.own_first),  # a part of a sum is nobody's own chunk
        one_by_one=True,
    )
    gathered = _plain(collective, f"{collective.name}, parts", homes(collective), wants)
    where = _where(problem)
    check_reach(backward, gathered, f"{where} backwards")
    return Phase(replace(problem, collective=gathered, given=backward), backwards=True)


def _forward_phase(problem: Chunked, spreading: Collective) -> Phase:
    """Every sum from its home to the others that want it; it is never sent back to its home's node."""
    logical = problem.logical
    forward = replace(logical, allowed=logical.allowed & ~_touches_home(problem, logical.topology.link_target))
    check_reach(forward, spreading, _where(problem))
    return Phase(replace(problem, collective=spreading, given=forward), backwards=False)


def _touches_home(problem: Chunked, end: NDArray[np.int64]) -> NDArray[np.bool_]:
    """`touches[c, l]`: link l between nodes has this end in the node of chunk c's home; a sketch rules that out."""
    topology = problem.logical.topology
    if problem.sketch is None or problem.sketch.inter_node is None:
        return np.zeros((problem.collective.chunk_count, len(topology.links)), dtype=np.bool_)
    node = np.array(topology.node_of_device)
    home_node = node[list(homes(problem.collective))]
    return np.asarray((home_node[:, None] == node[end][None, :]) & topology.is_inter_node)


def _spreading(collective: Collective) -> Collective:
    return _plain(collective, f"{collective.name}, sums", homes(collective), collective.destinations)


def _plain(
    collective: Collective, name: str, owners: tuple[int, ...], wants: tuple[tuple[int, ...], ...]
) -> Collective:
    """Chunk c from rank `owners[c]` to ranks `wants[c]`."""
    inputs: list[list[int]] = [[] for _ in range(collective.rank_count)]
    outputs: list[list[int]] = [[] for _ in range(collective.rank_count)]
    for chunk, (owner, ranks) in enumerate(zip(owners, wants, strict=True)):
        inputs[owner].append(chunk)
        for rank in ranks:
            outputs[rank].append(chunk)
    return Collective(
        name, collective.rank_count, collective.chunks_per_rank, tuple(map(tuple, inputs)), tuple(map(tuple, outputs))
    )


def _where(problem: Chunked) -> str:
    return "topology" if problem.sketch is None else f"sketch {problem.sketch.name}"
