"""What messages between ranks cost, and sums among replicas."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gapless.errors import InputError
from gapless.topologies.topology import Topology

__all__ = ["EvenHops", "Hops", "Replicas", "TopologyHops"]


@dataclass(frozen=True)
class EvenHops:
    """Hops that are all alike: `alpha_s` and `beta_s_per_byte`. Raises `InputError` for what is below 0."""

    alpha_s: float
    beta_s_per_byte: float = 0.0

    def __post_init__(self) -> None:
        for name, value in (("latency", self.alpha_s), ("beta_s_per_byte", self.beta_s_per_byte)):
            if not (math.isfinite(value) and value >= 0):
                raise InputError(f"{name}: must be finite and >= 0, got {value}")

    def cost(self, source: int, target: int) -> tuple[float, float]:
        """Seconds, and seconds a byte, from one rank to another."""
        return self.alpha_s, self.beta_s_per_byte

    def check(self, pairs: Iterable[tuple[int, int]], apart: Iterable[tuple[int, int]] = ()) -> None:
        """Everything is connected."""


class TopologyHops:
    """The links of a topology; rank r of the pipeline is rank r there. The fastest of parallel links is taken."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        columns = topology.columns
        links = zip(columns.source.tolist(), columns.target.tolist(), columns.alpha_s.tolist(),
                    columns.beta_s_per_byte.tolist(), range(len(columns.source)), strict=True)  # fmt: skip
        self._best: dict[tuple[int, int], tuple[float, float, int]] = {}
        for source, target, alpha_s, beta_s_per_byte, link in links:
            known = self._best.get((source, target))
            if known is None or (beta_s_per_byte, alpha_s) < (known[1], known[0]):
                self._best[source, target] = (alpha_s, beta_s_per_byte, link)

    def cost(self, source: int, target: int) -> tuple[float, float]:
        """Seconds, and seconds a byte, from one rank to another."""
        alpha_s, beta_s_per_byte, _ = self._best[source, target]
        return alpha_s, beta_s_per_byte

    def check(self, pairs: Iterable[tuple[int, int]], apart: Iterable[tuple[int, int]] = ()) -> None:
        """Each pair has a link, and no two hold the same switch side or NIC, which a pipeline's order doesn't share.

        `apart`: pairs that send when hops are over, and need a link only. Raises `InputError`.
        """
        name, held = self.topology.name, dict[int, tuple[int, int]]()
        neighbours = sorted(set(pairs))
        for pair in [*neighbours, *sorted(set(apart))]:
            if pair not in self._best:
                what = "neighbours in the pipeline" if pair in neighbours else "which have the same stage"
                rule = f"no link from rank {pair[0]} to rank {pair[1]}, {what}"
                raise InputError(f"topology {name!r}: {rule}; give another topology, or hop")
        for pair in neighbours:
            for resource in self.topology.links[self._best[pair][2]].resources:
                if held.setdefault(resource, pair) != pair:
                    others = f"{held[resource][0]} to {held[resource][1]} and {pair[0]} to {pair[1]}"
                    what = self.topology.resources[resource]
                    raise InputError(
                        f"topology {name!r}: hops {others} share {what!r}, which is not modelled; give hop"
                    )


Hops = EvenHops | TopologyHops


@dataclass(frozen=True)
class Replicas:
    """Data parallelism: each stage's gradients are summed over `count` replicas around a ring.

    `alpha_s`, `beta_s_per_byte`: of one step out of a rank. `fuses_embedding`: whether the gradients of weights that
    the first and the last stage share are summed once, over the 2 D copies (Optimus-CC, section 6).
    """

    count: int = 1
    alpha_s: float = 0.0
    beta_s_per_byte: float = 0.0
    fuses_embedding: bool = True

    def cost(self, copies: int) -> tuple[float, float]:
        """Seconds, and seconds a byte, of a ring all-reduce: 2 (D - 1) steps of a D-th each."""
        steps = 2 * (copies - 1)
        return steps * self.alpha_s, steps * self.beta_s_per_byte / copies

    def reduce_s(self, size_bytes: float, copies: int | None = None) -> float:
        """A sum of that many bytes; `copies`: D, if not one a replica."""
        each_s, s_per_byte = self.cost(self.count if copies is None else copies)
        return each_s + s_per_byte * size_bytes
