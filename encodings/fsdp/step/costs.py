"""What a step costs: layers, collectives on one network, and memory of gathered parameters and of gradients.

Positions number the computation of a step: the forward passes of layers 0..L-1, then their backward passes from L-1 to
0. Each needs the parameters of its layer, gathered; a backward pass makes gradients, which are scattered.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from gapless.array_types import Floats, Ints

__all__ = ["Collective", "Costs", "Inner", "Kind", "Order", "Replicas"]


class Kind:
    """What a collective does, as plans say it."""

    FORWARD = "forward gather"
    BACKWARD = "backward gather"
    SCATTER = "scatter"


@dataclass(frozen=True)
class Collective:
    """`kind`: of `Kind`. `first`, `last`: its layers, both inclusive. `kept`: of a forward gather, whether parameters
    stay until the backward passes. `after`: positions that must be over before it may start, for want of memory.
    `precision`: in which bytes travel; empty for the fastest that is offered. `in_node`: of a gather, that ranks of a
    node have all of it: it isn't between nodes. Layers whose backward gather alone is leave a node's share in each rank
    after their forward passes; of replicated layers both gathers are, and the scatter has its sums added between nodes.
    """

    kind: str
    first: int
    last: int
    kept: bool = False
    after: int = 0
    precision: str = ""
    in_node: bool = False

    @property
    def layers(self) -> range:
        """All of them."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True)
class Order:
    """`collectives`: in the order in which they hold the network. `holds[l]`: of layer l, how many of them must be over
    before its backward pass may start, as memory has no room for its gradients before; 0 for none.
    """

    collectives: tuple[Collective, ...]
    holds: tuple[int, ...]


@dataclass(frozen=True)
class Inner:
    """Inside a node: the latency of a collective's part, and seconds of a parameter by precision."""

    latency_s: float
    gathers_s: Mapping[str, float]
    scatters_s: Mapping[str, float]


@dataclass(frozen=True)
class Replicas:
    """What else a layer's sharding may be. `share`: of its gathered bytes, what a rank holds after the forward pass
    where that is resharded over the ranks of a node; 1 where this isn't offered. `bytes`: of a parameter, what a rank
    holds more of it and of its optimiser where nodes have a replica each; None where this isn't offered. `is_full`:
    whether it may be over all ranks between its passes."""

    share: float = 1.0
    bytes: float | None = None
    is_full: bool = True


@dataclass(frozen=True)
class Costs:
    """`parameters`: int64, `forward_s`, `backward_s`: float, seconds, of shape (layers,) each. A collective of n
    parameters takes `latency_s` and n times what each takes in its precision: `gathers_s`, `scatters_s`, the most exact
    first. `gathered_bytes`, `gradient_bytes`: of a parameter, while it is gathered, and from its backward pass until it
    is scattered. `memory_bytes`: for all of these; inf for no limit. `takes_when_begun`: a gather's memory is
    taken when a pass begins the gather, as FSDP2 has it, not when the network is free for it.

    Where there are two networks, these are costs between nodes, and `inner` what it takes inside them besides.
    """

    parameters: Ints
    forward_s: Floats
    backward_s: Floats
    latency_s: float
    gathers_s: Mapping[str, float]
    scatters_s: Mapping[str, float]
    gathered_bytes: float
    gradient_bytes: float
    memory_bytes: float = math.inf
    takes_when_begun: bool = False
    inner: Inner | None = None
    replicas: Replicas = Replicas()

    @cached_property
    def gather_s(self) -> float:
        """Of a parameter, in the fastest precision."""
        return min(self.gathers_s.values())

    @cached_property
    def scatter_s(self) -> float:
        """Of a gradient, in the fastest precision."""
        return min(self.scatters_s.values())

    @property
    def layers(self) -> int:
        """How many there are."""
        return len(self.parameters)

    @property
    def positions(self) -> int:
        """How many computations a step has."""
        return 2 * self.layers

    @cached_property
    def layer_at(self) -> list[int]:
        """The layer of each position."""
        return [*range(self.layers), *reversed(range(self.layers))]

    @cached_property
    def duration_s(self) -> list[float]:
        """Of each position."""
        return [*self.forward_s.tolist(), *self.backward_s[::-1].tolist()]

    @property
    def compute_s(self) -> float:
        """Of the whole step."""
        return float(self.forward_s.sum() + self.backward_s.sum())

    @property
    def least_bytes(self) -> float:
        """What a step needs at least: the parameters of a layer, with its gradients in the backward pass; where memory
        is taken when a gather is begun, also with those of the layer after it, whose scatter is under way."""
        alone = float(self.parameters.max() * (self.gathered_bytes + self.gradient_bytes))
        if not self.takes_when_begun or not (self.latency_s or self.scatter_s):
            return alone
        beside = self.parameters[:-1] * self.gathered_bytes + self.parameters[1:] * self.gradient_bytes
        return max(alone, float(beside.max(initial=0.0)))

    @cached_property
    def until(self) -> list[int]:
        """Parameters of the layers before each, with the sum of all at the end."""
        return [0, *np.cumsum(self.parameters).tolist()]

    def between(self, first: int, last: int) -> int:
        """Parameters of layers `first` to `last`, both inclusive."""
        return self.until[last + 1] - self.until[first]

    def collective_s(self, collective: Collective) -> float:
        """How long a collective holds the network, or that between nodes."""
        is_scatter = collective.kind == Kind.SCATTER
        each_s = self.scatter_s if is_scatter else self.gather_s
        if collective.precision:
            each_s = (self.scatters_s if is_scatter else self.gathers_s)[collective.precision]
        return self.latency_s + self.between(collective.first, collective.last) * each_s

    @cached_property
    def networks(self) -> tuple[Costs, ...]:
        """The costs on each network by itself, as if nothing took time on the other: between nodes, then inside."""
        if self.inner is None:
            return (self,)
        inner = self.inner
        rates = replace(
            self, latency_s=inner.latency_s, gathers_s=inner.gathers_s, scatters_s=inner.scatters_s, inner=None
        )
        return replace(self, inner=None), replace(rates, replicas=Replicas())

    def parts_s(self, collective: Collective) -> list[tuple[int, float]]:
        """What a collective's parts take, one after the other: number of the network, and seconds. A gather begins
        between nodes, a scatter inside them; a sum of replicas is scattered and gathered between nodes."""
        parts = [(number, each.collective_s(collective)) for number, each in enumerate(self.networks)]
        if collective.kind != Kind.SCATTER:
            return parts[-1:] if collective.in_node else parts
        if collective.in_node:
            latency_s = self.networks[0].latency_s
            parts[0] = (0, latency_s + 2 * (parts[0][1] - latency_s))
        return parts[::-1]

    def secondary_bytes(self, collectives: Sequence[Collective]) -> dict[int, float]:
        """Of each layer that leaves a node's share in each rank, the bytes of that."""
        forward = {layer for each in collectives if each.kind == Kind.FORWARD and each.in_node for layer in each.layers}
        back = {layer for each in collectives if each.kind == Kind.BACKWARD and each.in_node for layer in each.layers}
        size = self.gathered_bytes * self.replicas.share
        return {layer: float(self.parameters[layer]) * size for layer in back - forward}

    def replicated_bytes(self, collectives: Sequence[Collective]) -> float:
        """Of all layers that nodes have replicas of, what a rank holds more during all of the step."""
        replicated = (each for each in collectives if each.kind == Kind.FORWARD and each.in_node)
        return sum(self.between(each.first, each.last) * (self.replicas.bytes or 0.0) for each in replicated)

    def without_gradients(self) -> Costs:
        """The same, had gradients no size in memory."""
        return replace(self, gradient_bytes=0.0)

    def without_latency(self) -> Costs:
        """The same, had collectives no latency."""
        inner = None if self.inner is None else replace(self.inner, latency_s=0.0)
        return replace(self, latency_s=0.0, inner=inner)

    def merged(self, groups: Sequence[tuple[int, int]]) -> Costs:
        """The same with one layer for each group of layers."""
        first = [group[0] for group in groups]
        return replace(
            self, parameters=np.add.reduceat(self.parameters, first), forward_s=np.add.reduceat(self.forward_s, first),
            backward_s=np.add.reduceat(self.backward_s, first),
        )  # fmt: skip
