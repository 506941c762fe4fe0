"""The order as a model: its optimum is that of all orders, whatever placement, memory, hops and sums."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from exact_pipeline import exact_step, few_stages
from examples import share
from tiny_pipelines import tiny, tiny_span, trial

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.order.exact.model import order_model, order_of, values_of
from gapless.encodings.pipeline.order.orders import Timeline
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.ticks import in_ticks, refined
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.schedules.baselines import zb_h1, zb_v
from gapless.options import Deadline, SolveOptions
from gapless.solution import Status
from gapless.solvers.registry import solve_model

ONE = SolveOptions(threads=1)


def started(stages: Stages) -> Timeline:
    found = zero_bubble(stages, 10_000)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("seed", range(share(200)))
def test_the_optimum_is_the_best_of_all_orders(seed: int) -> None:
    stages, best_s = tiny(seed)
    ordered = order_model(stages, started(stages).step_s)
    solution = solve_model(ordered.model, ONE, "cpsat")
    assert (solution.status, solution.objective) == (Status.OPTIMAL, best_s)
    assert solution.values is not None
    timeline = timed(stages, order_of(ordered, solution.values))
    assert timeline is not None
    assert timeline.step_s == best_s
    assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()


@pytest.mark.parametrize("seed", range(share(100)))
def test_the_least_longest_span_is_that_of_all_orders(seed: int) -> None:
    stages, best_s = tiny_span(seed)
    ticked, slack = refined(in_ticks(stages, best_s), best_s)
    start = timed(ticked.stages, zero_bubble(stages, 10_000)[0])
    ordered = order_model(ticked.stages, start.cost_s)
    assert ordered.model.arrays().violation(values_of(ordered, start)) == 0
    solution = solve_model(ordered.model, ONE, "cpsat")
    assert (solution.status, slack) == (Status.OPTIMAL, 0)
    timeline = timed(stages, order_of(ordered, solution.values))
    assert timeline.cost_s == pytest.approx(best_s, rel=1e-9)
    assert solution.objective * ticked.tick_s == pytest.approx(best_s, rel=1e-9)


@pytest.mark.thorough("[5]", "[8]")
@pytest.mark.parametrize("seed", range(share(20)))
def test_the_least_longest_span_of_whole_numbers_is_that_of_another_model(seed: int) -> None:
    """Two micro-batches, two stages a rank, links on which messages wait, sums and an exchange."""
    stages = few_stages(seed)
    stages = replace(stages, by_span=True, micro_batches=2, reduce_s=stages.reduce_s + seed % 5,
                     embedding_s=(seed % 7) * float(stages.rank[0] != stages.rank[-1]))  # fmt: skip
    made = zero_bubble(stages, 500)
    if made is None:
        return
    ordered = order_model(stages, float(np.ceil(made[1].cost_s)))
    solution = solve_model(ordered.model, ONE, "cpsat")
    assert (solution.objective, solution.objective) == exact_step(stages)
    least = max(bounds_of(stages).values())
    raised = time_indexed_bound(stages, least, solution.objective, 256, 8, Deadline(ONE))
    assert least <= raised <= solution.objective
    timeline = timed(stages, order_of(ordered, solution.values))
    assert solution.objective - 1 < timeline.cost_s <= solution.objective


@pytest.mark.parametrize("seed", range(share(200)))
def test_an_order_that_can_run_is_a_point_of_the_model(seed: int) -> None:
    stages, _ = tiny(seed)
    timeline = started(stages)
    ordered = order_model(stages, timeline.step_s)
    assert ordered.model.arrays().violation(values_of(ordered, timeline)) == 0


def test_an_order_survives_the_model() -> None:
    _, stages = trial(4, 8, 8, "v")
    order = zb_v(stages)
    timeline = timed(stages, order)
    assert timeline is not None
    ordered = order_model(stages, timeline.step_s)
    again = order_of(ordered, values_of(ordered, timeline))
    assert all((one == other).all() for one, other in zip(again.sequences, order.sequences, strict=True))


def test_messages_have_columns_only_where_one_may_wait_for_another() -> None:
    _, stages = trial(4, 8, 5)
    assert (order_model(stages, 400).sent == -1).all()
    slow = replace(stages, forward_hop_s=np.array([2.0, 11.0, 2.0]))
    sent = order_model(slow, 400).sent
    assert (sent[0, 1] >= 0).all()
    assert (sent[0, [0, 2]] == -1).all()
    assert (sent[1] == -1).all()


def test_memory_is_a_precedence_where_a_rank_has_one_stage() -> None:
    linear, v = (order_model(trial(4, 8, 4, placement)[1], 400).model for placement in ("linear", "v"))
    assert not linear.arrays().cumulatives
    assert [cumulative.capacity for cumulative in v.arrays().cumulatives] == [8] * 4
    assert [rows.count for rows in linear.families if rows.name.startswith("memory")] == [4] * 4


def test_more_memory_than_needed_adds_no_rule() -> None:
    model = order_model(trial(4, 8, 8)[1], 400).model
    assert not [rows for rows in model.families if rows.name.startswith("memory")]


def test_a_horizon_below_the_optimum_is_infeasible() -> None:
    _, stages = trial(4, 8, 4)
    assert timed(stages, zb_h1(stages)) is not None
    assert solve_model(order_model(stages, 305).model, ONE, "cpsat").status is Status.INFEASIBLE
