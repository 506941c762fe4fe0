"""Times of a plan's ops and messages: with them, the order alone gives the makespan of the replay."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_plans import baseline_plan, errors_table

import gapless
from gapless.checker import check
from gapless.encodings.pipeline.execution.times import Times, step_s, times_of
from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action, ActionOrder
from gapless.io.plan import read_plan

MODES: dict[str, Any] = {
    "compression": errors_table("rank 4"), "error_budget": 1.0,
    "hop_modes": {(hop, m): 1 for hop in range(3) for m in (2, 5)},
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name, each in BASELINES.items() if each.placement != "bidirectional"])
@pytest.mark.parametrize("hop", [0.0, 2.0, 25.0])
def test_the_order_and_its_times_give_the_makespan(name: str, hop: float) -> None:
    plan = baseline_plan(name, hop=hop)
    order = program_of(plan).order
    assert step_s(order, times_of(plan.schedule, order)) == pytest.approx(check(plan.schedule).makespan_s, rel=1e-12)


@pytest.mark.parametrize("values", [{"blocking_sends": True}, {"recomputes": True}, MODES])
@pytest.mark.parametrize("name", ["1f1b", "zb-h1"])
def test_what_holds_a_rank_besides_counts(name: str, values: dict[str, Any]) -> None:
    plan = baseline_plan(name, **values)
    order = program_of(plan).order
    assert step_s(order, times_of(plan.schedule, order)) == pytest.approx(check(plan.schedule).makespan_s, rel=1e-12)


def test_messages_in_an_order_of_their_own_are_timed_as_the_replay_has_them(tmp_path: Any) -> None:
    shape = {"ranks": 2, "micro_batches": 4, "placement": "v", "chunks": 2, "hop": 9.0}
    found = gapless.pipeline.solve("uniform:f=3,b=5,w=2", **shape)
    found.save(tmp_path / "plan.json")
    plan = read_plan(tmp_path / "plan.json")
    order = program_of(plan).order
    assert step_s(order, times_of(plan.schedule, order)) == pytest.approx(found.report.makespan_s, rel=1e-12)


def test_times_are_scaled_and_messages_left_out() -> None:
    order = ActionOrder((0, 1), 1, tuple(Action(s, k, 0) for s, k in ((0, "F"), (1, "F"), (1, "B"), (0, "B"))))
    ops = dict(zip(order.actions, (1.0, 2.0, 4.0, 8.0), strict=True))
    times = Times(ops, {order.actions[0]: 0.5, order.actions[2]: 0.25})
    assert times.mean_op_s == 3.75
    assert step_s(order, times) == 15.75
    assert step_s(order, times.scaled(2.0)) == 31.5
    assert step_s(order, times.without_hops()) == 15.0


def test_the_first_stage_does_in_w_what_others_do_in_i() -> None:
    kinds = [(0, "F"), (1, "F"), (1, "I"), (0, "I"), (1, "W"), (0, "W")]
    order = ActionOrder((0, 1), 1, tuple(Action(stage, kind, 0) for stage, kind in kinds))
    times = Times(dict(zip(order.actions, (1.0, 2.0, 4.0, 8.0, 16.0, 32.0), strict=True)), {}).first_stage_whole()
    assert [times.op_s[action] for action in order.actions] == [1.0, 2.0, 4.0, 0.0, 16.0, 40.0]


def test_an_op_of_another_order_is_refused() -> None:
    plan = baseline_plan("1f1b")
    with pytest.raises(InputError, match=r"^graph: op 'F \d+ \d+' must be named as F 0 0 is"):
        times_of(plan.schedule, program_of(baseline_plan("1f1b", ranks=2)).order)
