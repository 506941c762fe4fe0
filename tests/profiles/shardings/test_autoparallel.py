"""What AutoParallel answered to its own questions, evaluated on the instances that ship."""

from __future__ import annotations

import numpy as np
import pytest

import gapless
from gapless.encodings.sharding.problem import Problem, find_instance
from gapless.options import SolveOptions
from gapless.profiles.shardings.autoparallel import SHIPPED, autoparallel_answer
from gapless.solution import Status

NANOSECONDS = 1e3
"""In a microsecond. Each cost is rounded by half of one, so that few of a thousand terms' errors stay."""
MOST_ROUNDED_US = 0.3
UNPAID_US = {"autoparallel-llama-12-2x2": 5146.615}
"""What AutoParallel's answer leaves unpaid: in its rows, equal layers may read what their neighbours don't write."""


@pytest.mark.parametrize("name", SHIPPED)
def test_its_choices_cost_here_what_its_solver_said_and_what_it_left_unpaid(name: str) -> None:
    instance, answer = find_instance(name), autoparallel_answer(name)
    known = instance.evaluate(np.array(answer.choices))
    assert instance.name == name
    assert not known.forbidden
    unpaid_us = known.cost / NANOSECONDS - answer.objective_us
    assert abs(unpaid_us - UNPAID_US.get(name, 0.0)) <= MOST_ROUNDED_US
    assert known.peak == instance.usage_limit  # its limit is tight: nothing more of a parameter would fit


@pytest.mark.parametrize("name", SHIPPED)
def test_only_parameters_use_memory_and_a_whole_one_is_too_much(name: str) -> None:
    instance, answer = find_instance(name), autoparallel_answer(name)
    held = {node for node, usage in enumerate(instance.usages) if usage.any()}
    live = {node for node, (start, end) in enumerate(instance.intervals.tolist()) if start < end}
    assert held == live
    assert set(instance.intervals[sorted(live)].reshape(-1).tolist()) == {0, 1}
    choices, first = np.array(answer.choices), min(held)
    choices[first] = int(instance.usages[first].argmax())
    assert instance.evaluate(choices).peak > instance.usage_limit


@pytest.mark.thorough
def test_its_plan_of_a_vit_is_proven_the_cheapest() -> None:
    instance = find_instance("autoparallel-vit-12-2x2")
    result = gapless.solve(Problem(instance), SolveOptions(threads=1))
    assert result.status is Status.OPTIMAL
    assert result.solution.objective == instance.evaluate(np.array(autoparallel_answer(instance.name).choices)).cost
