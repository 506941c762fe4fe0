"""What is done today, by name, as orders of collectives; and what of it stays within memory.

- `fsdp2`: FSDP2 with every layer a module of its own. While a layer computes, the parameters of the next are gathered;
  gradients are scattered after their backward pass, and the pass after next waits for that.
- `last-kept`: the same, but the last layer isn't gathered a second time, as torchtitan has it.
- `kept`: no layer is (`reshard_after_forward=False`).
- `secondary`: `fsdp2`, and each layer stays sharded over the ranks of a node until its backward pass, as ZeRO++ has it.
- `hybrid`: `fsdp2`, and each layer is sharded over the ranks of a node, with a replica in each, as HSDP has it.
- `saturated`: neighbours are gathered together up to a size at which latency is a small part of a collective, within
  50 to 2,000 MB, as inductor's buckets are; else as `last-kept`.
- `one-by-one`: a layer is gathered once the pass before it is over, on the network behind the scatter of that: it needs
  the least memory of all.
- `overlapped`: every collective starts as soon as the network is free and memory has room, what the next position
  needs first, as inductor's overlap pass has it; nothing that FSDP2 can run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from gapless.encodings.fsdp.search.labels import greedy
from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Timeline, timeline

__all__ = ["BUILDERS", "FSDP2_BUILDERS", "Groups", "each_alone", "fits", "ungrouped"]

Groups: TypeAlias = tuple[tuple[int, int], ...]
"""(first, last) layer of each, both inclusive."""
_LATENCY_SHARE = 0.1
"""Of a collective's time, at most, in a bucket of the size that saturates the network."""
_LEAST_BYTES, _MOST_BYTES = 50e6, 2000e6
"""Of inductor's buckets (PyTorch pull request 179935)."""


def each_alone(costs: Costs) -> Groups:
    """Every layer a group."""
    return tuple((layer, layer) for layer in range(costs.layers))


def _saturated(costs: Costs) -> Groups:
    """Neighbours together until they are as large as a bucket."""
    size = costs.latency_s * (1 / _LATENCY_SHARE - 1) / costs.gather_s * costs.gathered_bytes if costs.gather_s else 0.0
    least = min(max(size, _LEAST_BYTES), _MOST_BYTES) / costs.gathered_bytes
    groups: list[tuple[int, int]] = []
    for layer in range(costs.layers):
        if groups and costs.between(*groups[-1]) < least:
            groups[-1] = (groups[-1][0], layer)
        else:
            groups.append((layer, layer))
    return tuple(groups)


def _one_ahead(costs: Costs, kept: Callable[[int], bool]) -> Order:
    """Each layer's parameters while the layer before it computes. `kept`: whether a layer waits for its backward."""
    order = [Collective(Kind.FORWARD, 0, 0, kept(0))]
    order += [Collective(Kind.FORWARD, k, k, kept(k), after=k - 1) for k in range(1, costs.layers)]
    holds = [0] * costs.layers
    for layer in reversed(range(costs.layers)):
        before = costs.positions - 1 - layer  # positions that are over when its backward pass begins
        if layer == costs.layers - 1 and not kept(layer):
            order.append(Collective(Kind.BACKWARD, layer, layer, after=before))
        if layer and not kept(layer - 1):
            order.append(Collective(Kind.BACKWARD, layer - 1, layer - 1, after=before))
        order.append(Collective(Kind.SCATTER, layer, layer))
        if layer > 1:
            holds[layer - 2] = len(order)
    return Order(tuple(order), tuple(holds))


def _one_by_one(costs: Costs) -> Order:
    order = [Collective(Kind.FORWARD, k, k, after=k) for k in range(costs.layers)]
    holds = [0] * costs.layers
    for layer in reversed(range(costs.layers)):
        order.append(Collective(Kind.BACKWARD, layer, layer, after=costs.positions - 1 - layer))
        order.append(Collective(Kind.SCATTER, layer, layer))
        if layer > 1:
            holds[layer - 2] = len(order)
    return Order(tuple(order), tuple(holds))


def _fsdp2(costs: Costs) -> Order:
    return _one_ahead(costs, lambda layer: False)


def _last_kept(costs: Costs) -> Order:
    return _one_ahead(costs, lambda layer: layer == costs.layers - 1)


def _kept(costs: Costs) -> Order:
    return _one_ahead(costs, lambda layer: True)


def _secondary(costs: Costs) -> Order | None:
    return _in_nodes(_fsdp2(costs), (Kind.BACKWARD,)) if costs.replicas.share < 1 else None


def _hybrid(costs: Costs) -> Order | None:
    if costs.replicas.bytes is None:
        return None
    return _in_nodes(_fsdp2(costs), (Kind.FORWARD, Kind.BACKWARD, Kind.SCATTER))


def _in_nodes(order: Order, kinds: tuple[str, ...]) -> Order:
    collectives = (replace(each, in_node=each.kind in kinds) for each in order.collectives)
    return replace(order, collectives=tuple(collectives))


def _in_buckets(costs: Costs) -> Order:
    groups = _saturated(costs)
    return ungrouped(_last_kept(costs.merged(groups)), groups)


def ungrouped(order: Order, groups: Groups) -> Order:
    """An order of groups as one of their layers."""
    layers = groups[-1][1] + 1
    holds = [0] * layers
    for held, (_, last) in zip(order.holds, groups, strict=True):
        holds[last] = held  # of a group the last layer's backward pass is first
    return Order(tuple(_ungrouped(each, groups, layers) for each in order.collectives), tuple(holds))


def _ungrouped(collective: Collective, groups: Groups, layers: int) -> Collective:
    count = len(groups)
    over = collective.after  # groups' passes that it waits for
    after = (groups[over - 1][1] + 1 if over else 0) if over <= count else 2 * layers - groups[2 * count - over][0]
    first, last = groups[collective.first][0], groups[collective.last][1]
    return replace(collective, first=first, last=last, after=after)


BUILDERS: dict[str, Callable[[Costs], Order | None]] = {
    "fsdp2": _fsdp2, "last-kept": _last_kept, "kept": _kept, "secondary": _secondary, "hybrid": _hybrid,
    "saturated": _in_buckets, "overlapped": greedy,
    "one-by-one": _one_by_one,
}  # fmt: skip


FSDP2_BUILDERS = tuple(name for name in BUILDERS if name != "overlapped")
"""What FSDP2 can run."""


def fits(costs: Costs, order: Order | None) -> Timeline | None:
    """The time line of an order that stays within memory, else None."""
    times = None if order is None else timeline(costs, order)
    return None if times is None or times.peak_bytes > costs.memory_bytes * (1 + 1e-9) else times
