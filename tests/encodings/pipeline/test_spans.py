"""The longest span of a rank, minimised: the schedule shows what is claimed, and steps can follow so closely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gapless.checker import check
from gapless.cli.main import main
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.solve import solve
from gapless.errors import InputError
from gapless.ir.schedule import Schedule
from gapless.options import SolveOptions
from gapless.profiles.pipelines.compression import CompressionMode, CompressionTable
from gapless.profiles.pipelines.profile import PipelineProfile
from gapless.solution import PROVEN_GAP, PlanClass
from gapless.system import Plan

QUICK = Parameters(exact_ops=1, rounds=4, quick_ops=2000, heuristic_ops=4000)


def asked(**values: Any) -> Problem:
    how = {"profile": "uniform:f=10,b=12,w=8", "ranks": 4, "micro_batches": 8, "hop": 2.0, "minimise": "span"}
    return problem(**{**how, **values})


def solved(question: Problem, parameters: Parameters | None = None) -> Plan:
    plan = solve(question, SolveOptions(threads=1), parameters)
    assert plan.schedule is not None
    assert plan.solution.bound is not None
    assert check(plan.schedule).valid
    assert plan.solution.unit == "span_s"
    assert plan.schedule.span_s == pytest.approx(plan.solution.objective)
    assert all(one.value <= plan.schedule.span_s * (1 + 1e-9) for one in plan.solution.bounds)
    return plan


def overlaps(schedule: Schedule, period_s: float) -> bool:
    """Whether two steps that start so long after one another want an engine or a link at once, somewhere."""
    for machine in set(zip(schedule.is_transfer.tolist(), schedule.place.tolist(), strict=True)):
        own = (schedule.is_transfer == machine[0]) & (schedule.place == machine[1])
        if schedule.end_s[own].max() > schedule.start_s[own].min() + period_s * (1 + 1e-9):
            return True
    return False


@pytest.mark.thorough("4-306-306")
@pytest.mark.parametrize(("in_flight", "makespan_s", "span_s"), [(4, 306, 306), (8, 276, 262)])
def test_the_least_span_is_proven_for_the_placement(in_flight: int, makespan_s: float, span_s: float) -> None:
    plan = solved(asked(in_flight=in_flight))
    assert plan.solution.objective == pytest.approx(span_s)
    assert plan.solution.proven_class is PlanClass.PLACEMENT
    assert solve(
        asked(in_flight=in_flight, minimise="makespan"), SolveOptions(threads=1)
    ).solution.objective == pytest.approx(makespan_s)


@pytest.mark.thorough(but=["[3]"])
@pytest.mark.parametrize("seed", range(6))
def test_steps_follow_one_another_after_the_span_that_is_claimed(seed: int) -> None:
    """With sums among replicas, a shared embedding, sends that block, and messages that take longer than ops."""
    rng = np.random.default_rng(seed)
    times, sizes = [rng.integers(2, 12, 8).astype(float) for _ in range(3)], rng.integers(4, 40, 8)
    profile = PipelineProfile("layers", tuple("abcdefgh"), *times, sizes, 2 * sizes, 5 * sizes,
                              rng.integers(1, 9, 8), embedding_bytes=4)  # fmt: skip
    placed = {"placement": "v", "ranks": 2} if seed % 2 else {"ranks": 3}
    plan = solved(asked(profile=profile, micro_batches=4, hop=None, bandwidth=1 + seed, replicas=2, in_flight=3,
                        blocking_sends=seed % 3 == 0, cut="even", **placed), QUICK)  # fmt: skip
    assert plan.schedule is not None
    assert not overlaps(plan.schedule, plan.schedule.span_s)
    assert plan.solution.bounds[-1].value >= plan.schedule.span_s * 0.7


@pytest.mark.thorough
def test_a_span_is_never_longer_than_the_step_of_a_plan_with_the_shortest_one() -> None:
    plan, shortest = solved(asked(in_flight=6)), solve(asked(in_flight=6, minimise="makespan"), SolveOptions(threads=1))
    assert plan.schedule is not None
    assert shortest.schedule is not None
    assert plan.schedule.span_s <= shortest.schedule.span_s * (1 + PROVEN_GAP)
    assert float(plan.schedule.end_s.max()) >= float(shortest.schedule.end_s.max()) * (1 - PROVEN_GAP)


@pytest.mark.thorough
def test_compressed_gradients_shorten_spans_within_the_budget() -> None:
    """Two thirds of each gradient's message are saved, and the ledger has what that spoils."""
    error = np.array([0.1, 0.1])
    table = CompressionTable(
        "made up", np.array([0.0, 1.0]), (CompressionMode("third", 1 / 3, 0, 0.0, 0.0, error, error),)
    )
    plain, moded = (
        solved(asked(hop=30.0, in_flight=4, cut="even", compression=table, error_budget=budget), QUICK)
        for budget in (0.0, 1.0)
    )
    assert plain.solution.objective is not None
    assert moded.solution.objective is not None
    assert moded.solution.objective < plain.solution.objective
    assert 0 < moded.details["error"] <= 1.0
    assert moded.solution.bounds[-1].value < plain.solution.bounds[-1].value


def test_what_is_minimised_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    line = "solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 4 --micro-batches 8 --hop 2 --in-flight 8"
    assert main([*line.split(), "--minimise", "span"]) == 0
    said = capsys.readouterr().out
    assert "objective span   262 s" in said
    assert "262 s: optimal among plans with linear placement" in said


def test_what_goes_without_spans_is_refused() -> None:
    with pytest.raises(InputError, match=r"message_memory: must be free with minimise span, .* got counted"):
        asked(memory="8GB")
    assert asked(memory="8GB", message_memory="free").by_span
    with pytest.raises(InputError, match="minimise: must be one of makespan, span"):
        asked(minimise="energy")
