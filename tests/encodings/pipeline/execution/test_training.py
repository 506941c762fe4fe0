"""What a training through a plan says, and when it is held to be right. Ranks are in `tests/torch/pipeline`."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan, errors_table, gpt_profile
from pipeline_ranks import task_of

from gapless.encodings.pipeline.execution import training
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.question import RunQuestion
from gapless.errors import InputError
from gapless.torch.pipeline.training import Trained, Training, Variant

HOP = 4 * 16 * 32 * 4
"""Bytes of a step's four micro-batches in one direction."""
CODED = HOP // 2 + 2 * (4 * 2 * (16 + 32))
"""Two of them at rank 2."""


@pytest.fixture(scope="module")
def asked() -> tuple[object, ...]:
    extra = {"ranks": 2, "micro_batches": 4, "compression": errors_table("rank 2"), "error_budget": 1.0}
    plan = baseline_plan("1f1b", hop_modes={(0, 2): 1, (0, 3): 1}, profile=gpt_profile(2, (16, 32)), **extra)
    program = program_of(plan)
    task = task_of(program, 2, "compute")
    return program, task, Training(3, 0.1, warm_up=1), [Variant("plain"), Variant("plan", task.hop_modes)]


RUNS = [
    Trained("one process", (5.0, 4.0, 3.0)),
    Trained("plain", (5.0, 4.0, 3.0), (3 * HOP, 3 * HOP), (0, 0), (0, 0)),
    Trained("plan", (5.0, 4.5, 3.3), (3 * HOP, HOP + 2 * CODED), (0, 0), (0, 0)),
]


def test_a_training_is_right_where_losses_are_those_of_one_process_and_bytes_those_of_the_plan(asked) -> None:
    answer = training._answer(*asked, RUNS)  # noqa: SLF001
    assert answer.is_valid
    assert answer.data["bit_equal_losses"] == 3
    assert answer.data["runs"][2]["last_loss"] == 3.3
    assert any(line.split()[:3] == ["plan", "3.3000", "+10.00%"] for line in answer.text.splitlines())
    assert "as the plan and the compressors say" in answer.text


def test_losses_that_are_not_finite_are_none_in_json(asked) -> None:
    runs = [RUNS[0], RUNS[1], replace(RUNS[2], losses=(5.0, float("nan"), float("inf")))]
    answer = training._answer(*asked, runs)  # noqa: SLF001
    assert answer.data["runs"][2]["losses"] == [5.0, None, None]
    assert answer.data["runs"][2]["last_loss"] is None
    assert json.loads(json.dumps(answer.data, allow_nan=False))["steps"] == 3


@pytest.mark.parametrize(
    ("number", "changed"),
    [(1, {"losses": (5.0, 4.0, 3.0000001)}), (2, {"hop_bytes": (3 * HOP, 3 * HOP)}), (2, {"sum_bytes": (0, 4)})],
)
def test_another_loss_or_other_bytes_are_a_difference(asked, number: int, changed: dict[str, object]) -> None:
    runs = [replace(run, **changed) if at == number else run for at, run in enumerate(RUNS)]
    assert not training._answer(*asked, runs).is_valid  # noqa: SLF001


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"warm_up": 3}, "warm_up: must be less than steps, 3, got 3"),
        ({"error_propagation": True}, "error_propagation: a training runs with and without it; leave it out"),
    ],
)
def test_what_does_not_go_with_a_training_is_refused(fields: dict[str, object], message: str) -> None:
    question = RunQuestion(model="train:gpt", plan="plan.json", ranks=2, steps=3, **fields)
    with pytest.raises(InputError, match=message):
        training._check(question)  # noqa: SLF001
