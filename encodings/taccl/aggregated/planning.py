"""Planning in whole messages: draws of how blocks spread, the best of them by what the collective makes of it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from planwright.encodings.taccl.aggregated.ground import Ground, Message, lay_ground
from planwright.encodings.taccl.aggregated.spreading import Draw, Taste, spread
from planwright.encodings.taccl.aggregated.trees import Load, loads_of, timed
from planwright.encodings.taccl.baselines.transfers import Transfer
from planwright.encodings.taccl.phases import reversed_links
from planwright.encodings.taccl.problem import Problem
from planwright.options import Deadline

__all__ = ["transfers_of"]

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
    """Chunks to be brought from owners to ranks on a ground. `mirrored`: loads run backwards on links turned round."""

    ground: Ground
    owners: Sequence[int]
    wants: Sequence[Sequence[int]]
    chunk_bytes: int
    whole: bool
    mirrored: bool


def transfers_of(problem: Problem, deadline: Deadline, seed: int, enough_s: float = 0.0) -> list[Transfer] | None:
    """The transfers of the best plan found, in order; None where ranks can't be reached.

    A plan of one phase that takes no longer than `enough_s` is not improved.
    """
    transfers: list[Transfer] = []
    phases = problem.phases
    for number, phase in enumerate(phases):
        stage = Deadline(deadline.stage(deadline.remaining_s / (len(phases) - number)))
        task = _task(phase.problem, phase.backwards)
        loads = None if task is None else _best_loads(task, stage, seed, enough_s if len(phases) == 1 else 0.0)
        if loads is None:
            return None
        backwards = phase.backwards
        step = len(transfers)
        transfers += [Transfer(0, step + k, load.link, load.chunks, backwards) for k, load in enumerate(loads)]
    return transfers


def _task(problem: Problem, backwards: bool) -> _Task | None:
    """What is to be spread: from each rank that owns something, or backwards from the one that wants it all."""
    collective, topology = problem.collective, problem.logical.topology
    owners, wants = problem.owners.tolist(), collective.destinations
    allowed = problem.logical.allowed
    receivers = {rank for ranks in wants for rank in ranks}
    roots = sorted({owner for owner, ranks in zip(owners, wants, strict=True) if ranks})
    mirrored = len(receivers) == 1 and len(roots) > 1
    if mirrored:
        if backwards:
            return None
        topology = reversed_links(topology)
        root = receivers.pop()
        wants = tuple((owner,) if ranks else () for owner, ranks in zip(owners, wants, strict=True))
        owners = [root] * len(owners)
        roots = [root]
    everywhere = _allowed_blocks(allowed, owners, topology.device_count)
    whole = all(len(ranks) in (0, topology.device_count - 1) for ranks in wants)
    per_block = max(1, round(len(owners) / max(len(roots), 1)))
    ground = lay_ground(topology, tuple(roots), per_block * problem.chunk_bytes, everywhere, backwards)
    return _Task(ground, owners, wants, problem.chunk_bytes, whole, mirrored)


def _allowed_blocks(allowed: np.ndarray, owners: Sequence[int], count: int) -> np.ndarray | None:
    """`allowed[b, l]`: whether all chunks of rank b may take link l; None where all may go everywhere."""
    if allowed.all():
        return None
    blocks = np.ones((count, allowed.shape[1]), dtype=np.bool_)
    for chunk, owner in enumerate(owners):
        blocks[owner] &= allowed[chunk]
    return blocks


def _best_loads(task: _Task, deadline: Deadline, seed: int, enough_s: float) -> list[Load] | None:
    """The loads of the best draw, in an order in which they can be sent."""
    rng = random.Random(seed)
    best: tuple[float, Draw, list[Load]] | None = None
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
        end_s, loads = _evaluated(task, draw)
        if best is None or end_s < best[0] * (1 - 1e-9):
            best, best_taste = (end_s, draw, loads), taste
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


def _evaluated(task: _Task, draw: Draw) -> tuple[float, list[Load]]:
    """When the draw's loads are over, and the loads in the order in which they start in forward time."""
    ground = task.ground
    messages: list[Message] = ground.unfolded(draw.messages)
    loads = loads_of(ground.topology, messages, task.owners, task.wants)
    times = timed(ground.topology, loads, task.chunk_bytes, ground.one_at_a_time)
    end_s = max((end for _, end in times), default=0.0)
    backwards = ground.one_at_a_time or task.mirrored
    order = sorted(range(len(loads)), key=lambda k: -times[k][1] if backwards else times[k][0])
    return end_s, [loads[k] for k in order]
