"""What running by a plan costs where nothing is recomputed: steps and planned calls beside eager's, in CPU time.

`pytest tests/benchmarks/test_torch_executor.py --tables FOLDER` trains eight models in turns on one thread, 16 times
each: eager, by a step that keeps all, and by `planned(model, "1.0x")`. The table has medians of eager's CPU
milliseconds, and of what a turn's plan took beside the same turn's eager step. On a busy machine these differ by some
per cent from run to run, so they are printed; what is asserted is that all gradients and buffers have eager's bits.

A second table has the predicted times of a plan that keeps all, and of one within less memory, beside measured ones.
"""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from executor_models import MODELS, made
from torch import nn
from torch_steps import keep_all

from gapless import SolveOptions
from gapless.question.entry import Entry
from gapless.system import find_system
from gapless.torch import planned
from gapless.torch.capture import capture
from gapless.torch.capture.timing import profile
from gapless.torch.run import StepPlan, run
from gapless.torch.run import plan as solved

WARM, TURNS = 3, 16
LIMIT_S = 20.0
SHARES = {"DLRM": 0.95, "ResNet-50": 0.8}
"""Of the memory of a plan that keeps all, where none was found in 0.6 of it."""

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.usefixtures("keep_tables")
def test_plans_that_keep_all_beside_eager(
    benchmark: Any, tables: ResultTables, limit_s: Callable[[float], float], sized: Any, name: str
) -> None:
    eager, arguments = made(name)
    stepped, called = copy.deepcopy(eager), copy.deepcopy(eager)
    step = run(keep_all(capture(stepped, arguments)), stepped, tolerance=None)
    options = SolveOptions(time_limit_s=limit_s(LIMIT_S), gap=0.005)
    planned(called, "1.0x", options=options, report=lambda _: None)
    trained: dict[str, tuple[nn.Module, Callable[[], object]]] = {
        "eager": (eager, lambda: eager(*arguments).backward()),
        "step": (stepped, lambda: step(*arguments)),
        "call": (called, lambda: called(*arguments).backward()),
    }
    taken: dict[str, list[float]] = {kind: [] for kind in trained}

    def turn(number: int) -> None:
        for kind, (model, train) in trained.items():
            model.zero_grad()
            torch.manual_seed(number)
            begin_s = time.process_time()
            train()
            taken[kind].append(time.process_time() - begin_s)

    def run_all() -> None:
        for number in range(WARM + sized(TURNS, 1)):
            turn(number)

    benchmark.pedantic(run_all, rounds=1, iterations=1)
    for model in (stepped, called):
        for its, own in zip(model.parameters(), eager.parameters(), strict=True):
            assert torch.equal(its.grad, own.grad)
        assert all(torch.equal(its, own) for its, own in zip(model.buffers(), eager.buffers(), strict=True))
    rows = {kind: each[WARM:] for kind, each in taken.items()}
    beside = {
        kind: round(statistics.median(one / own for one, own in zip(rows[kind], rows["eager"], strict=True)), 3)
        for kind in rows
    }
    tables.table("torch_executor", "A plan that keeps all beside eager, CPU time on one thread").add(
        name, model=name, eager_ms=round(1e3 * statistics.median(rows["eager"]), 1), step=beside["step"],
        call=beside["call"],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["GPT, width 128", "UNet", "ResNet-50", "scan", "DLRM"])
@pytest.mark.usefixtures("keep_tables")
def test_predicted_times_beside_measured(
    benchmark: Any, tables: ResultTables, limit_s: Callable[[float], float], sized: Any, name: str
) -> None:
    model, arguments = made(name)
    share = SHARES.get(name, 0.6)
    step = profile(capture(model, arguments))
    kept = keep_all(step)
    problem = Entry(find_system("monet")).problem(step.graph, budget=int(share * kept.peak_bytes))
    plans = {"keeps all": kept, "less": solved(step, problem, SolveOptions(time_limit_s=limit_s(LIMIT_S), gap=0.005))}
    models = {kind: copy.deepcopy(model) for kind in plans}
    trained = {kind: run(its, models[kind], tolerance=None) for kind, its in plans.items()}
    taken: dict[str, list[float]] = {kind: [] for kind in plans}

    def run_all() -> None:
        for number in range(WARM + sized(TURNS, 1)):
            for kind, train in trained.items():
                models[kind].zero_grad()
                torch.manual_seed(number)
                begin_s = time.thread_time()
                train(*arguments)
                taken[kind].append(time.thread_time() - begin_s)

    benchmark.pedantic(run_all, rounds=1, iterations=1)
    for its, own in zip(*(each.parameters() for each in models.values()), strict=True):
        assert torch.equal(its.grad, own.grad)
    predicted = {kind: _predicted_s(its) for kind, its in plans.items()}
    assert 0 < predicted["keeps all"] < predicted["less"] + 1e-3
    measured = {kind: statistics.median(each[WARM:]) for kind, each in taken.items()}
    tables.table("torch_predicted", "Predicted times of steps beside measured ones, CPU time on one thread").add(
        name, model=name, share=share,
        **{f"{kind.replace(' ', '_')}_{title}_ms": round(1e3 * times[kind], 1)
           for kind in plans for title, times in (("predicted", predicted), ("measured", measured))},
    )  # fmt: skip


def _predicted_s(plan: StepPlan) -> float:
    return float(plan.schedule.end_s.max())
