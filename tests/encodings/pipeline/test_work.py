"""Micro-batches whose computing takes unequal times: how they are fed, and bounds on every order of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from examples import share
from ortools.sat.python import cp_model

import gapless
from gapless.checker import check
from gapless.cli.main import main
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem, problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.solve import solve
from gapless.options import SolveOptions

ONE = SolveOptions(threads=1)
FEW = Parameters(heuristic_ops=4000, quick_ops=2000, exact_steps=50, rounds=2, work_ops=8000)
F, B, W = range(3)


def least_step_s(stages: Stages, work: tuple[float, ...]) -> float:
    """By a model of its own, in which micro-batches may overtake one another everywhere; times are whole."""
    model, columns = cp_model.CpModel(), stages.count * len(work)
    most = int(3 * columns * max(work) * (stages.compute_s.max() + stages.forward_hop_s.max(initial=0.0) + 1))
    step, starts, ends = model.new_int_var(0, most, "step"), {}, {}
    ops = [[] for _ in range(stages.ranks)]
    kept: list[list[Any]] = [[] for _ in range(stages.ranks)]
    links: dict[tuple[int, int], list[Any]] = {}
    each_s = np.stack([stages.forward_s, stages.backward_s, stages.weight_s]).astype(int)
    for (kind, stage), m in ((op, m) for op in np.ndindex(3, stages.count) for m in range(len(work))):
        own = int(each_s[kind, stage] * work[m])
        start = starts[kind, stage, m] = model.new_int_var(0, most, "")
        ends[kind, stage, m] = start + own
        ops[stages.rank[stage]].append(model.new_interval_var(start, own, start + own, ""))
        model.add(step >= start + own)
    for stage, m in np.ndindex(stages.count, len(work)):
        model.add(starts[B, stage, m] >= ends[F, stage, m])
        model.add(starts[W, stage, m] >= ends[B, stage, m])
        begin, end = starts[F, stage, m], ends[W, stage, m]
        held = model.new_int_var(0, most, "")
        kept[stages.rank[stage]].append(
            (model.new_interval_var(begin, held, end, ""), int(stages.stash_bytes[stage] // 10**6))
        )
        for kind, other, hop in ((F, stage + 1, stage), (B, stage - 1, stage - 1)):
            if 0 <= other < stages.count:
                late = int(stages.forward_hop_s[hop])
                sent = model.new_int_var(0, most, "")
                model.add(sent >= ends[kind, stage, m])
                model.add(starts[kind, other, m] >= sent + late)
                link = int(stages.rank[stage]), int(stages.rank[other])
                if link[0] != link[1]:
                    links.setdefault(link, []).append(model.new_interval_var(sent, late, sent + late, ""))
    for rank, own in enumerate(kept):
        model.add_no_overlap(ops[rank])
        if np.isfinite(stages.room_bytes[rank]):
            model.add_cumulative(
                [one for one, _ in own], [size for _, size in own], int(stages.room_bytes[rank] // 10**6)
            )
    for intervals in links.values():
        model.add_no_overlap(intervals)
    model.minimize(step)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    assert solver.solve(model) == cp_model.OPTIMAL
    return solver.objective_value


def drawn(seed: int) -> Problem:
    random = np.random.default_rng(seed)
    ranks = int(random.integers(2, 4))
    micro_batches = int(random.integers(2, 5 if ranks == 2 else 4))
    placement = ("linear", "v")[int(ranks == 2 and seed % 3 == 0)]
    return problem(
        "uniform:f=6,b=8,w=4", ranks=ranks, micro_batches=micro_batches, placement=placement,
        work=tuple(random.integers(1, 4, micro_batches).tolist()), hop=float(random.integers(0, 4)),
        in_flight=int(random.integers(1, micro_batches + 1)),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(share(60)))
def test_no_bound_is_above_the_best_of_all_orders_and_no_plan_is_far_above_it(seed: int) -> None:
    question = drawn(seed)
    stages = stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
    best_s = least_step_s(stages, question.work)
    plan = solve(question, ONE, FEW)
    assert plan.schedule is not None
    assert check(plan.schedule).valid
    assert plan.solution.objective is not None
    assert best_s * (1 - 1e-9) <= plan.solution.objective <= 1.05 * best_s
    assert all(one.value <= best_s * (1 + 1e-9) for one in plan.solution.bounds)


def test_with_room_for_one_micro_batch_all_of_them_take_turns() -> None:
    """3 ranks there and back, and the first rank's weight gradient, one after the other: proven."""
    plan = solve(problem("uniform:f=3,b=4,w=2", ranks=3, micro_batches=4, in_flight=1, hop=1.0, work=(4, 2, 4, 3)), ONE)
    assert plan.solution.objective == (4 + 2 + 4 + 3) * (3 * 7 + 2) + 4 * 4
    assert plan.solution.bounds[-1].value == pytest.approx(plan.solution.objective)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_where_memory_is_not_limited_bounds_are_of_computing() -> None:
    plan = solve(problem("uniform:f=5,b=6,w=4", ranks=1, micro_batches=3, work=(1, 3, 2)), ONE, FEW)
    assert plan.solution.objective == plan.solution.bound == 6 * (5 + 6 + 4)


@pytest.mark.thorough
def test_equal_work_is_no_other_question_than_longer_ops() -> None:
    how: dict[str, Any] = {"ranks": 3, "micro_batches": 4, "hop": 2.0, "in_flight": 3}
    found = solve(problem("uniform:f=5,b=6,w=4", work=(2, 2, 2, 2), **how), ONE)
    alike = solve(problem("uniform:f=10,b=12,w=8", **how), ONE)
    assert found.solution.objective == pytest.approx(alike.solution.objective)
    assert found.decision.feed == ()  # type: ignore[union-attr]


def test_what_is_fed_first_is_decided_and_saved(tmp_path: Path) -> None:
    question = problem("uniform:f=10,b=12,w=8", ranks=4, micro_batches=8, hop=2.0, in_flight=5,
                       work=(1, 1, 3, 1, 1, 1, 1, 1))  # fmt: skip
    result = gapless.solve(question, parameters=FEW)
    assert result.report.valid
    result.save(tmp_path / "plan.json")
    decision = gapless.load(tmp_path / "plan.json").decision
    assert isinstance(decision, PipelineDecision)
    assert decision == result.decision
    assert sorted(decision.feed or range(8)) == list(range(8))
    assert main(["check", str(tmp_path / "plan.json"), "--quiet"]) == 0


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("--work 1,2", "work: must be one for each of 4 micro-batches, got 2"),
        ("--work 1,2,1,1 --minimise span", "work: goes without minimise span"),
        ("--work 1,2,1,1 --placement bidirectional", "work: goes without placement bidirectional"),
        ("--work 1,2,1,1 --overlap-cost 0.7", "work: goes without overlap_cost"),
    ],
)
def test_what_goes_without_work_is_said(values: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    line = f"solve pipeline --profile uniform:f=10,b=12,w=8 --ranks 2 --micro-batches 4 {values}"
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err.replace("--work", "work")
