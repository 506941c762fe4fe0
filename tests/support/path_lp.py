"""Chunks with one destination as a linear program over all simple ways: exponentially many, and written otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology


def simple_ways(topology: Topology, source: int, target: int) -> list[tuple[int, ...]]:
    """All ways without a loop, as links one after the other."""
    found: list[tuple[int, ...]] = []
    open_ways: list[tuple[int, tuple[int, ...], frozenset[int]]] = [(source, (), frozenset([source]))]
    for at, way, seen in open_ways:
        for link in np.flatnonzero(topology.link_source == at).tolist():
            to = int(topology.link_target[link])
            if to == target:
                found.append((*way, link))
            elif to not in seen:
                open_ways.append((to, (*way, link), seen | {to}))
    return found


def least_time_s(topology: Topology, occupancy_s: NDArray[np.float64], demand: NDArray[np.int64]) -> float:
    """The least time in which `demand[s, t]` chunks can share out over ways, no link or resource held for longer."""
    model, unit_s = Model("ways"), float(occupancy_s.max())
    time = int(model.continuous("time"))
    users: dict[object, list[tuple[int, float]]] = {}
    for source, target in np.argwhere(demand > 0).tolist():
        ways = simple_ways(topology, source, target)
        taken = model.continuous(f"taken_{source}_{target}", len(ways))
        amount = float(demand[source, target])
        model.add(f"all_{source}_{target}", (1.0, taken), lower=amount, upper=amount)
        for column, way in zip(taken.tolist(), ways, strict=True):
            for link in way:
                for holder in (("link", link), *topology.links[link].resources):
                    users.setdefault(holder, []).append((column, float(occupancy_s[link]) / unit_s))
    for row, held in enumerate(users.values()):
        columns, values = zip(*held, strict=True)
        model.add(f"time_{row}", (1.0, [time]), (-np.array(values), list(columns)), lower=0.0)
    model.minimize((1.0, [time]))
    solution = solve_model(model)
    assert solution.objective is not None
    return solution.objective * unit_s
