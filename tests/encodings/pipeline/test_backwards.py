"""Backwards split or whole: whichever takes less of what a profile has measured, and a bound on both."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from examples import share
from tiny_pipelines import best_cost_s

from gapless.checker import check
from gapless.cli.main import main
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.policies import choices_of
from gapless.encodings.pipeline.cut.search import CutSearch
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import EvenHops, Problem, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.solve import planned
from gapless.options import SolveOptions
from gapless.profiles.pipelines.profile import PipelineProfile, write_pipeline_profile
from gapless.system import Plan

ONE = SolveOptions(threads=1)


def measured(seed: int, low: float, high: float, layers: int = 4) -> PipelineProfile:
    """Layers whose gradients as one op take so many times what they do apart, drawn for each."""
    rng = np.random.default_rng(seed)
    times, sizes = [rng.integers(1, 9, layers).astype(float) for _ in range(3)], rng.integers(1, 4, layers)
    whole_s = np.rint(rng.uniform(low, high, layers) * (times[1] + times[2]))
    return PipelineProfile("tiny", tuple("abcdefgh"[:layers]), *times, sizes, 2 * sizes, 3 * sizes,
                           np.ones(layers, dtype=np.int64), whole_backward_s=whole_s)  # fmt: skip


def solved(question: Problem, parameters: Parameters | None = None) -> Plan:
    plan = planned(question, ONE, parameters)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    return plan


@pytest.mark.parametrize("seed", range(share(24)))
def test_the_best_of_all_orders_cuts_and_shapes_is_found_and_none_is_below_a_bound(seed: int) -> None:
    how: dict[str, Any] = {
        "backward": "auto",
        "hops": EvenHops(float(seed % 3)),
        "minimise": ("makespan", "span")[seed % 2],
    }
    recomputation = ("none", "auto", "all")[seed // 2 % 3]
    question = Problem(measured(seed, 0.6, 1.1), 2, 2, in_flight=1 + seed % 2, recomputation=recomputation, **how)
    best_s, search = np.inf, CutSearch(question, 1000)
    for cut in combinations(range(1, 4), 1):
        for choice in choices_of(question, stages_of(question, cut), cut, 32):
            recomputes = any(policy.recomputes for policy in choice)
            shapes = question.shapes(recomputes)
            assert shapes == ((False,) if recomputes else (True, False))
            best_s = min(best_s, *(best_cost_s(stages_of(question, cut, choice, splits)) for splits in shapes))
    next(iter(search))
    assert search.bound <= best_s * (1 + 1e-9)
    plan = solved(question, Parameters(heuristic_ops=500, quick_ops=200))
    assert plan.solution.objective == pytest.approx(best_s)
    assert all(one.value <= best_s * (1 + 1e-9) for one in plan.solution.bounds)


def test_what_is_cheap_as_one_op_stays_one_and_what_costs_nothing_to_split_is_split() -> None:
    """On four ranks weight gradients fill the waits, unless an op of both takes half as long."""
    for ratio, shape, letters in ((0.5, "whole", "FB"), (1.0, "split", "FIW")):
        question = Problem(measured(1, ratio, ratio, 8), 4, 8, backward="auto")
        plan = solved(question)
        assert plan.details["backwards"] == shape
        assert isinstance(plan.decision, PipelineDecision)
        assert {action.kind for row in plan.decision.actions for action in row} == set(letters)
        for how in ("split", "whole"):
            assert plan.solution.objective <= solved(replace(question, backward=how)).solution.objective * (1 + 1e-9)


def test_a_schedule_of_whole_backwards_goes_apart_where_the_profile_measured_them_as_one_op() -> None:
    question = Problem(measured(1, 0.5, 0.5, 8), 4, 8, method="1f1b")
    apart, whole, auto = (solved(replace(question, backward=how)) for how in ("split", "whole", "auto"))
    assert isinstance(apart.decision, PipelineDecision)
    assert {action.kind for row in apart.decision.actions for action in row} == set("FIW")
    assert auto.solution.objective == whole.solution.objective < apart.solution.objective


def test_without_a_measured_one_backwards_are_split_and_that_is_said(tmp_path: Any, capsys: Any) -> None:
    profile = replace(measured(1, 1.0, 1.0), whole_backward_s=None)
    assert problem(profile, ranks=2, micro_batches=4, backward="auto").shapes() == (True,)
    write_pipeline_profile(tmp_path / "p.json", profile)
    line = f"solve pipeline --profile {tmp_path / 'p.json'} --ranks 2 --micro-batches 4 --backward auto"
    assert main(line.split()) == 0
    assert "what it costs to split backwards wasn't measured" in "".join(capsys.readouterr())
