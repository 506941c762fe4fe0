"""A collective that reduces as phases that don't, for synthesis without a MILP.

Backwards in time and on links that are turned round, a sum that is built at one rank is a chunk that is spread from
there: REDUCESCATTER is ALLGATHER backwards, REDUCE is BROADCAST. ALLREDUCE is both, one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from planwright.collective import Buffers, Collective
from planwright.encodings.taccl.problem import Problem
from planwright.errors import InputError
from planwright.topologies.links import Links
from planwright.topologies.topology import Topology

__all__ = ["Phase", "is_spread_backwards", "phases_of", "turned_round"]


@dataclass(frozen=True)
class Phase:
    """A problem that doesn't reduce; `backwards`: its links and its time run against those of the whole."""

    problem: Problem
    backwards: bool


def is_spread_backwards(collective: Collective) -> bool:
    """Whether a collective doesn't reduce, or is REDUCESCATTER, REDUCE or ALLREDUCE in kind.

    In kind: its sums are wanted by one rank each, or by all, and every rank holds a part of every chunk.
    """
    ranks = collective.rank_count
    wanted = {len(its) for its in collective.destinations}
    everywhere = all(len(its) == ranks for its in collective.contributors)
    return not collective.reduces or (everywhere and wanted in ({1}, {ranks}))


def phases_of(problem: Problem) -> list[Phase]:
    """The phases in the order of time. Raises `InputError` for a collective that isn't spread backwards."""
    collective = problem.collective
    if not collective.reduces:
        return [Phase(problem, backwards=False)]
    if not is_spread_backwards(collective):
        raise InputError(f"{collective.name}: the greedy takes sums of all ranks, wanted by one rank or by all of them")
    homes = _homes(collective)
    everywhere = collective.inputs
    spread = replace(collective, name=f"{collective.name}, sums", inputs=homes, outputs=everywhere, reduces=False)
    backwards = replace(problem, topology=turned_round(problem.topology), collective=spread)
    phases = [Phase(backwards, backwards=True)]
    if all(len(its) == collective.rank_count for its in collective.destinations):
        phases.append(Phase(replace(problem, collective=spread), backwards=False))
    return phases


def turned_round(topology: Topology) -> Topology:
    """The same links under the same numbers, each the other way round."""
    held, start = topology.held, topology.held_start
    mirrored = np.arange(len(held)) - np.repeat(start[:-1], np.diff(start))
    last_first = np.repeat(start[1:], np.diff(start)) - 1 - mirrored
    columns = topology.link_target, topology.link_source, topology.alpha_s, topology.beta_s_per_byte
    return replace(topology, links=Links(*columns, start, held[last_first]))


def _homes(collective: Collective) -> Buffers:
    """The chunks whose sums are built on each rank: those it wants, or an equal run of those that all want."""
    ranks, chunks = collective.rank_count, collective.chunk_count
    homes: list[list[int]] = [[] for _ in range(ranks)]
    for chunk, wanted in enumerate(collective.destinations):
        homes[wanted[0] if len(wanted) == 1 else chunk * ranks // chunks].append(chunk)
    return tuple(map(tuple, homes))
