"""The shortest plan of a tiny ALLTOALLV, whole shares each along one path, a message each: CP-SAT tries them all."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray
from ortools.sat.python import cp_model

from gapless.topologies.topology import Link, Topology

__all__ = ["TICK_S", "network", "shortest_s"]

TICK_S = 1e-6


def network(seed: int, ranks: int = 3) -> Topology:
    """A connected network with links of whole ticks, some of which share ports."""
    chance = random.Random(seed)
    pairs = [(s, t) for s in range(ranks) for t in range(ranks) if s != t]
    ring = {(r, (r + 1) % ranks) for r in range(ranks)}
    kept = [pair for pair in pairs if pair in ring or chance.random() < 0.6]
    has_ports = chance.random() < 0.5
    links = tuple(
        Link(s, t, chance.randint(1, 6) * TICK_S, chance.randint(1, 4) * TICK_S, (s, ranks + t) if has_ports else ())
        for s, t in kept
    )
    names = tuple(f"port {k}" for k in range(2 * ranks)) if has_ports else ()
    return Topology(f"random {seed}", (0,) * ranks, links, names)


def shortest_s(topology: Topology, sent: NDArray[np.int64], tick_s: float) -> float:
    """Seconds; all links take whole numbers of ticks for all shares."""
    model = cp_model.CpModel()
    horizon = 10_000
    end = model.new_int_var(0, horizon, "end")
    taken: dict[int, list[cp_model.IntervalVar]] = {}
    for source, target in np.argwhere(sent > 0).tolist():
        chosen = []
        for path in _paths(topology, source, target):
            uses = model.new_bool_var("")
            chosen.append(uses)
            before = None
            for link in path:
                duration_s = topology.alpha_s[link] + topology.beta_s_per_byte[link] * sent[source, target]
                ticks = round(float(duration_s) / tick_s)
                start, stop = (model.new_int_var(0, horizon, "") for _ in range(2))
                interval = model.new_optional_interval_var(start, ticks, stop, uses, "")
                for lane in topology.links[link].resources or (-1 - link,):
                    taken.setdefault(lane, []).append(interval)
                if before is not None:
                    model.add(start >= before).only_enforce_if(uses)
                before = stop
            model.add(end >= before).only_enforce_if(uses)
        model.add_exactly_one(chosen)
    for intervals in taken.values():
        model.add_no_overlap(intervals)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value * tick_s


def _paths(topology: Topology, source: int, target: int) -> list[list[int]]:
    """All paths that visit no rank twice."""
    found, open_ = [], [([], [source])]
    while open_:
        links, ranks = open_.pop()
        if ranks[-1] == target:
            found.append(links)
            continue
        for number, link in enumerate(topology.links):
            if link.source == ranks[-1] and link.target not in ranks:
                open_.append(([*links, number], [*ranks, link.target]))
    return found
