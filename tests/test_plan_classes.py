"""Of every system: the widest class that it has a bound for is the question, and which narrower ones it may name."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_plans import SYSTEMS, small_plan

from gapless.result import load
from gapless.solution import PlanClass, Status

NARROWER = {
    "taccl": {PlanClass.SKETCH, PlanClass.CHUNKS, PlanClass.ALONE},
    "pipeline": {PlanClass.PLACEMENT, PlanClass.CUT},
    "bagpipe": {PlanClass.HISTORY},
    "monet": {PlanClass.METHOD},
}
"""The other systems keep their search to no part of the plans that a question allows."""


@pytest.mark.thorough(but=("pipeline", "cupcake", "ranks", "oktopk"))
@pytest.mark.parametrize("system", SYSTEMS)
def test_the_first_bound_is_of_the_question_and_the_others_of_classes_that_the_system_has(
    system: str, tmp_path: Path
) -> None:
    result = load(small_plan(system, tmp_path))
    question, *narrower = result.solution.bounds
    assert question.plans is PlanClass.QUESTION
    assert question.value == result.solution.bound
    assert question.source
    assert {one.plans for one in narrower} <= NARROWER.get(system, set())
    assert all(one.name for one in narrower)
    assert (result.status is Status.OPTIMAL) == (result.solution.proven_class is PlanClass.QUESTION)
