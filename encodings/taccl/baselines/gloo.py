"""What gloo does for the collectives that torch has it carry out: rings by rank number, trees, and a message a pair."""

from __future__ import annotations

from collections.abc import Callable

from gapless.encodings.taccl.baselines.cut import Cut, root_of, standard_name
from gapless.encodings.taccl.baselines.library import Baseline, Baselines
from gapless.encodings.taccl.baselines.templates import direct_sends, ring_allgather
from gapless.encodings.taccl.baselines.transfers import Send
from gapless.encodings.taccl.baselines.variants import Variant
from gapless.io.formats.collective_file import collective_of
from gapless.io.plan import SavedPlan
from gapless.ir.collective import Collective, collective_by_name
from gapless.topologies.topology import Topology
from gapless.units import format_seconds

__all__ = ["SAME", "faster_library", "gloo_baseline", "library_baseline", "slower_than"]

SAME = 1e-9
"""Times that differ by less than this part are equal."""

_MOST_TRANSFERS = 45_000
"""Transfers of NCCL's variants, after which no more pieces of a pipeline are tried: some tenths of a second."""


def library_baseline(backend: str, topology: Topology, collective: Collective, chunk_bytes: int) -> Baseline | None:
    """What the library behind a backend of torch.distributed does on a topology; None where that is not known.

    Of NCCL it is the fastest of the rings, trees and direct algorithms.
    """
    if backend == "gloo":
        return gloo_baseline(topology, collective, chunk_bytes)
    if backend != "nccl" or (collective.reduces and standard_name(collective) is None):
        return None
    known = Baselines(topology, collective).of_size(chunk_bytes, most_transfers=_MOST_TRANSFERS)
    of_nccl = [one for one in known if one.name in ("ring", "double-binary-tree", "direct")]
    return min(of_nccl, key=lambda one: one.makespan_s, default=None)


def faster_library(plan: SavedPlan, plan_s: float, backend: str) -> str:
    """That the library behind a backend is predicted to be faster than a plan, in a line; empty where it isn't."""
    collective, chunk_bytes = collective_of(plan.problem, "plan"), int(plan.schedule.graph.size_bytes.max(initial=1))
    library = library_baseline(backend, plan.schedule.topology, collective, chunk_bytes)
    is_faster = library is not None and library.makespan_s < plan_s * (1 - SAME)
    return slower_than(library, backend, plan_s) if library is not None and is_faster else ""


def slower_than(library: Baseline, backend: str, plan_s: float) -> str:
    """For people, that a plan takes longer than the library is predicted to."""
    return (
        f"{backend}'s own algorithm ({library.variant}) is predicted to take {format_seconds(library.makespan_s)}, "
        f"the plan {format_seconds(plan_s)}"
    )


def gloo_baseline(topology: Topology, collective: Collective, chunk_bytes: int) -> Baseline | None:
    """Gloo's algorithm on a topology; None for a collective that gloo hasn't, and for its REDUCE.

    Torch has no REDUCESCATTER of gloo's: it is an ALLREDUCE of which each rank keeps its part.
    """
    name = standard_name(collective)
    done = collective
    if name == "reducescatter":
        done = collective_by_name("allreduce", collective.rank_count, collective.chunks_per_rank)
    algorithm = _ALGORITHMS.get(name or "")
    if algorithm is None:
        return None
    title, sends = algorithm
    variant = Variant(title, 1, (1, 1), lambda cut, is_reversed: sends(cut))
    return Baselines(topology, done).built("gloo", variant, chunk_bytes)


def _ring(cut: Cut) -> list[Send]:
    return ring_allgather(cut, [list(range(cut.collective.rank_count))])


def _binomial_tree(cut: Cut) -> list[Send]:
    """In step k the ranks that have it, those below 2^k counted from the root, send it to those 2^k further on."""
    count, root = cut.collective.rank_count, root_of(cut.collective)
    assert root is not None
    sends, distance = [], 1
    while distance < count:
        sends += [
            Send(0, distance.bit_length() - 1, (root + place) % count, (root + place + distance) % count, cut.blocks[0])
            for place in range(min(distance, count - distance))
        ]
        distance *= 2
    return sends


_ALGORITHMS: dict[str, tuple[str, Callable[[Cut], list[Send]]]] = {
    "allgather": ("ring by rank number", _ring),
    "allreduce": ("ring by rank number", _ring),
    "reducescatter": ("ring of an ALLREDUCE", _ring),
    "alltoall": ("a message a pair", direct_sends),
    "gather": ("a message a pair", direct_sends),
    "scatter": ("a message a pair", direct_sends),
    "sendrecv": ("a message a pair", direct_sends),
    "broadcast": ("binomial tree", _binomial_tree),
}
