"""Whether what was measured is what there is: the same links in turn, and how far costs are off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from simulated_network import links_in_turn

from gapless.topologies.topology import Topology


@dataclass(frozen=True)
class Recovered:
    """`same`: whether nodes are, and the pairs of links that take turns. The largest errors of costs, as shares."""

    same: bool
    alpha_off: float
    beta_off: float

    @property
    def is_right(self) -> bool:
        return self.same and self.alpha_off < 0.1 and self.beta_off < 0.1


def recovered(truth: Topology, found: Topology, order: Sequence[int]) -> Recovered:
    """`order[k]`: the rank of the truth that is rank k of what was found."""
    turns = {frozenset((order[a], order[b]) for a, b in pair) for pair in links_in_turn(found)}
    nodes = {order[k]: node for k, node in enumerate(found.node_of_device)}
    pairs = {(nodes[rank], truth.node_of_device[rank]) for rank in nodes}
    costs, others = _costs(truth), {(order[a], order[b]): cost for (a, b), cost in _costs(found).items()}
    if set(costs) != set(others):
        return Recovered(False, np.inf, np.inf)
    off = np.max([np.abs(np.array(others[pair]) / costs[pair] - 1) for pair in costs], axis=0)
    same = turns == links_in_turn(truth) and len(pairs) == len(set(nodes.values()))
    return Recovered(same, float(off[0]), float(off[1]))


def _costs(topology: Topology) -> dict[tuple[int, int], tuple[float, float]]:
    columns = (topology.link_source, topology.link_target, topology.alpha_s, topology.beta_s_per_byte)
    return {(a, b): (alpha_s, beta) for a, b, alpha_s, beta in zip(*(each.tolist() for each in columns), strict=True)}
