"""The fastest step that FSDP2 can run, by trying every wrapping of a few layers: groups, what they keep, what passes
gather ahead, how many scatters are under way."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, pairwise, product

from gapless.encodings.fsdp.execution.wrapping import order_of
from gapless.encodings.fsdp.step.costs import Costs, Order
from gapless.encodings.fsdp.step.timeline import Timeline, memory_changes, peak_of, timeline
from gapless.io.formats.fsdp2 import Fsdp2Group, Fsdp2Wrapping

__all__ = ["least_fsdp2_step"]


def least_fsdp2_step(costs: Costs, has_moments: bool = True) -> float:
    """The end of the fastest of all wrappings within memory; inf where none is.

    A pass of no time frees what it has read a moment later, and what waits for that is a moment late. Without
    `has_moments` only of those wrappings that are within memory, too, where all of an instant happens at once.
    """
    least_s = math.inf
    for wrapping in _wrappings(costs):
        order = order_of(wrapping)
        times = timeline(costs, order)
        assert times is not None
        peak_bytes = (
            times.peak_bytes if has_moments else max(times.peak_bytes, _peak_bytes_at_once(costs, order, times))
        )
        if peak_bytes <= costs.memory_bytes * (1 + 1e-9):
            least_s = min(least_s, times.step_s)
    return least_s


def _peak_bytes_at_once(costs: Costs, order: Order, times: Timeline) -> float:
    """The most memory, by instants without moments."""
    events = (times.taken_s, times.end_s, times.begin_s, times.over_s)
    instants = ([round(when_s, 6) for when_s in each] for each in events)
    return peak_of(memory_changes(costs, order.collectives, *instants))


def _wrappings(costs: Costs) -> Iterator[Fsdp2Wrapping]:
    names = tuple(f"layer{k}" for k in range(costs.layers))
    sizes = tuple(costs.parameters.tolist())
    for cuts in product((False, True), repeat=costs.layers - 1):
        bounds = [0, *(k + 1 for k, cut in enumerate(cuts) if cut), costs.layers]
        for shardings in product(_shardings(costs), repeat=len(bounds) - 1):
            groups = tuple(
                Fsdp2Group(first, last - 1, is_kept, "bf16", "fp32", sharding=sharding)
                for (first, last), (is_kept, sharding) in zip(pairwise(bounds), shardings, strict=True)
            )
            bare = Fsdp2Wrapping("small", names, sizes, groups, ranks_per_node=2)
            for ahead in _begun(tuple(is_kept for is_kept, _ in shardings)):
                for most in range(1, len(groups) + 1):
                    yield _with(bare, ahead, most)


def _shardings(costs: Costs) -> list[tuple[bool, str]]:
    """Whether a group is kept, and how it is sharded."""
    found = [(False, "full"), (True, "full")]
    found += [(False, "secondary")] if costs.replicas.share < 1 else []
    return found + ([(False, "hybrid"), (True, "hybrid")] if costs.replicas.bytes is not None else [])


def _begun(kept: tuple[bool, ...]) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Groups that each pass gathers ahead, in the order in which they are used: gathers belong to passes that don't go
    back, none later than its own, a second gather after the first is used."""
    count = len(kept)
    uses = [(k, k) for k in range(count)] + [(k, 2 * count - 1 - k) for k in reversed(range(count)) if not kept[k]]
    for passes in combinations_with_replacement(range(2 * count), len(uses)):
        chosen = list(zip(passes, uses, strict=True))
        if any(begun > own or (own >= count and begun <= group) for begun, (group, own) in chosen):
            continue
        yield tuple(
            tuple(group for begun, (group, own) in chosen if begun == number < own) for number in range(2 * count)
        )


def _with(bare: Fsdp2Wrapping, ahead: tuple[tuple[int, ...], ...], most: int) -> Fsdp2Wrapping:
    groups = tuple(
        replace(group, forward_prefetch=ahead[k], backward_prefetch=ahead[-1 - k])
        for k, group in enumerate(bare.groups)
    )
    return replace(bare, groups=groups, scatters_in_flight=most)
