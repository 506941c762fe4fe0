"""Meta's AutoParallel beside sharding: its questions under its own costs, and its layouts under ours.

What AutoParallel answered ships with gapless, and so do its questions; it isn't run here. Run with
`pytest tests/benchmarks/test_sharding_autoparallel.py --tables FOLDER`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from extras import needs_transformers
from result_tables import ResultTables
from sharding_peer import instance_of, parameters_of, peer_tables, spending, with_layouts

import gapless
from gapless.encodings.sharding.instances.instance import Instance
from gapless.encodings.sharding.instances.parameter_memory import parameter_memory_plan
from gapless.encodings.sharding.problem import Problem, find_instance
from gapless.options import SolveOptions
from gapless.profiles.shardings.autoparallel import SHIPPED, autoparallel_answer
from gapless.solution import Status

THEIRS = "AutoParallel's questions under its own costs: microseconds, and processor seconds"
OURS = "AutoParallel's layouts under our costs, completed at least cost: a step, and the peak of a device"
LIMIT_S, LAYERS, MESH = 120.0, 12, (2, 2)
MEMORY_BYTES = 80 * 10**9
US, MS = 1e3, 1e6
"""Nanoseconds in a microsecond and in a millisecond."""
MB = 1e6


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.usefixtures("keep_tables")
def test_by_its_own_costs_nothing_is_better_than_ours_which_is_proven(
    name: str, tables: ResultTables, limit_s: Callable[[float], float], request: pytest.FixtureRequest
) -> None:
    answer, instance = autoparallel_answer(name), find_instance(name)
    with spending() as spent:
        result = gapless.solve(Problem(instance), SolveOptions(time_limit_s=limit_s(LIMIT_S), threads=1))
    solution, theirs = result.solution, instance.evaluate(np.array(answer.choices)).cost
    assert result.valid
    assert solution.objective is not None
    assert solution.bound is not None
    assert solution.bound <= theirs
    if not request.config.getoption("--shortest"):
        assert solution.status is Status.OPTIMAL
        assert solution.objective <= theirs
    tables.table("sharding_autoparallel", THEIRS).add(
        name, question=name, binaries=answer.binaries, said=f"{answer.objective_us:,.1f}",
        AutoParallel=f"{theirs / US:,.1f}", gapless=f"{solution.objective / US:,.1f}",
        bound=f"{solution.bound / US:,.1f}", building_cpu_s=round(answer.options_cpu_s + answer.model_cpu_s, 1),
        CBC_cpu_s=round(answer.solver_cpu_s, 1), gapless_cpu_s=round(spent.cpu_s, 1),
    )  # fmt: skip


@needs_transformers
@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.usefixtures("keep_tables")
def test_in_the_memory_of_its_layouts_ours_take_no_longer(
    name: str, tables: ResultTables, limit_s: Callable[[float], float], sized: Callable[[int, int], int]
) -> None:
    from gapless.torch.sharding.baselines import baselines

    answer, layers = autoparallel_answer(name), sized(LAYERS, 2)
    model = peer_tables(name, layers, MESH)
    free = instance_of(model, name, MEMORY_BYTES)
    options = SolveOptions(time_limit_s=limit_s(LIMIT_S), threads=1)

    def best(instance: Instance) -> tuple[np.ndarray, float]:
        result = gapless.solve(Problem(instance), options)
        assert result.solution.bound is not None
        return np.array(result.decision.choices), result.solution.bound

    found: dict[str, tuple[np.ndarray, float | None]] = {}
    found["parameters"] = best(with_layouts(model, free, answer, 0))
    found["parameters, products"] = best(with_layouts(model, free, answer, len(answer.products) * layers // LAYERS))
    relaxed = parameter_memory_plan(free, parameters_of(model), Fraction(1, 4), options)
    assert relaxed is not None
    found["its rule for memory"] = relaxed.choices, relaxed.bound
    found |= {kind: (choices, None) for kind, choices in baselines(model).items()}
    peaks = {kind: free.peak(choices) for kind, (choices, _) in found.items()}
    found["gapless, that peak"] = best(replace(free, usage_limit=peaks["parameters, products"]))
    costs = {kind: free.evaluate(choices).cost for kind, (choices, _) in found.items()}
    for kind, (choices, bound) in found.items():
        tables.table("sharding_autoparallel_ours", OURS).add(
            f"{name} {kind}", question=name, layouts=kind, step=f"{costs[kind] / MS:.3f} ms",
            bound=None if bound is None else f"{bound / MS:.3f} ms", peak=f"{free.peak(choices) / MB:.0f} MB",
        )  # fmt: skip
    assert costs["gapless, that peak"] <= costs["parameters, products"]
