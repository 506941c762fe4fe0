"""The search for false proofs: what backends claim of random models, against exact methods and against each other.

`nice pytest tests/benchmarks/test_false_proofs.py -s --cases 500` prints how many claims there were and how many were
false. Fusions are in units from 100 ns to days and from bytes to terabytes; partitions have whole costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from bagpipe_batches import random_batch
from fusion_instances import KINDS, brute_force_s, random_instance, scaled_instance

from gapless.encodings.bagpipe import capacities, cost_matrix
from gapless.encodings.bagpipe.partition import milp as partition_milp
from gapless.encodings.bagpipe.partition.batch import Sharing
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.encodings.cupcake.methods import milp as fusion_milp
from gapless.encodings.cupcake.methods.baselines import buckets
from gapless.model import Model
from gapless.options import SolveOptions
from gapless.profiles.gradients.fusion import Costs, timeline
from gapless.solution import Status
from gapless.solvers.proofs import solve_proven
from gapless.solvers.registry import solve_model

HIGHS = {"highs": SolveOptions(threads=1), "without presolve": SolveOptions(threads=1, presolve=False)}


@pytest.fixture
def cases(pytestconfig: pytest.Config) -> int:
    asked: int = pytestconfig.getoption("--cases")
    return asked


def _claims(model: Model, solvers: dict[str, Callable[[Model], object]]) -> dict[str, float]:
    """The objective that each solver claims to be optimal, of those that claim one."""
    found = {name: solve(model) for name, solve in solvers.items()}
    return {name: answer.objective for name, answer in found.items() if answer.status is Status.OPTIMAL}  # type: ignore[attr-defined]


def _print_counts(what: str, claimed: Counter[str], false: Counter[str], cases: int) -> None:
    words = ", ".join(f"{name} {false[name]} false of {count}" for name, count in claimed.items())
    print(f"\n{what}, {cases} cases: {words}")


@pytest.mark.parametrize("unit", ["near 1", "seconds"])
@pytest.mark.parametrize("kind", KINDS)
def test_fusions(kind: str, unit: str, cases: int) -> None:
    """Against brute force: with times near 1, as they are solved, and in seconds, as they would be without scaling."""
    rng = np.random.default_rng([KINDS.index(kind), cases])
    claimed, false = Counter[str](), Counter[str]()
    solvers: dict[str, Callable[[Model], object]] = {
        name: lambda model, options=options: solve_model(model, options)
        for name, options in HIGHS.items()  # type: ignore[misc]
    }
    solvers["proven"] = lambda model: solve_proven(model, SolveOptions(threads=1))
    for _ in range(cases):
        duration, size = 10 ** rng.uniform(-7, 5), 10 ** rng.uniform(-2, 5)
        profile = scaled_instance(random_instance(rng, kind, most=12, least=3), duration, size)
        costs = Costs.of(profile)
        unit_s = timeline(costs, buckets(costs).fusion).end_s if unit == "near 1" else 1.0
        encoding = fusion_milp.encode(costs, unit_s)
        optimum_s = brute_force_s(profile) - profile.forward_s
        for name, objective in _claims(encoding.model, solvers).items():
            claimed[name] += 1
            false[name] += abs(objective * unit_s - optimum_s) > 1e-5 * optimum_s
    _print_counts(f"fusions, {kind}, {unit}", claimed, false, cases)
    assert unit == "seconds" or not false["proven"]


@pytest.mark.parametrize("objective", ["paper", "fetches", "max-load"])
def test_partitions(objective: str, cases: int) -> None:
    """HiGHS with and without presolve, CP-SAT, and for the paper's objective its relaxation and our own method."""
    rng = np.random.default_rng([7, cases])
    claimed, false = Counter[str](), Counter[str]()
    solvers: dict[str, Callable[[Model], object]] = {
        name: lambda model, options=options: solve_model(model, options)
        for name, options in HIGHS.items()  # type: ignore[misc]
    }
    solvers["cpsat"] = lambda model: solve_model(model, SolveOptions(threads=1), "cpsat")
    encode = {"fetches": partition_milp.encode_fetches, "max-load": partition_milp.encode_max_load}
    for _ in range(cases):
        trainers, examples = int(rng.integers(2, 5)), int(rng.integers(3, 9))
        batch = random_batch(rng, examples, trainers, tables=int(rng.integers(1, 4)), ids=int(rng.integers(2, 9)))
        places = capacities(examples, trainers)
        if objective == "paper":
            cost = cost_matrix(batch)
            found = _claims(partition_milp.encode(cost, places).model, solvers)
            relaxed = partition_milp.encode(cost, places, relaxed=True).model
            found |= {"lp": solve_model(relaxed).objective, "transport": float(transport(cost, places).cost)}  # type: ignore[dict-item]
        else:
            found = _claims(encode[objective](Sharing.of(batch), places).model, solvers)
        for name, value in found.items():
            claimed[name] += 1
            false[name] += abs(value - min(found.values())) > 1e-5
    _print_counts(f"partitions, {objective}", claimed, false, cases)
    assert not false.total()
