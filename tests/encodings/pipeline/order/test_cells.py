"""Cells of a forward and a backward: when they run, what bounds them, what is replayed and saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from exact_cells import exact_with_cells, overlapped
from examples import share

from gapless.checker import Rule, check
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.cells import saved_s, with_cells
from gapless.encodings.pipeline.order.timeline import Candidate, timed
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import apart
from gapless.encodings.pipeline.solve import solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.options import Deadline, SolveOptions
from gapless.system import Plan

TRIAL = {"profile": "uniform:f=10,b=10,w=10", "ranks": 4, "micro_batches": 16, "overlap_cost": 0.6}


def solved(**values: Any) -> Plan:
    plan = solve(problem(**{**TRIAL, **values}), SolveOptions(threads=1))
    assert plan.schedule is not None
    assert check(plan.schedule).valid, check(plan.schedule).summary()
    return plan


@pytest.mark.thorough("[15]")
@pytest.mark.parametrize("seed", range(share(150)))
def test_no_bound_is_above_the_optimum_and_no_plan_below_it(seed: int) -> None:
    """Bounds are those of forwards and backwards that take their share of a cell each."""
    stages = overlapped(seed)
    best_s, proven_s = exact_with_cells(stages, 60.0)
    cheaper = replace(stages, forward_s=stages.overlap * stages.forward_s,
                      backward_s=stages.overlap * stages.backward_s, overlap=1.0)  # fmt: skip
    assert max(bounds_of(cheaper).values()) <= best_s
    placement = "bidirectional" if stages.copies > 1 else tuple(stages.rank.tolist())
    question = problem(**{**TRIAL, "ranks": stages.ranks, "micro_batches": stages.copies * stages.micro_batches,
                          "placement": placement, "overlap_cost": 1.0})  # fmt: skip
    made = best_orders(question, (), cheaper, SolveOptions(), Deadline(SolveOptions()), DEFAULTS)
    assert made.bound_s <= best_s
    found = [
        celled for each in [*made.known, made.best] if each and (celled := with_cells(own(each, stages), stages, 9000))
    ]
    assert min(each.timeline.step_s for each in found) >= proven_s


def own(candidate: Candidate, stages: Any) -> Candidate:
    if stages.splits and not candidate.stages.splits:
        return replace(candidate, order=apart(stages, candidate.order))
    return candidate


def test_a_cell_begins_when_both_can_and_ends_at_once() -> None:
    """DualPipe on two ranks: a forward and a backward of 10 s each take 12 s."""
    plan = solved(ranks=2, placement="bidirectional", method="dualpipe")
    assert isinstance(plan.decision, PipelineDecision)
    assert plan.schedule is not None
    cells = [
        k for k, op in enumerate(plan.schedule.op.tolist()) if op >= 0 and plan.schedule.graph.ops[op].kind == "cell"
    ]
    assert len(cells) == len(plan.decision.celled) > 0
    took = plan.schedule.end_s[cells] - plan.schedule.start_s[cells]
    assert took == pytest.approx(12.0)
    assert plan.solution.objective == pytest.approx(plan.schedule.end_s.max())
    assert plan.details["bubble"] >= 0


def test_dualpipe_gains_what_cells_save() -> None:
    """And the replay refutes a cell that is as short as one of its ops."""
    with_them, without = (solved(placement="bidirectional", method="dualpipe", overlap_cost=share)
                          for share in (0.6, 1.0))  # fmt: skip
    assert with_them.solution.objective is not None
    assert without.solution.objective is not None
    assert with_them.solution.objective < 0.85 * without.solution.objective
    schedule = with_them.schedule
    assert schedule is not None
    first = next(k for k, op in enumerate(schedule.op.tolist()) if op >= 0 and schedule.graph.ops[op].kind == "cell")
    end_s = schedule.end_s.copy()
    end_s[first] -= 2.0
    assert Rule.DURATION_TOO_SHORT in check(replace(schedule, end_s=end_s)).violation_counts


def test_what_cells_save_is_no_time_that_a_rank_computes() -> None:
    stages = replace(overlapped(1), overlap=0.5)
    made = best_orders(problem(**{**TRIAL, "overlap_cost": 1.0, "ranks": stages.ranks}), (), stages, SolveOptions(),
                       Deadline(SolveOptions()), DEFAULTS)  # fmt: skip
    assert made.best is not None
    celled = with_cells(own(made.best, stages), stages, 1000)
    assert celled is not None
    assert (saved_s(stages, celled.order) >= 0).all()
    assert (saved_s(stages, celled.order) > 0).any() == bool(celled.order.cells)
    again = timed(stages, celled.order)
    assert again is not None
    assert again.step_s == celled.timeline.step_s


def test_a_saved_plan_has_its_cells_and_is_not_run() -> None:
    question = problem(**{**TRIAL, "placement": "v", "method": "dualpipe-v"})
    plan = solve(question, SolveOptions(threads=1))
    assert plan.decision is not None
    assert plan.schedule is not None
    saved = SavedPlan(
        "pipeline", question.description, {}, dict(plan.details), plan.schedule, decision=plan.decision.data
    )
    assert PipelineDecision.of(saved).celled
    with pytest.raises(InputError, match="in one cell are drawn and replayed, not run"):
        program_of(saved)
    odd = {**plan.decision.data, "cells": "0F99"}
    with pytest.raises(InputError, match="cells: must be forwards that a backward follows"):
        PipelineDecision.of(replace(saved, decision=odd))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"overlap_cost": 0.4}, "overlap_cost: must be"),
        ({"minimise": "span"}, "overlap_cost: goes without minimise"),
        ({"backward": "auto"}, "overlap_cost: goes without backward auto"),
        ({"blocking_sends": True}, "overlap_cost: goes without blocking_sends"),
        ({"recomputation": "all"}, "overlap_cost: goes without recomputation"),
        ({"memory": 10**10}, "overlap_cost: goes without memory with counted messages"),
    ],
)
def test_what_goes_without_cells_is_said(values: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        problem(**{**TRIAL, **values})
