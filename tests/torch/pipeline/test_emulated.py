"""Steps of ranks that wait instead of computing: never sooner than planned. Without torch these are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

from pipeline_plans import baseline_plan

from gapless.encodings.pipeline.execution.copies import copies_of, kept_of
from gapless.encodings.pipeline.execution.times import step_s, times_of
from gapless.encodings.pipeline.programs.program import program_of
from gapless.torch.pipeline.emulated import EmulatedTask, emulate
from gapless.torch.pipeline.run import spans_s


def test_a_step_is_from_the_first_begin_to_the_last_end() -> None:
    assert spans_s([[(1.0, 3.0), (10.0, 12.0)], [(0.5, 2.0), (11.0, 15.0)]]) == (2.5, 5.0)


@pytest.mark.parametrize(("name", "form"), [("zb-v", "communication"), ("interleaved-1f1b", "compute")])
def test_no_step_is_sooner_than_order_and_times_say(name: str, form: str) -> None:
    """Whatever the machine does besides: a sleep is never too short, and no message is there before its time."""
    plan = baseline_plan(name, ranks=2, micro_batches=4)
    order = program_of(plan).order
    times = times_of(plan.schedule, order).scaled(1e-4)
    rows = [
        tuple((a.stage, a.kind, a.micro_batch, s) for a, s in column.items()) for column in (times.op_s, times.hop_s)
    ]
    hops = tuple((stage, "F" if kind == "F" else "B", m, s) for stage, kind, m, s in rows[1])
    task = EmulatedTask(order.rank_of_stage, 4, rows[0], hops, (256, 8, 1024), 2, form, 120.0)
    found = emulate(order, task)
    assert len(found.step_s) == 2
    assert min(found.step_s) >= step_s(order, times)
    assert len(found.overhead_s) == 2 * len(order.actions)
    assert min(found.overhead_s) > -1e-9


def test_what_ranks_keep_leaves_and_returns_as_planned() -> None:
    plan = baseline_plan("1f1b", ranks=2, micro_batches=4, in_flight=1, offload=1e5, profile="uniform:f=1,b=1,w=1")
    program = program_of(plan)
    order, copies = program.order, copies_of(plan.schedule, program.order, program.offloaded)
    kept, times = kept_of(plan.schedule, order), times_of(plan.schedule, order, copies).scaled(1e-6)
    ops = tuple((a.stage, a.kind, a.micro_batch, s) for a, s in times.op_s.items())
    rows = tuple((a.stage, a.kind, a.micro_batch, kept.takes[a], kept.leaves[a], kept.moved.get(a, 0))
                 for a in order.actions)  # fmt: skip
    task = EmulatedTask(order.rank_of_stage, 4, ops, (), (8,), 2, "compute", 120.0, copies.rows(order), rows, 10**6,
                        1e-5)  # fmt: skip
    found = emulate(order, task)
    assert program.offloaded
    assert found.kept_bytes == kept.peak_bytes
    assert min(found.step_s) >= step_s(order, times.without_hops(), copies)
