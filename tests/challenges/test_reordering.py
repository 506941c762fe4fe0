"""The events of a plan in other orders: never worse than the plan, valid, and better where the order was bad."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_plans import small_plan

from gapless.challenges.reordering import _Table, reordered
from gapless.checker import check
from gapless.checker.program import read_program
from gapless.checker.report import Findings
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.result import read_saved

SYSTEMS = ("taccl", "monet", "cupcake", "oktopk", "pipeline", "chai", "ranks")


def length_s(schedule: Schedule) -> float:
    return float(schedule.end_s.max())


def schedule_of(system: str, folder: Path) -> Schedule:
    return read_saved(small_plan(system, folder)).schedule


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_best_order_is_valid_and_no_longer_than_the_plan(system: str, tmp_path: Path) -> None:
    schedule = schedule_of(system, tmp_path)
    found = reordered(schedule, SolveOptions(), 5 * len(schedule))
    assert found is not None
    assert check(found).valid
    assert length_s(found) <= length_s(schedule) * (1 + 1e-9)


@pytest.mark.parametrize("system", ["taccl", "pipeline"])
def test_a_bad_order_is_made_better(system: str, tmp_path: Path) -> None:
    schedule = schedule_of(system, tmp_path)
    program = read_program(schedule, Findings())
    chance, bad = np.random.default_rng(1), [schedule]
    for _ in range(20):
        start_s = _Table.of(program).earliest(chance.uniform(size=len(schedule)).tolist())
        made = replace(schedule, start_s=start_s, end_s=start_s + program.least_s)
        if check(made).valid:
            bad.append(made)
    worst = max(bad, key=length_s)
    assert length_s(worst) > 1.05 * length_s(schedule)
    found = reordered(worst, SolveOptions(), 100 * len(schedule))
    assert found is not None
    assert length_s(found) < 0.99 * length_s(worst)


def test_an_order_is_the_same_twice_and_depends_on_the_seed_alone(tmp_path: Path) -> None:
    schedule = schedule_of("taccl", tmp_path)
    one, other = (reordered(schedule, SolveOptions(seed=3), 2000) for _ in range(2))
    assert one is not None
    assert other is not None
    assert np.array_equal(one.start_s, other.start_s)


def test_a_schedule_that_names_what_is_not_there_has_no_other_order(tmp_path: Path) -> None:
    schedule = schedule_of("pipeline", tmp_path)
    assert reordered(replace(schedule, place=schedule.place + 1000), SolveOptions(), 1000) is None
