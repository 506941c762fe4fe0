"""What AutoParallel answered to its own questions, evaluated on the instances that ship."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.encodings.sharding.problem import find_instance
from gapless.profiles.shardings.autoparallel import SHIPPED, autoparallel_answer

PICOSECONDS = 1e6
"""In a microsecond; each node and edge rounds by half of one."""


@pytest.mark.parametrize("name", SHIPPED)
def test_its_choices_cost_here_what_its_solver_said_within_its_memory(name: str) -> None:
    instance, answer = find_instance(name), autoparallel_answer(name)
    known = instance.evaluate(np.array(answer.choices))
    terms = len(instance.costs) + len(instance.edges)
    assert not known.forbidden
    assert abs(known.cost - answer.objective_us * PICOSECONDS) <= terms / 2
    assert known.peak == instance.usage_limit  # its limit is tight: nothing more of a parameter would fit


@pytest.mark.parametrize("name", SHIPPED)
def test_only_parameters_use_memory_and_one_share_less_is_too_much_elsewhere(name: str) -> None:
    instance, answer = find_instance(name), autoparallel_answer(name)
    assert instance.name == name
    held = [node for node, usage in enumerate(instance.usages) if usage.any()]
    assert all(
        tuple(instance.intervals[node]) == ((0, 1) if node in held else (0, 0)) for node in range(len(instance.costs))
    )
    whole = np.array(answer.choices)
    whole[held[0]] = int(instance.usages[held[0]].argmax())
    assert instance.evaluate(whole).peak > instance.usage_limit
