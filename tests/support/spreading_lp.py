"""ALLGATHER in arbitrarily small pieces as one linear program, a flow to every rank: slow, and written otherwise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.model import Model
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Topology


def allgather_time_s(topology: Topology, occupancy_s: NDArray[np.float64]) -> float:
    """The least T for which some `carried[l]` holds no link and no resource longer, and every rank gets every chunk."""
    model, unit_s = Model("spreading"), float(occupancy_s.max())
    count, links = topology.device_count, len(topology.links)
    carried, time = model.continuous("carried", links), int(model.continuous("time"))
    users: dict[object, list[int]] = {}
    for number, link in enumerate(topology.links):
        for holder in (("link", number), *link.resources):
            users.setdefault(holder, []).append(number)
    for row, held in enumerate(users.values()):
        model.add(f"time_{row}", (1.0, [time]), (-occupancy_s[held] / unit_s, carried[held]), lower=0.0)
    for sink in range(count):
        flow = model.continuous(f"flow_{sink}", links)
        model.add(f"within_{sink}", (1.0, carried[:, None]), (-1.0, flow[:, None]), lower=0.0)
        for rank in range(count):
            if rank != sink:
                out, into = np.flatnonzero(topology.link_source == rank), np.flatnonzero(topology.link_target == rank)
                terms = [(1.0, flow[out])] + ([(-1.0, flow[into])] if len(into) else [])
                model.add(f"kept_{sink}_{rank}", *terms, lower=1.0, upper=1.0)
    model.minimize((1.0, [time]))
    solution = solve_model(model)
    assert solution.objective is not None
    return solution.objective * unit_s
