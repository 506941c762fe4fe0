"""Random clusters: nodes of some ranks that share ports, buses or nothing, and NICs, one of which may be slow."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from gapless.topologies.node import Cluster, LocalLink, NicTemplate, NodeTemplate, SwitchTemplate


def random_machine(
    rng: np.random.Generator, nodes: tuple[int, int] = (2, 4), ranks: tuple[int, int] = (2, 6),
    slower: tuple[float, float] = (1.5, 6.0), slow: tuple[float, float] = (1.5, 4.0),
) -> Cluster:  # fmt: skip
    """So many nodes (least, most) of so many ranks each. How many times as slow as links inside of a node its NICs
    are, and the slow one as the others.
    """
    count = int(rng.integers(nodes[0], nodes[1] + 1))
    ranks_per_node = int(rng.integers(ranks[0], ranks[1] + 1))
    inner_s, outer_s = 10 ** rng.uniform(-6, -4.5), 10 ** rng.uniform(-5.5, -4)
    inner_beta = 10 ** rng.uniform(-10, -8)
    outer_beta = inner_beta * rng.uniform(*slower)
    inside = rng.choice(["switch", "direct", "bus"])
    parted = bool(ranks_per_node >= 4 and rng.random() < 0.5)
    share = int(rng.choice([n for n in range(1, ranks_per_node + 1) if ranks_per_node % n == 0]))
    slow_node, factor = (int(rng.integers(count)) if rng.random() < 0.5 else -1), rng.uniform(*slow)
    made = []
    for number in range(count):
        found = [range(k, k + share) for k in range(0, ranks_per_node, share)]
        betas = [outer_beta] * len(found)
        if number == slow_node:
            betas[int(rng.integers(len(found)))] *= factor
        nics = tuple(NicTemplate(tuple(group), outer_s, beta) for group, beta in zip(found, betas, strict=True))
        links, switches = _inside(str(inside), ranks_per_node, inner_s, inner_beta, parted)
        made.append(NodeTemplate(f"node {number}", ranks_per_node, links, switches, nics))
    return Cluster("random", tuple(made))


def _inside(
    kind: str, ranks: int, alpha_s: float, beta: float, parted: bool
) -> tuple[tuple[LocalLink, ...], tuple[SwitchTemplate, ...]]:
    if kind == "switch":
        return (), (SwitchTemplate(tuple(range(ranks)), alpha_s, beta),)
    buses = (range(ranks // 2), range(ranks // 2, ranks)) if parted else (range(ranks),)
    names = {
        pair: tuple(f"bus{k}" for k, bus in enumerate(buses) if pair[0] in bus or pair[1] in bus)
        for pair in permutations(range(ranks), 2)
    }
    return tuple(LocalLink(*pair, alpha_s, beta, names[pair] if kind == "bus" else ()) for pair in names), ()
