"""Copies to hosts as ranks make them: order, times and copies give the makespan of the replay, and its memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pipeline_plans import baseline_plan, gpt_profile

from gapless.checker import check
from gapless.encodings.pipeline.execution.copies import NO_COPIES, copies_of, kept_of
from gapless.encodings.pipeline.execution.times import step_s, times_of
from gapless.encodings.pipeline.programs.program import program_of
from gapless.errors import InputError

HOSTS: dict[str, Any] = {"profile": "uniform:f=10,b=12,w=8", "in_flight": 2, "offload": 1e8}


GPT: dict[str, Any] = {"profile": gpt_profile(4, (16, 32)), "in_flight": None, "message_memory": "free", "offload": 1e6}


@pytest.mark.parametrize(
    ("name", "values"),
    [("1f1b", {}), ("1f1b", {"offload": 4e7}), ("1f1b", {"hop": 0.0}), ("gpipe", {"in_flight": 3}),
     ("zb-h1", {**GPT, "memory": 15000}), ("1f1b", {**GPT, "memory": 8200, "recomputes": True})],
)  # fmt: skip
def test_order_times_and_copies_give_the_makespan(name: str, values: dict[str, Any]) -> None:
    plan = baseline_plan(name, **{**HOSTS, **values})
    program = program_of(plan)
    copies = copies_of(plan.schedule, program.order, program.offloaded)
    times = times_of(plan.schedule, program.order, copies)
    makespan_s = check(plan.schedule).makespan_s
    assert len(copies.copy_s) == len(program.offloaded) > 0
    assert step_s(program.order, times, copies) == pytest.approx(makespan_s, rel=1e-12)
    assert step_s(program.order, times.scaled(1e-3), copies) == pytest.approx(1e-3 * makespan_s, rel=1e-12)
    slow = replace(times, copy_s={forward: 1e6 * each for forward, each in times.copy_s.items()})
    assert step_s(program.order, slow, copies) > makespan_s


@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
def test_ranks_keep_what_the_replay_finds_besides_states_and_messages(name: str) -> None:
    plan = baseline_plan(name, **HOSTS)
    order, schedule = program_of(plan).order, plan.schedule
    kept, free = kept_of(schedule, order), kept_of(baseline_plan(name, profile=HOSTS["profile"]).schedule, order)
    states = [sum(size for tensor, size in enumerate(schedule.graph.size_bytes.tolist())
                  if schedule.graph.tensor_name(tensor) in (f"state {rank}", f"gradients {rank}"))
              for rank in range(order.ranks)]  # fmt: skip
    replayed = np.array(check(schedule).peak_bytes[: order.ranks]) - states
    messages = replayed - kept.peak_bytes
    assert messages.min() >= 0
    assert messages.max() <= 8 * 10**6
    assert max(kept.peak_bytes) < max(free.peak_bytes)
    assert sum(kept.takes.values()) == sum(kept.leaves.values())


def test_a_plan_whose_copies_are_others_than_it_says_is_refused() -> None:
    plan = baseline_plan("1f1b", **HOSTS)
    program = program_of(plan)
    with pytest.raises(InputError, match=r"^decision: offloaded: must be what goes to a host .*, got 0F"):
        copies_of(plan.schedule, program.order, program.offloaded[1:])
    free = baseline_plan("1f1b")
    assert copies_of(free.schedule, program_of(free).order, ()) is NO_COPIES
