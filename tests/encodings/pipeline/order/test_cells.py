"""Cells of a forward and a backward: when they run, what bounds them, what is replayed and saved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from exact_cells import exact_with_cells, overlapped
from examples import is_thorough, share

from gapless.checker import Rule, check
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.methods import best_orders
from gapless.encodings.pipeline.order.cells import saved_s, with_cells
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.exact.window import Window
from gapless.encodings.pipeline.order.orders import Candidate
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.parameters import DEFAULTS
from gapless.encodings.pipeline.problem import problem
from gapless.encodings.pipeline.programs.decision import PipelineDecision
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import apart
from gapless.encodings.pipeline.solve import solve
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.options import Deadline, SolveOptions
from gapless.solvers.registry import solve_model
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
    """Bounds are those of forwards and backwards that take their share of a cell each, or a part of one that holds
    where each takes as long as it does alone until others go on."""
    stages = overlapped(seed)
    best_s, proven_s = exact_with_cells(stages, 60.0)
    assert max(bounds_of(stages).values()) <= best_s
    assert time_indexed_bound(replace(stages, is_whole=True), 0.0, best_s, 256, 8, Deadline(SolveOptions())) <= best_s
    cheaper = replace(stages, forward_s=stages.overlap * stages.forward_s,
                      backward_s=stages.overlap * stages.backward_s, overlap=1.0)  # fmt: skip
    assert max(bounds_of(cheaper).values()) <= best_s
    placement = "bidirectional" if stages.copies > 1 else tuple(stages.rank.tolist())
    question = problem(**{**TRIAL, "ranks": stages.ranks, "micro_batches": stages.copies * stages.micro_batches,
                          "placement": placement, "overlap_cost": 1.0})  # fmt: skip
    made = best_orders(
        question, (), cheaper, SolveOptions(), Deadline(SolveOptions()), replace(DEFAULTS, heuristic_ops=1000)
    )
    assert made.bound_s <= best_s
    found = [
        celled for each in [*made.known, made.best] if each and (celled := with_cells(own(each, stages), stages, 9000))
    ]
    assert min(each.timeline.step_s for each in found) >= proven_s


@pytest.mark.parametrize("seed", range(150) if is_thorough() else (1, 4, 9, 13))
def test_the_model_has_the_optimum_of_a_second_one_and_its_order_is_played(seed: int) -> None:
    stages = replace(overlapped(seed), is_whole=True)
    best_s, proven_s = exact_with_cells(stages, 60.0)
    assert best_s == proven_s
    made = zero_bubble(stages, 1)
    assert made is not None
    ordered = order_model(stages, made[1].step_s)
    start = values_of(ordered, made[1])
    assert ordered.model.arrays().violation(start) == 0
    solution = solve_model(ordered.model, SolveOptions(threads=1, step_limit=20_000), "cpsat", start)
    assert solution.objective == best_s
    assert solution.values is not None
    order = order_of(ordered, solution.values)
    timeline = timed(stages, order)
    assert timeline is not None
    assert timeline.step_s == best_s
    assert has_room(stages, order, timeline)
    assert ordered.model.arrays().violation(values_of(ordered, timeline, order)) == 0


@pytest.mark.parametrize("seed", range(60) if is_thorough() else range(6))
def test_a_window_keeps_cells_outside_and_chooses_those_within(seed: int) -> None:
    """Without sums among replicas, whose order a window doesn't know, what it finds is what is played."""
    stages = overlapped(seed)
    stages = replace(stages, is_whole=True, micro_batches=3, reduce_s=0.0 * stages.reduce_s, embedding_s=0.0)
    made = zero_bubble(stages, 1)
    assert made is not None
    celled = with_cells(Candidate("zero-bubble", (), stages, *made), stages, 300)
    assert celled is not None
    starts = np.sort(celled.timeline.start_s)
    free = np.arange(stages.ranks) != seed % 3
    window = Window(stages, celled.order, celled.timeline, starts[len(starts) // 3], starts[2 * len(starts) // 3], free)
    values = window.values()
    assert window.model().arrays().violation(values) == 0
    assert window.order_of(values).cells == celled.order.cells
    found = solve_model(window.model(), SolveOptions(threads=1, step_limit=20), "cpsat", values)
    assert found.values is not None
    order = window.order_of(found.values)
    timeline = timed(stages, order)
    assert timeline is not None
    assert has_room(stages, order, timeline)
    assert timeline.step_s <= found.values[len(window.ops) + stages.ranks] <= celled.timeline.step_s


def test_bounds_know_that_ops_without_a_partner_take_their_whole_time() -> None:
    """Ranks begin with forwards alone: 740 s, where a share of a cell for each comes to 710 s; found are 746 s."""
    question = problem(**{**TRIAL, "micro_batches": 32, "placement": "bidirectional", "in_flight": 6})
    shares = stages_of(question.without_cells, (1, 2, 3))
    assert max(bounds_of(shares).values()) == pytest.approx(710)
    assert max(bounds_of(stages_of(question, (1, 2, 3))).values()) == pytest.approx(740)


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


@pytest.mark.thorough
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
