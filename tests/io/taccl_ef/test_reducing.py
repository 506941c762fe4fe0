"""Schedules of all collectives, reducing ones too, lower to programs that run clean in every placement and runtime."""

from __future__ import annotations

import pytest
from hand_made_collectives import CASES

from planwright.checker import check
from planwright.io.taccl_ef import PLACEMENTS, lower, parse_xml, run, verify, xml_text


@pytest.fixture(params=list(CASES))
def case(request):
    """Each hand-made collective and its schedule, which replays clean."""
    collective, schedule = CASES[request.param]()
    assert check(schedule).valid, check(schedule).summary()
    return collective, schedule


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("placement", list(PLACEMENTS))
@pytest.mark.parametrize("fuse", [True, False])
def test_every_collective_runs_clean_with_any_number_of_slots(case, placement, instances, fuse):
    collective, schedule = case
    program = lower(schedule, collective, instances=instances, placement=placement, fuse=fuse)
    assert verify(program) == []
    for slots in (0, 1, 8):
        outcome = run(program, collective, slots=slots)
        assert outcome.problems == ()
        assert outcome.steps_run == program.step_count
    assert parse_xml(xml_text(program), "text") == (program, [])


@pytest.mark.parametrize("merge", [True, False])
def test_merged_and_separate_blocks_both_run_clean(case, merge):
    collective, schedule = case
    program = lower(schedule, collective, placement="both", merge_blocks=merge)
    for slots in (0, 1, 2):
        assert run(program, collective, slots=slots, order=3).problems == ()


def test_only_scratch_and_outputs_are_written(case):
    collective, schedule = case
    for placement in ("out-of-place", "both"):
        program = lower(schedule, collective, placement=placement)
        steps = [step for gpu in program.gpus for block in gpu.threadblocks for step in block.steps]
        writing = {"r", "rcs", "rrc", "rrcs", "cpy", "re"}
        assert "i" not in {step.dstbuf for step in steps if step.type in writing}
