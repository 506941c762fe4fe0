"""Random small routing questions, from bytes to terabytes and from nanoseconds to seconds; and what solvers say."""

from __future__ import annotations

import random

import numpy as np

from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.milp.routers import router_of
from gapless.options import SolveOptions
from gapless.solvers.registry import solve_model
from gapless.topologies.topology import Link, Topology

COLLECTIVES = ("allgather", "alltoall", "broadcast", "reducescatter", "allreduce")


def random_question(seed: int) -> Chunked:
    """A ring of 3 to 5 ranks, with some more links, some of which share a port."""
    chance = random.Random(seed)
    count = chance.randint(3, 5)
    ring = [(rank, (rank + 1) % count) for rank in range(count)]
    others = [(a, b) for a in range(count) for b in range(count) if a != b and (a, b) not in ring]
    pairs = ring + chance.sample(others, chance.randint(0, len(others)))
    alpha_s, size_bytes = 10.0 ** chance.uniform(-9, 0), int(10.0 ** chance.uniform(0, 12))
    beta_s = alpha_s * 10.0 ** chance.uniform(-2, 2) / size_bytes
    links = tuple(
        Link(
            source, target, alpha_s * chance.choice([0.3, 1.0, 1.0, 7.0]), beta_s * chance.choice([0.5, 1.0, 1.0, 4.0]),
            (chance.randrange(2),) if chance.random() < 0.3 else (),
        )
        for source, target in pairs
    )  # fmt: skip
    topology = Topology("random", (0,) * count, links, ("port0", "port1"))
    return Chunked.of(topology, chance.choice(COLLECTIVES), size_bytes, chunks_per_rank=None)


def optima_s(problem: Chunked, solver: str = "highs", presolve: bool = True) -> list[float]:
    """The least time of each phase's routing, as one solver has it; none is left open."""
    found = []
    for phase in problem.phases:
        router = router_of(phase.problem, lambda model: solve_model(model, SolveOptions()))
        options = SolveOptions(threads=1, presolve=presolve)
        solution = solve_model(router.least_time_model(), options, solver)
        assert solution.objective is not None
        assert solution.status.value == "optimal", (solver, presolve, solution.status)
        found.append(float(np.round(solution.objective, 9)) * router.unit_s)
    return found
