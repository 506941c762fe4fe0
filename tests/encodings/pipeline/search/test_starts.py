"""Starts: a plan is an order of every question that it answers, and what is found from it is never slower."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_plans import errors_table, gpt_profile
from pipeline_sweeps import FEW

import gapless
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.start import Start, start_of
from gapless.encodings.pipeline.search.starts import started
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.result import Result

UNIFORM: dict[str, Any] = {"profile": "uniform:f=10,b=12,w=8", "ranks": 2, "micro_batches": 4, "hop": 2}
GPT = {**UNIFORM, "profile": gpt_profile(3)}
ASKED: dict[str, dict[str, Any]] = {
    "line": {**GPT, "in_flight": 2},
    "bytes": {**GPT, "memory": 60_000},
    "whole": {**GPT, "backward": "whole", "in_flight": 2},
    "schedule": {**GPT, "method": "1f1b", "in_flight": 2},
    "v": {**UNIFORM, "placement": "v", "in_flight": 2},
    "copies": {**UNIFORM, "placement": "bidirectional", "in_flight": 2},
    "recomputed": {**GPT, "recomputation": "auto", "memory": 60_000},
    "policies": {**GPT, "recomputation": "curve", "backward": "whole", "memory": 30_000},
    "slices": {**GPT, "slices": 2, "in_flight": 2},
    "work": {**GPT, "work": (1, 1.5, 0.7, 1.2), "in_flight": 2},
    "cells": {**UNIFORM, "placement": "v", "overlap_cost": 0.8, "in_flight": 2},
    "spans": {**GPT, "minimise": "span", "in_flight": 2},
    "queues": {**UNIFORM, "placement": "v", "hop": 25},
    "compressed": {
        **GPT, "hop": None, "bandwidth": 400.0, "replicas": 2, "compression": errors_table("half", "rank 4"),
        "error_budget": 0.02,
    },
}  # fmt: skip
WEAK = replace(FEW, methods=MethodChoice(only=("gpipe",)))
SOME = ("v",)


def solved(asked: Problem, parameters: object = FEW) -> Result:
    return gapless.solve(asked, parameters=parameters)


@pytest.mark.thorough(but=[f"[{name}]" for name in SOME])
@pytest.mark.parametrize("name", ASKED)
def test_a_plan_is_an_order_of_its_own_question(name: str) -> None:
    question = problem(**ASKED[name])
    result = solved(question)
    assert result.report is not None
    made = started(question, start_of(result))
    assert made is not None
    _, found = made
    assert found.timeline.cost_s == pytest.approx(result.solution.objective)
    assert PipelineDecision.of_candidate(found, question.mode_names) == result.decision


@pytest.mark.thorough(but=["[line]"])
@pytest.mark.parametrize("name", ASKED)
def test_what_is_found_from_a_plan_is_never_slower(name: str) -> None:
    asked = dict(ASKED[name])
    first = solved(problem(**asked))
    for limit in {"in_flight", "memory"} & set(asked):
        asked[limit] += 1
    then = solved(problem(**{**asked, "from_plan": first}), WEAK)
    assert then.valid
    assert first.solution.objective is not None
    assert then.solution.objective is not None
    assert then.solution.objective <= first.solution.objective * (1 + 1e-9)


@pytest.fixture(scope="module")
def plain() -> Start:
    return start_of(solved(problem(**{**GPT, "cut": (2,)}), WEAK))


@pytest.mark.thorough
def test_a_start_can_be_searched_in_any_placement() -> None:
    first = solved(problem(**{**UNIFORM, "placement": "v", "in_flight": 2}))
    asked = {**UNIFORM, "placement": "auto", "in_flight": 2, "from_plan": first}
    then = solved(problem(**asked), replace(FEW, refined_placements=1))
    assert then.solution.objective is not None
    assert first.solution.objective is not None
    assert then.solution.objective <= first.solution.objective


@pytest.mark.parametrize(
    "other",
    [{"micro_batches": 5}, {"ranks": 3}, {"placement": "v"}, {"cut": (1,)}, {"recomputation": "all"}],
    ids=str,
)
def test_a_plan_of_another_question_is_no_start(other: dict[str, Any], plain: Start) -> None:
    assert started(problem(**{**GPT, **other}), plain) is None


def test_a_plan_that_needs_more_memory_is_no_start() -> None:
    result = solved(problem(**GPT), WEAK)
    assert started(problem(**{**GPT, "in_flight": 1}), start_of(result)) is None


def test_a_file_of_another_system_is_refused_in_a_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    gapless.taccl.solve("ring:4", collective="allgather", size="1KB").save(path)
    with pytest.raises(InputError, match=r"plan\.json: must be a plan of pipeline, got one of taccl$"):
        problem(**{**GPT, "from_plan": str(path)})
    with pytest.raises(InputError, match="from_plan: must be"):
        problem(**{**GPT, "from_plan": 5})
