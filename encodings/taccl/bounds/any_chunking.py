"""Lower bounds that hold however chunks are cut and grouped: what plans of other chunks are compared with, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gapless.array_types import Floats, Ids, Mask
from gapless.encodings.taccl.bounds.bandwidth.bottlenecks import allgather_bottlenecks
from gapless.encodings.taccl.bounds.bandwidth.packing import exact_bandwidth
from gapless.encodings.taccl.bounds.bandwidth.partitions import worst_partition
from gapless.encodings.taccl.bounds.bandwidth.sums import sums_s
from gapless.encodings.taccl.bounds.cuts import crossed_links, kinds_of, partitions_of
from gapless.encodings.taccl.bounds.link_costs import distances_s, farthest_s, links_into, rate_bytes_per_s, sides_of
from gapless.encodings.taccl.bounds.tradeoffs import hops_bound_s
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.encodings.taccl.sketch.phases import is_spread_backwards, turned_round
from gapless.encodings.taccl.symmetry.quotient import rotations_of
from gapless.encodings.taccl.symmetry.rotations import find_rotations, no_rotations
from gapless.ir.collective import Collective
from gapless.options import SolveOptions
from gapless.topologies.topology import Topology

__all__ = ["any_bandwidth_s_per_byte", "any_chunking_sources", "of_one_byte", "on_the_machine"]


_MOST_UNLIKE = 1e12
"""How many times longer a link may take for one byte than another, where single bytes are looked at."""


def any_chunking_sources(problem: Chunked, exact_s_per_byte: float) -> dict[str, float]:
    """Seconds that every plan for the problem's bytes takes, in chunks of whatever size, by where they come from.

    `latency`: the alphas of the shortest path. `cuts`: for each rank and each node, what must come in, or go out,
    through all ports at once. `crossing`: of a sum, between classes of ranks. `hops`: where no two ranks want the same,
    messages, and the hops that few of them make. `bandwidth`: see `any_bandwidth_s_per_byte`. Links that share their
    first (last) resource count as the fastest of them, since one works at a time.
    """
    topology, collective = _machine_of(problem), problem.collective
    pairs = _pairs(collective)
    if pairs is None:
        sources = _holders(collective.contributors, collective.rank_count)
        targets = _holders(collective.destinations, collective.rank_count)
    else:  # one row for all chunks of an owner
        sources, targets = np.eye(collective.rank_count, dtype=np.bool_), pairs > 0
    everyone = np.arange(topology.device_count)
    return {
        "latency": farthest_s(topology, topology.alpha_s, sources, targets, everyone),
        "cuts": _cuts_s(topology, lambda inside: _enter(pairs, sources, targets, inside), problem.chunk_bytes),
        "crossing": _crossing_s(problem),
        "hops": 0.0 if pairs is None else _hops_s(topology, pairs * problem.chunk_bytes),
        "bandwidth": problem.chunk_bytes * exact_s_per_byte,
    }


def any_bandwidth_s_per_byte(problem: Chunked, parameters: BoundParameters, options: SolveOptions) -> float:
    """Seconds for each byte of a chunk that no plan can beat, latencies aside: flows, packed trees and cuts.

    Sums are looked at backwards in time, as the spreading of their chunks; of an ALLREDUCE also the worst partition. 0
    where the collective is of another kind, or some link takes no time.
    """
    topology = _machine_of(problem)
    if not (topology.beta_s_per_byte > 0).all() or not is_spread_backwards(problem.collective):
        return 0.0
    best_s = 0.0
    for phase in on_the_machine(problem).phases:
        rate_s = phase.problem.logical.topology.beta_s_per_byte
        rotations = rotations_of(phase.problem)
        best_s = max(best_s, exact_bandwidth(phase.problem, rate_s, rotations, options, parameters).time_s)
    return max(best_s, _sums_s_per_byte(on_the_machine(problem), parameters, options))


def _sums_s_per_byte(problem: Chunked, parameters: BoundParameters, options: SolveOptions) -> float:
    """Trees and late transfers of sums that several ranks want; of an ALLREDUCE of all ranks the worst partition."""
    topology, most = problem.logical.topology, parameters.most_partition_looks
    if not problem.collective.reduces:
        return 0.0
    occupancy_s, known, best_s = topology.beta_s_per_byte, partitions_of(topology), 0.0
    rotations = find_rotations(topology) if problem.sums_for_all else no_rotations(topology)
    if problem.sums_for_all and topology.device_count * len(topology.links) <= most:
        worst = worst_partition(topology, occupancy_s, rotations, known, options, most)
        known, best_s = list(worst.partitions), problem.collective.chunk_count * worst.time_s
    kinds = [kind for kind in kinds_of(problem) if len(kind.wants) > 1]
    return max(best_s, sums_s(topology, occupancy_s, kinds, rotations, known, options, parameters))


def of_one_byte(problem: Chunked, most_pairs: int) -> Chunked | None:
    """The problem with one byte of each kind of chunk, None where links differ too much for it, or kinds are too many.

    However chunks are cut, a byte stays whole. Leave all others out of a plan: it is still one, and takes no longer.
    So what holds for whole chunks here, however they are grouped, holds for any chunks of the problem.
    """
    topology, collective = _machine_of(problem), problem.collective
    byte_s = topology.alpha_s + topology.beta_s_per_byte
    if byte_s.max() > _MOST_UNLIKE * byte_s.min():
        return None
    kinds = zip(collective.roots, collective.contributors, collective.destinations, strict=True)
    number: dict[object, int] = {}
    kept = {chunk for chunk, kind in enumerate(kinds) if number.setdefault(kind, chunk) == chunk}
    if len(kept) * collective.rank_count > most_pairs:
        return None
    place = {chunk: k for k, chunk in enumerate(sorted(kept))}
    inputs, outputs = (
        tuple(tuple(place[chunk] for chunk in buffer if chunk in kept) for buffer in buffers)
        for buffers in (collective.inputs, collective.outputs)
    )
    single = replace(collective, chunks_per_rank=max(map(len, inputs)), inputs=inputs, outputs=outputs)
    return Chunked(topology, single, 1)


def on_the_machine(problem: Chunked) -> Chunked:
    """The problem without its sketch."""
    return Chunked(_machine_of(problem), problem.collective, problem.chunk_bytes)


def _machine_of(problem: Chunked) -> Topology:
    """What plans run on whatever the sketch; of a phase, the links that it has."""
    return problem.machine if problem.given is None else problem.logical.topology


def _holders(ranks_of_chunk: tuple[tuple[int, ...], ...], rank_count: int) -> Mask:
    mask = np.zeros((len(ranks_of_chunk), rank_count), dtype=np.bool_)
    for chunk, ranks in enumerate(ranks_of_chunk):
        mask[chunk, list(ranks)] = True
    return mask


def _pairs(collective: Collective) -> Floats | None:
    """`pairs[s, t]`: how many chunks rank t wants from rank s; None where several ranks want one, or it is a sum."""
    if collective.reduces or max(map(len, collective.destinations)) > 1:
        return None
    pairs = np.zeros((collective.rank_count, collective.rank_count))
    for owner, targets in zip(collective.owners, collective.destinations, strict=True):
        for target in targets:
            pairs[owner, target] += 1
    return pairs


def _enter(pairs: Floats | None, sources: Mask, targets: Mask, inside: Mask) -> int:
    """How many chunks are wanted in a set of ranks, and are outside, or have parts there."""
    if pairs is not None:
        return int(pairs[~inside][:, inside].sum())
    return int((sources[:, ~inside].any(axis=1) & targets[:, inside].any(axis=1)).sum())


def _cuts_s(topology: Topology, enter: Callable[[Mask], int], chunk_bytes: int) -> float:
    """For each rank and each node, and all others, the bytes that must come in over the rate at which they can."""
    best_s, sets = 0.0, [[rank] for rank in range(topology.device_count)]
    for inside in sides_of(topology, sets + topology.nodes * (topology.node_count > 1)):
        count, entering = enter(inside), links_into(topology, inside)
        if count and len(entering):
            best_s = max(best_s, _through_s(topology, entering, count * chunk_bytes))
    return best_s


def _through_s(topology: Topology, links: Ids, size_bytes: int) -> float:
    """So many bytes over all of these links at once."""
    return float(topology.alpha_s[links].min()) + size_bytes / rate_bytes_per_s(topology, links)


def _crossing_s(problem: Chunked) -> float:
    """Where the ranks are cut into classes, what must cross from one class to another of each byte of a sum."""
    if not problem.collective.reduces:
        return 0.0
    topology = _machine_of(problem)
    partitions = [*partitions_of(topology), *_narrow_partitions(topology)]
    crossed = crossed_links(topology, kinds_of(problem), partitions)
    return max((_through_s(topology, links, count * problem.chunk_bytes) for count, links in crossed), default=0.0)


def _narrow_partitions(topology: Topology) -> list[Ids]:
    """`class_of[r]`: a side of a narrowest cut is a class among single ranks, or with its images under rotations.

    None where some ranks don't reach some others, as between process groups, or some link takes no time.
    """
    rate_s, one = topology.beta_s_per_byte, np.array([0])
    reached = [distances_s(topology, rate_s, one, backwards=backwards) for backwards in (False, True)]
    if not (rate_s > 0).all() or not np.isfinite(reached).all():
        return []
    rotations, everyone = find_rotations(topology), np.arange(topology.device_count)
    found: dict[bytes, Ids] = {}
    for cut in allgather_bottlenecks(topology, topology.beta_s_per_byte, rotations):
        behind = np.isin(everyone, cut.behind)
        for ranks in (np.flatnonzero(behind), np.flatnonzero(~behind)):
            images = rotations.ranks[:, ranks]
            first = np.full(len(everyone), len(everyone))
            np.minimum.at(first, images, images.min(axis=1)[:, None])
            alone = np.where(np.isin(everyone, ranks), ranks.min(initial=0), everyone)
            for class_of in (first, alone):
                found[class_of.tobytes()] = class_of
    return list(found.values())


def _hops_s(topology: Topology, wanted: Floats) -> float:
    """Forwards and backwards in time; `wanted[s, t]`: bytes."""
    return max(hops_bound_s(topology, wanted), hops_bound_s(turned_round(topology), wanted.T))
