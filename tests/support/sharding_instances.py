"""Small random instances of sharding, and all their plans by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np

from gapless.encodings.sharding.instances.instance import FORBIDDEN, Instance

__all__ = ["cheapest", "random_instance"]


def random_instance(
    seed: int, *, nodes: int = 6, choices: int = 3, edges: int = 8, forbidden: float = 0.3, tightness: float = 0.5,
    alike: float = 0.3, most_cost: int = 50,
) -> Instance:  # fmt: skip
    """An instance of so many nodes with up to so many choices each. `forbidden`: the share of pairs that nobody may
    take; `alike`: the share of edges between nodes of as many choices that allow each choice one of the other's.
    `tightness`: the limit, from 0, what the least usages need, to 1, what the most do.
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(1, choices + 1, size=nodes)
    costs = tuple(random.integers(0, most_cost, size=size) for size in sizes)
    usages = tuple(random.integers(0, 20, size=size) for size in sizes)
    bounds = np.sort(random.integers(0, nodes, size=(nodes, 2)), axis=1)
    pairs = np.array([random.choice(nodes, size=2, replace=False) for _ in range(edges)], dtype=np.int64)
    pairs = pairs.reshape(-1, 2)
    tables = tuple(_table(random, int(sizes[v]), int(sizes[w]), forbidden, alike, most_cost) for v, w in pairs)
    loose = Instance("random", bounds, costs, usages, pairs, tables, 2**40)
    least = loose.peak(np.array([int(usage.argmin()) for usage in usages]))
    most = loose.peak(np.array([int(usage.argmax()) for usage in usages]))
    return Instance("random", bounds, costs, usages, pairs, tables, int(least + tightness * (most - least)))


def _table(random: np.random.Generator, rows: int, columns: int, forbidden: float, alike: float, most: int):
    table = random.integers(0, most, size=(rows, columns))
    if rows == columns and random.random() < alike:
        is_open = np.eye(rows, dtype=bool)[random.permutation(rows)]
    else:
        is_open = random.random(size=table.shape) >= forbidden
    return np.where(is_open, table, FORBIDDEN + random.integers(0, 2, size=table.shape))


def cheapest(instance: Instance) -> tuple[int, tuple[int, ...]] | None:
    """The least cost of a plan within the limit, and the first plan that has it; None where there is none."""
    best = None
    for plan in product(*(range(len(cost)) for cost in instance.costs)):
        found = instance.evaluate(np.array(plan))
        if not found.forbidden and found.peak <= instance.usage_limit and (best is None or found.cost < best[0]):
            best = found.cost, plan
    return best
