"""Sketches for a topology that nobody has written one for, from what its links, switches and NICs look like.

A candidate is a number of parts that a buffer is cut into, and either no sketch at all or a way out of the nodes, a
policy for the switches, and whether the symmetry that the logical topology has is used. Ways out: every link, the same
local rank on the other side (rails), or one sender and one receiver at each NIC, with or without a rule that a chunk
leaves by the NIC of its rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.parameters import Sketches
from gapless.encodings.taccl.sketch.format import InterNode, Policy, Sketch
from gapless.encodings.taccl.symmetry.automorphisms import free_symmetry
from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["Candidate", "Make", "candidate", "outlines", "partitions", "whole"]

Ranks = dict[int, tuple[int, ...]]
Make = Callable[[Sketch | None, int], Chunked]
"""The problem of one collective, topology and size under a sketch, or none, with a rank's data in so many parts.

Raises `InputError` where the sketch doesn't fit.
"""

_DEFAULTS = Sketches()
_LEAST_SHARE_OF_ALPHA = 0.5
"""Finer parts than these, whose own time on the fastest link is less than this share of its latency, don't pay."""


@dataclass(frozen=True)
class Candidate:
    """A problem under one sketch or none, with the lower bound that holds for all of its schedules."""

    name: str
    problem: Chunked
    bound_s: float


def partitions(topology: Topology, input_bytes: int, parameters: Sketches = _DEFAULTS) -> list[int]:
    """Into how many parts a rank's buffer may be cut: more where a part still outweighs the latency of its links."""
    fastest = int(topology.beta_s_per_byte.argmin())
    alpha_s, whole_s = float(topology.alpha_s[fastest]), float(topology.beta_s_per_byte[fastest]) * input_bytes
    return [
        parts
        for parts in parameters.parts
        if parts == 1 or (parts <= input_bytes and whole_s / parts >= _LEAST_SHARE_OF_ALPHA * alpha_s)
    ]


def whole(make: Make, topology: Topology, parts: int, parameters: Sketches = _DEFAULTS) -> Candidate:
    """No sketch at all. The bound holds for every sketch with so many parts, and chunks that travel together."""
    way_out = next(_exits(topology, parameters))[1]
    free = _on_symmetry(make, Sketch("free", inter_node=way_out, chunks_per_rank=parts), parts, parameters)
    return Candidate(f"none-{parts}", make(None, parts), bounds_of(free).any_grouping_s)


def outlines(topology: Topology, parameters: Sketches = _DEFAULTS) -> list[Sketch]:
    """Every way out with every policy, for one part and without symmetry; some may not fit the collective."""
    return [
        Sketch("-".join(["auto", exit_name, *sorted(set(policies))]), switches, policies, inter_node)
        for exit_name, inter_node in _exits(topology, parameters)
        for switches, policies in _policies(topology)
    ]


def candidate(
    make: Make, outline: Sketch, parts: int, use_symmetry: bool = True, parameters: Sketches = _DEFAULTS
) -> Candidate | None:
    """An outline with a number of parts, on its symmetry if it has any; None where it fits no collective of `make`."""
    sketch = replace(outline, name=f"{outline.name}-{parts}", chunks_per_rank=parts)
    try:
        problem = _on_symmetry(make, sketch, parts, parameters)
    except InputError:
        return None
    bound_s = bounds_of(problem).chunk_by_chunk_s  # on orbits, and the same without symmetry
    if not use_symmetry:
        problem = make(sketch, parts)
    assert problem.sketch is not None
    return Candidate(problem.sketch.name, problem, bound_s)


def _on_symmetry(make: Make, sketch: Sketch, parts: int, parameters: Sketches) -> Chunked:
    """The problem under a sketch with the symmetry that its logical topology has, if any."""
    problem = make(sketch, parts)
    generators = free_symmetry(problem.logical.topology, problem.collective, problem.logical.allowed, parameters)
    if not generators:
        return problem
    return make(replace(sketch, name=f"{sketch.name}-symmetric", permutations=generators), parts)


def _policies(topology: Topology) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[Policy, ...]]]:
    local_count = topology.ranks_per_node
    behind = [switch.ranks for switch in topology.switches if switch.node == 0]
    switches = tuple(tuple(rank % local_count for rank in ranks) for ranks in behind)
    if not switches:
        yield (), ()
        return
    policies: tuple[Policy, ...] = ("uc-max", "uc-min")
    for policy in policies:
        yield switches, (policy,) * len(switches)


def _exits(topology: Topology, parameters: Sketches) -> Iterator[tuple[str, InterNode | None]]:
    """How chunks leave a node; NICs are taken whole, in turn."""
    if topology.node_count == 1:
        yield "one-node", None
        return
    local_count = topology.ranks_per_node
    joined = _joined(topology, local_count)
    yield "every-link", InterNode(joined, dict.fromkeys(joined, 1.0))
    rails: Ranks = {sender: (sender,) for sender, receivers in joined.items() if sender in receivers}
    if len(rails) == len(joined) and rails != joined:
        yield "rails", InterNode(rails, dict.fromkeys(rails, 1.0))
    nics = [nic.ranks for nic in topology.nics if nic.node == 0]
    nics = [tuple(rank % local_count for rank in ranks) for ranks in nics]
    if not nics or min(map(len, nics)) < 2:
        return
    for send in range(parameters.senders):
        chosen: Ranks = {ranks[send]: (ranks[0],) for ranks in nics}
        if any(receivers[0] not in joined.get(sender, ()) for sender, receivers in chosen.items()):
            continue
        split = dict.fromkeys(chosen, 1.0)
        yield f"nic{send}0", InterNode(chosen, split)
        if len(nics) > 1:
            relays: Ranks = {rank: (ranks[send],) for ranks in nics for rank in ranks}
            yield f"nic{send}0-own", InterNode(chosen, split, relays)


def _joined(topology: Topology, local_count: int) -> dict[int, tuple[int, ...]]:
    """Local sender -> local receivers on other nodes, as the links of the first node have it."""
    found: dict[int, set[int]] = {}
    for source, target in zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True):
        if source < local_count <= target:
            found.setdefault(source, set()).add(target % local_count)
    return {sender: tuple(sorted(found[sender])) for sender in sorted(found)}
