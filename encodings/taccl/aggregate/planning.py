"""Planning of aggregated sends: randomised constructions, the best of them by what the collective makes of it.

The paths that blocks take when they are spread to everybody are trees, which are cut down to what a collective wants
moved.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx
import numpy as np

from gapless.array_types import Mask
from gapless.encodings.taccl.aggregate.spreading import (
    Construction,
    Message,
    Preferences,
    QuotientNetwork,
    quotient_network,
    spread,
)
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.sends import Transfer
from gapless.encodings.taccl.parameters import Aggregation
from gapless.encodings.taccl.sketch.phases import turned_round
from gapless.encodings.taccl.symmetry.rotations import lanes_of
from gapless.options import Deadline
from gapless.topologies.topology import Topology

__all__ = ["rooted_transfers", "timed", "transfers_along", "transfers_of"]

_DEFAULTS = Aggregation()
_ALIKE_AFTER, _ALIKE_SHARE = 50, 0.5
"""After so many constructions, this share has the preferences of the best one."""
_LEAST = (1, 1, 1, 2, 2, 3, 4, 8, 16)
_NOISE = (0.0, 0.3, 1.0)
_SKIPS = (0.0, 0.0, 0.1, 0.3)
_ONCE = 0.5
_MOST = (None, None, None, 1, 2, 4)
_DEPTHS = (None, None, 1, 2, 3)
"""What preferences are taken from. How often a part for one rank is handed on: more saves messages, less bytes."""


@dataclass(frozen=True)
class _Task:
    """Chunks to be brought from owners to ranks. `mirrored`: transfers run backwards on links turned round."""

    network: QuotientNetwork
    owners: Sequence[int]
    wants: Sequence[Sequence[int]]
    chunk_bytes: int
    whole: bool
    mirrored: bool


def transfers_of(
    problem: Chunked, deadline: Deadline, seed: int, parameters: Aggregation = _DEFAULTS,
    enough_s: Sequence[float] = (), best_s: float = math.inf,
) -> list[Transfer] | None:  # fmt: skip
    """The transfers of the best plan found, in order; None where ranks can't be reached.

    Phase k is not improved once it takes no longer than `enough_s[k]`, nor where it is far behind a plan that is known,
    which takes `best_s`.
    """
    phases = problem.phases
    tasks = [_task(phase.problem, phase.backwards) for phase in phases]
    return _in_turn(tasks, [phase.backwards for phase in phases], deadline, seed, parameters, enough_s, best_s)


def rooted_transfers(
    problem: Chunked, deadline: Deadline, seed: int, parameters: Aggregation = _DEFAULTS, best_s: float = math.inf
) -> list[Transfer] | None:
    """ALLREDUCE through one rank, where all is added up and from where it is spread: the one that is nearest to all.

    `best_s`: as in `transfers_of`.

    None for what isn't an ALLREDUCE of all ranks, and under a sketch, which says where the root of each chunk is.
    """
    if not problem.sums_for_all:
        return None
    collective, topology = problem.collective, problem.logical.topology
    everybody = range(collective.rank_count)
    root = _nearest(topology, problem.chunk_bytes * collective.chunk_count)
    owners, wants = [root] * collective.chunk_count, [tuple(r for r in everybody if r != root)] * collective.chunk_count
    tasks: list[_Task | None] = [
        _laid(machine, None, owners, wants, problem.chunk_bytes, backwards)
        for machine, backwards in ((turned_round(topology), True), (topology, False))
    ]
    return _in_turn(tasks, [True, False], deadline, seed, parameters, (), best_s)


def _nearest(topology: Topology, message_bytes: int) -> int:
    """The rank from which the farthest is nearest, there and back."""
    network = topology.to_networkx(message_bytes)
    worst_s = [
        sum(max(nx.single_source_dijkstra_path_length(graph, rank, weight="duration_s").values())
            for graph in (network, network.reverse(copy=False)))
        for rank in range(topology.device_count)
    ]  # fmt: skip
    return min(range(len(worst_s)), key=lambda rank: (worst_s[rank], rank))


def _in_turn(
    tasks: Sequence[_Task | None],
    backwards: Sequence[bool],
    deadline: Deadline,
    seed: int,
    parameters: Aggregation,
    enough_s: Sequence[float],
    best_s: float,
) -> list[Transfer] | None:
    """The best transfers of each task, one task after the other, each of which has an even part of the time."""
    transfers: list[Transfer] = []
    for number, task in enumerate(tasks):
        stage = Deadline(deadline.stage(deadline.remaining_s / (len(tasks) - number)))
        enough = enough_s[number] if enough_s else 0.0
        hopeless_s = parameters.hopeless_factor * best_s / len(tasks)
        found = None if task is None else _best_transfers(task, stage, seed, parameters, enough, hopeless_s)
        if found is None:
            return None
        transfers += [transfer._replace(reduces=backwards[number]) for transfer in found]
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
    """The quotient network with a block for each rank that owns something, of the mean size."""
    roots = sorted({owner for owner, ranks in zip(owners, wants, strict=True) if ranks})
    blocks = None if allowed is None else _allowed_blocks(allowed, owners, topology.device_count)
    whole = all(len(ranks) in (0, topology.device_count - 1) for ranks in wants)
    per_block = max(1, round(len(owners) / max(len(roots), 1)))
    network = quotient_network(topology, tuple(roots), per_block * chunk_bytes, blocks, backwards)
    return _Task(network, owners, wants, chunk_bytes, whole, mirrored)


def _allowed_blocks(allowed: Mask, owners: Sequence[int], count: int) -> Mask:
    """`allowed[b, l]`: whether all chunks of rank b may take link l."""
    blocks = np.ones((count, allowed.shape[1]), dtype=np.bool_)
    for chunk, owner in enumerate(owners):
        blocks[owner] &= allowed[chunk]
    return blocks


def _best_transfers(
    task: _Task, deadline: Deadline, seed: int, parameters: Aggregation, enough_s: float, hopeless_s: float
) -> list[Transfer] | None:
    """The transfers of the best construction, in an order in which they can be sent.

    Of the first ones alone, where none of them is over by `hopeless_s`.
    """
    rng = random.Random(seed)
    best: tuple[float, Construction, list[Transfer]] | None = None
    best_preferences = Preferences()
    kinds, messages, found_at = len(set(task.network.alpha_s)), 0, 0
    for number in range(parameters.tries):
        is_used_up = messages > parameters.messages or messages - found_at > parameters.patience_messages
        is_enough = best is not None and (best[0] <= enough_s or is_used_up)
        is_hopeless = best is not None and number >= parameters.hopeless_tries and best[0] > hopeless_s
        if is_enough or is_hopeless or (best is not None and deadline.over):
            break
        alike = number > _ALIKE_AFTER and rng.random() < _ALIKE_SHARE
        preferences = best_preferences if alike else _preferences(rng, number, kinds, task)
        prefix = None
        if best is not None and rng.random() < parameters.restart_share:
            prefix = best[1].choices[: rng.randrange(len(best[1].choices))]
        limit_s = best[0] if best is not None and task.whole else math.inf
        construction = spread(task.network, preferences, rng, prefix, limit_s)
        messages += len(construction.messages) * task.network.copies
        if not construction.complete:
            continue
        if task.whole and best is not None and construction.end_s >= best[0] * (1 - 1e-9):
            continue
        end_s, transfers = _evaluated(task, construction)
        if best is None or end_s < best[0] * (1 - 1e-9):
            best, best_preferences, found_at = (end_s, construction, transfers), preferences, messages
    return None if best is None else best[2]


def _preferences(rng: random.Random, number: int, kinds: int, task: _Task) -> Preferences:
    """The first constructions prefer nothing, or what costs least between nodes; the others at random."""
    nodes = task.network.has_nodes
    if number < 2:
        return Preferences(once=bool(number) and nodes)
    least = tuple(rng.choice(_LEAST) for _ in range(kinds))
    return Preferences(
        least=least,
        noise=rng.choice(_NOISE),
        depth=None if task.whole else rng.choice(_DEPTHS),
        skips=rng.choice(_SKIPS),
        once=nodes and rng.random() < _ONCE,
        most=rng.choice(_MOST) if nodes else None,
    )


def _evaluated(task: _Task, construction: Construction) -> tuple[float, list[Transfer]]:
    """When the transfers of a construction are over, and they in the order in which they start in forward time."""
    network = task.network
    messages: list[Message] = network.unfolded(construction.messages)
    transfers = transfers_along(network.topology, messages, task.owners, task.wants)
    times = timed(network.topology, transfers, task.chunk_bytes, network.one_at_a_time)
    end_s = max((end for _, end in times), default=0.0)
    backwards = network.one_at_a_time or task.mirrored
    order = sorted(range(len(transfers)), key=lambda k: -times[k][1] if backwards else times[k][0])
    return end_s, [transfers[k] for k in order]


def transfers_along(
    topology: Topology, messages: Sequence[Message], owners: Sequence[int], wants: Sequence[Sequence[int]]
) -> list[Transfer]:
    """What each message carries of chunks that start at `owners[c]` and are wanted by `wants[c]`; empty ones go.

    Block b is spread along a tree from rank b; a chunk of it takes those branches that lead to a rank that wants it.
    """
    source, target = topology.link_source.tolist(), topology.link_target.tolist()
    brought: dict[tuple[int, int], int] = {}
    for number, message in enumerate(messages):
        blocks = message.blocks
        while blocks:
            block = (blocks & -blocks).bit_length() - 1
            brought[block, target[message.link]] = number
            blocks &= blocks - 1
    chunks: list[list[int]] = [[] for _ in messages]
    for chunk, (owner, ranks) in enumerate(zip(owners, wants, strict=True)):
        used: set[int] = set()
        for rank in ranks:
            at = rank
            while at != owner:
                number = brought[owner, at]
                if number in used:
                    break
                used.add(number)
                at = source[messages[number].link]
        for number in used:
            chunks[number].append(chunk)
    return [Transfer(message.link, tuple(some)) for message, some in zip(messages, chunks, strict=True) if some]


def timed(
    topology: Topology, transfers: Sequence[Transfer], chunk_bytes: int, one_at_a_time: bool = False
) -> list[tuple[float, float]]:
    """When each transfer starts and ends, each as early as the ones before it allow."""
    source, target = topology.link_source.tolist(), topology.link_target.tolist()
    alpha_s, beta_s = topology.alpha_s.tolist(), (topology.beta_s_per_byte * chunk_bytes).tolist()
    lanes = lanes_of(topology)
    clock: dict[int, float] = defaultdict(float)
    there: dict[tuple[int, int], float] = defaultdict(float)
    sent: dict[tuple[int, int], float] = defaultdict(float)
    times = []
    for transfer in transfers:
        link, by, to = transfer.link, source[transfer.link], target[transfer.link]
        begin_s = max(max(clock[key] for key in lanes[link]), max(there[chunk, by] for chunk in transfer.chunks))
        if one_at_a_time:
            begin_s = max(begin_s, *(sent[chunk, by] for chunk in transfer.chunks))
        end_s = begin_s + alpha_s[link] + beta_s[link] * len(transfer.chunks)
        for key in lanes[link]:
            clock[key] = end_s
        for chunk in transfer.chunks:
            there[chunk, to] = end_s
            if one_at_a_time:
                sent[chunk, by] = end_s
        times.append((begin_s, end_s))
    return times
