"""Planning in whole messages: draws of how blocks spread, the best of them by what the collective makes of it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from gapless.encodings.taccl.aggregate.spreading import Draw, Taste, spread
from gapless.encodings.taccl.aggregate.trees import timed, transfers_along
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.sends import Transfer
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.encodings.taccl.symmetry.quotient_network import Message, QuotientNetwork, quotient_network
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["rooted_transfers", "transfers_of"]

Mask = NDArray[np.bool_]

_DRAWS = 600
"""Draws for a phase; most find their best within a hundred."""
_AGAIN = 0.6
"""The share of draws that begin as the best one did."""
_OTHERS, _SAME = 50, 0.5
"""After the first draws, so many prefer what the best one did."""
_LEAST = (1, 1, 1, 2, 2, 3, 4, 8, 16)
_NOISE = (0.0, 0.3, 1.0)
_SKIPS = (0.0, 0.0, 0.1, 0.3)
_ONCE = 0.5
_MOST = (None, None, None, 1, 2, 4)
_DEPTHS = (None, None, 1, 2, 3)
"""How often a part for one rank is handed on: more saves messages, less saves bytes."""


@dataclass(frozen=True)
class _Task:
    """Chunks to be brought from owners to ranks. `mirrored`: transfers run backwards on links turned round."""

    ground: QuotientNetwork
    owners: Sequence[int]
    wants: Sequence[Sequence[int]]
    chunk_bytes: int
    whole: bool
    mirrored: bool


def transfers_of(
    problem: Chunked, deadline: Deadline, seed: int, enough_s: Sequence[float] = ()
) -> list[Transfer] | None:
    """The transfers of the best plan found, in order; None where ranks can't be reached.

    Phase k is not improved once it takes no longer than `enough_s[k]`.
    """
    phases = problem.phases
    tasks = [_task(phase.problem, phase.backwards) for phase in phases]
    return _in_turn(tasks, [phase.backwards for phase in phases], deadline, seed, enough_s)


def rooted_transfers(problem: Chunked, deadline: Deadline, seed: int) -> list[Transfer] | None:
    """ALLREDUCE by way of one rank, where all is added up and from where it is spread: the one that is nearest to all.

    None for what isn't an ALLREDUCE of all ranks, and under a sketch, which says where each chunk is at home.
    """
    collective, topology = problem.collective, problem.logical.topology
    everybody = tuple(range(collective.rank_count))
    wanted = all(ranks == everybody for ranks in (*collective.contributors, *collective.destinations))
    if not collective.reduces or not wanted or not problem.logical.allowed.all():
        return None
    root = _nearest(topology, problem.chunk_bytes * collective.chunk_count)
    owners, wants = [root] * collective.chunk_count, [tuple(r for r in everybody if r != root)] * collective.chunk_count
    tasks: list[_Task | None] = [
        _laid(its, None, owners, wants, problem.chunk_bytes, backwards)
        for its, backwards in ((turned_round(topology), True), (topology, False))
    ]
    return _in_turn(tasks, [True, False], deadline, seed, ())


def _nearest(topology: Topology, message_bytes: int) -> int:
    """The rank from which the farthest is nearest, there and back."""
    network = topology.to_networkx(message_bytes)
    worst_s = [
        sum(max(nx.single_source_dijkstra_path_length(its, rank, weight="duration_s").values())
            for its in (network, network.reverse(copy=False)))
        for rank in range(topology.device_count)
    ]  # fmt: skip
    return min(range(len(worst_s)), key=lambda rank: (worst_s[rank], rank))


def _in_turn(
    tasks: Sequence[_Task | None], backwards: Sequence[bool], deadline: Deadline, seed: int, enough_s: Sequence[float]
) -> list[Transfer] | None:
    """The best transfers of each task, one task after the other."""
    transfers: list[Transfer] = []
    for number, task in enumerate(tasks):
        stage = Deadline(deadline.stage(deadline.remaining_s / (len(tasks) - number)))
        found = None if task is None else _best_transfers(task, stage, seed, enough_s[number] if enough_s else 0.0)
        if found is None:
            return None
        transfers += [replace(transfer, reduces=backwards[number]) for transfer in found]
    return transfers


def _task(problem: Chunked, backwards: bool) -> _Task | None:
    """What is to be spread: from each rank that owns something, or backwards from the one that wants it all."""
    topology = problem.logical.topology
    owners: list[int] = problem.owners.tolist()
    wants = problem.collective.destinations
    receivers = {rank for ranks in wants for rank in ranks}
    senders = {owner for owner, ranks in zip(owners, wants, strict=True) if ranks}
    mirrored = len(receivers) == 1 and len(senders) > 1
    if mirrored:
        if backwards:
            return None
        topology = turned_round(topology)
        wants = tuple((owner,) if ranks else () for owner, ranks in zip(owners, wants, strict=True))
        owners = [receivers.pop()] * len(owners)
    allowed = problem.logical.allowed
    return _laid(topology, None if allowed.all() else allowed, owners, wants, problem.chunk_bytes, backwards, mirrored)


def _laid(
    topology: Topology,
    allowed: Mask | None,
    owners: Sequence[int],
    wants: Sequence[Sequence[int]],
    chunk_bytes: int,
    backwards: bool,
    mirrored: bool = False,
) -> _Task:
    """The ground with a block for each rank that owns something, of the mean size."""
    roots = sorted({owner for owner, ranks in zip(owners, wants, strict=True) if ranks})
    blocks = None if allowed is None else _allowed_blocks(allowed, owners, topology.device_count)
    whole = all(len(ranks) in (0, topology.device_count - 1) for ranks in wants)
    per_block = max(1, round(len(owners) / max(len(roots), 1)))
    ground = quotient_network(topology, tuple(roots), per_block * chunk_bytes, blocks, backwards)
    return _Task(ground, owners, wants, chunk_bytes, whole, mirrored)


def _allowed_blocks(allowed: Mask, owners: Sequence[int], count: int) -> Mask:
    """`allowed[b, l]`: whether all chunks of rank b may take link l."""
    blocks = np.ones((count, allowed.shape[1]), dtype=np.bool_)
    for chunk, owner in enumerate(owners):
        blocks[owner] &= allowed[chunk]
    return blocks


def _best_transfers(task: _Task, deadline: Deadline, seed: int, enough_s: float) -> list[Transfer] | None:
    """The transfers of the best draw, in an order in which they can be sent."""
    rng = random.Random(seed)
    best: tuple[float, Draw, list[Transfer]] | None = None
    best_taste = Taste()
    kinds = len(set(task.ground.alpha_s))
    for number in range(_DRAWS):
        if best is not None and (deadline.over or best[0] <= enough_s):
            break
        taste = best_taste if number > _OTHERS and rng.random() < _SAME else _taste(rng, number, kinds, task)
        prefix = None
        if best is not None and rng.random() < _AGAIN:
            prefix = best[1].choices[: rng.randrange(len(best[1].choices))]
        limit_s = best[0] if best is not None and task.whole else math.inf
        draw = spread(task.ground, taste, rng, prefix, limit_s)
        if not draw.complete:
            continue
        if task.whole and best is not None and draw.end_s >= best[0] * (1 - 1e-9):
            continue
        end_s, transfers = _evaluated(task, draw)
        if best is None or end_s < best[0] * (1 - 1e-9):
            best, best_taste = (end_s, draw, transfers), taste
    return None if best is None else best[2]


def _taste(rng: random.Random, number: int, kinds: int, task: _Task) -> Taste:
    """The first draws prefer nothing, or what costs least between nodes; the others by lot."""
    nodes = task.ground.has_nodes
    if number < 2:
        return Taste(once=bool(number) and nodes)
    least = tuple(rng.choice(_LEAST) for _ in range(kinds))
    return Taste(
        least=least,
        noise=rng.choice(_NOISE),
        depth=None if task.whole else rng.choice(_DEPTHS),
        skips=rng.choice(_SKIPS),
        once=nodes and rng.random() < _ONCE,
        most=rng.choice(_MOST) if nodes else None,
    )


def _evaluated(task: _Task, draw: Draw) -> tuple[float, list[Transfer]]:
    """When the draw's transfers are over, and the transfers in the order in which they start in forward time."""
    ground = task.ground
    messages: list[Message] = ground.unfolded(draw.messages)
    transfers = transfers_along(ground.topology, messages, task.owners, task.wants)
    times = timed(ground.topology, transfers, task.chunk_bytes, ground.one_at_a_time)
    end_s = max((end for _, end in times), default=0.0)
    backwards = ground.one_at_a_time or task.mirrored
    order = sorted(range(len(transfers)), key=lambda k: -times[k][1] if backwards else times[k][0])
    return end_s, [transfers[k] for k in order]
