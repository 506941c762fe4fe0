"""Schedules of all collectives, reducing ones too, lower to programs that run clean in every placement and runtime."""

from __future__ import annotations

import dataclasses
import random
from collections import Counter

import pytest
from examples import examples
from hand_made_collectives import (
    CASES,
    chain_reduce,
    in_rounds,
    random_allreduce,
    ring_allreduce,
    taker,
    tree_allreduce,
    tree_broadcast,
)
from hypothesis import given
from hypothesis import strategies as st

from gapless.checker import check
from gapless.errors import InputError
from gapless.io.taccl_ef import PLACEMENTS, judge, lower, parse_xml, run, verify, xml_text
from gapless.io.taccl_ef.program import WRITES
from gapless.ir.collective import allreduce, gather
from gapless.ir.schedule import schedule_from_events


@pytest.fixture(params=list(CASES))
def case(request):
    """Each hand-made collective and its schedule, which replays clean."""
    collective, schedule = CASES[request.param]()
    assert check(schedule).valid, check(schedule).summary()
    return collective, schedule


@pytest.mark.thorough("random", "False-")
@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("placement", list(PLACEMENTS))
@pytest.mark.parametrize("fuse", [True, False])
def test_every_collective_runs_clean_with_any_number_of_slots(case, placement, instances, fuse):
    collective, schedule = case
    runtime = taker(collective.name, placement)
    program = lower(schedule, collective, instances=instances, placement=placement, fuse=fuse, runtime=runtime)
    assert verify(program, runtime) == []
    for slots in (0, 1, 8):
        outcome = run(program, collective, slots=slots)
        assert outcome.problems == ()
        assert outcome.steps_run == program.step_count
    assert parse_xml(xml_text(program), "text") == (program, [])


@pytest.mark.parametrize("merge", [True, False])
def test_merged_and_separate_blocks_both_run_clean(case, merge):
    collective, schedule = case
    program = lower(schedule, collective, placement="both", merge_blocks=merge, runtime=taker(collective.name))
    for slots in (0, 1, 2):
        assert run(program, collective, slots=slots, order=3).problems == ()


def test_only_scratch_and_outputs_are_written(case):
    collective, schedule = case
    for placement in ("out-of-place", "both"):
        program = lower(schedule, collective, placement=placement, runtime=taker(collective.name))
        steps = [step for gpu in program.gpus for block in gpu.threadblocks for step in block.steps]
        assert "i" not in {step.dstbuf for step in steps if step.type in WRITES}


def counts(program):
    return Counter(step.type for gpu in program.gpus for block in gpu.threadblocks for step in block.steps)


def test_in_place_only_a_ranks_outputs_and_scratch_are_written(case):
    collective, schedule = case
    program = lower(schedule, collective, placement="in-place", runtime=taker(collective.name, "in-place"))
    for gpu in program.gpus:
        inputs, outputs = (len(buffers[gpu.id]) for buffers in (collective.inputs, collective.outputs))
        start = gpu.id * outputs if inputs > outputs else 0
        for step in (step for block in gpu.threadblocks for step in block.steps):
            if step.type in WRITES and step.dstbuf != "s":
                assert start <= step.dstoff
                assert step.dstoff + step.cnt <= start + outputs


def test_a_fused_ring_stores_no_sum_that_it_sends_on():
    collective, schedule = ring_allreduce(8)
    program = lower(schedule, collective)
    # One rank receives before it sends, or all would wait for each other with one message in flight.
    apart = [gpu for gpu in program.gpus if not any(step.type == "rrs" for b in gpu.threadblocks for step in b.steps)]
    assert len(apart) == 1
    assert counts(program) == {"s": 8 + 7 * 2 - 1, "rrs": 7 * 6, "rrcs": 7, "rcs": 7 * 6, "r": 14, "rrc": 7}
    assert counts(lower(schedule, collective, fuse=False)).keys() == {"s", "r", "rrc"}


def test_fused_steps_need_no_scratch_for_what_they_send_on():
    collective, schedule = chain_reduce(4, 3)
    assert [gpu.s_chunks for gpu in lower(schedule, collective, fuse=False).gpus] == [0, 0, 3, 3]
    program = lower(schedule, collective)
    assert [gpu.s_chunks for gpu in program.gpus] == [0, 0, 0, 0]
    assert counts(program) == {"s": 3, "rrs": 6, "rrc": 3}


def test_what_is_sent_to_two_ranks_is_fused_with_one_send_only():
    collective, schedule = tree_broadcast(6, 3)
    program = lower(schedule, collective)
    assert counts(program)["rcs"] == 2 * 3
    assert run(program, collective, slots=0).is_ok


def test_a_sum_that_is_an_output_is_stored_when_it_is_sent_on():
    collective, schedule = ring_allreduce(4)
    program = lower(schedule, collective)
    stored = [step for gpu in program.gpus for b in gpu.threadblocks for step in b.steps if step.type == "rrcs"]
    assert {step.srcbuf for step in stored} == {"i"}
    assert {step.dstbuf for step in stored} == {"o"}


def test_a_block_that_may_not_send_and_receive_fuses_nothing(case):
    collective, schedule = case
    program = lower(schedule, collective, merge_blocks=False, runtime=taker(collective.name))
    assert not counts(program).keys() & {"rcs", "rrs", "rrcs"}


def test_fused_chains_share_a_lane_where_there_are_several():
    collective, schedule = ring_allreduce(40)
    program = lower(schedule, collective, instances=2)
    assert program.nchannels == 6
    assert max(len(block.steps) for gpu in program.gpus for block in gpu.threadblocks) <= 64
    assert counts(program)["rrs"] > counts(program)["rrc"]
    assert run(program, collective).is_ok


@pytest.mark.thorough
def test_where_the_channels_of_fused_lanes_do_not_suffice_nothing_is_fused():
    collective, schedule = ring_allreduce(40)
    program = lower(schedule, collective, instances=16)
    assert program.nchannels == 32
    assert not counts(program).keys() & {"rcs", "rrs", "rrcs"}


def test_a_message_is_cut_where_its_dependencies_would_not_fit_a_block():
    """Rank 70 collects from 69 others, in as many blocks, what it sends on to rank 0 in one transfer."""
    collective = gather(71)
    moves = [(rank, 70, [rank], False) for rank in range(1, 70)]
    schedule = in_rounds(collective, [*moves, (70, 0, range(1, 71), False)])
    program = lower(schedule, collective, sm_count=1024, runtime="original")
    assert run(program, collective).is_ok
    assert max(step.cnt for gpu in program.gpus for block in gpu.threadblocks for step in block.steps) == 64


@pytest.mark.parametrize(
    ("name", "runtime", "coll"),
    [
        ("reducescatter-ring", "executor", "reducescatter"),
        ("reducescatter-ring", "original", "reduce_scatter"),
        ("gather-chain", "executor", "gather"),
        ("gather-chain", "original", "custom"),
        ("sendrecv-relayed", "original", "custom"),
        ("allreduce-ring", "original", "allreduce"),
        ("allreduce-ring", "both", "allreduce"),
    ],
)
def test_the_collective_is_named_as_the_runtime_knows_it(name, runtime, coll):
    collective, schedule = CASES[name]()
    program = lower(schedule, collective, runtime=runtime)
    assert program.coll == coll
    assert judge(program, runtime).is_valid


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        ("reducescatter-ring", "export with executor and once with original"),
        ("gather-chain", "export with executor and once with original"),
        ("scatter-chain", "export with executor and once with original"),
        ("sendrecv-relayed", "export with original"),
        ("inverse-gather", "export with original"),
    ],
)
def test_what_the_two_runtimes_call_by_different_names_is_no_file_for_both(name, way_out):
    collective, schedule = CASES[name]()
    with pytest.raises(InputError, match=f"runtime: one file can't serve both with {collective.name}: .*; {way_out}$"):
        lower(schedule, collective, runtime="both")


def test_a_collective_that_a_runtime_does_not_offer_is_refused():
    collective, schedule = CASES["sendrecv-relayed"]()
    with pytest.raises(InputError, match=r"runtime: executor knows .*, not sendrecv; original runs it as custom"):
        lower(schedule, collective, runtime="executor")


@pytest.mark.parametrize("proto", ["Simple", "LL", "LL128"])
def test_every_protocol_is_written(proto):
    collective, schedule = ring_allreduce(4)
    assert judge(lower(schedule, collective, proto=proto)).is_valid


def test_a_contribution_that_would_be_added_twice_is_refused():
    collective = allreduce(2)
    schedule = in_rounds(collective, [(0, 1, [0], True), (0, 1, [0], True)])
    with pytest.raises(InputError, match="event 1 adds to chunk 0 of rank 1 what it has"):
        lower(schedule, collective)


def test_a_copy_of_what_is_there_is_not_sent():
    collective, schedule = tree_allreduce(2)
    events = [schedule.event(number) for number in range(len(schedule))]
    again = dataclasses.replace(events[-1], start_s=9.0, end_s=10.0)
    longer = schedule_from_events(schedule.graph, schedule.topology, [*events, again])
    assert lower(longer, collective) == lower(schedule, collective)


@examples(60)
@given(
    ranks=st.integers(2, 6),
    parts=st.integers(1, 2),
    seed=st.integers(0, 10**6),
    is_scattered=st.booleans(),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    how=st.sampled_from([{}, {"fuse": False}, {"merge_blocks": True}, {"instances": 2}, {"runtime": "original"}]),
    order=st.none() | st.integers(0, 9),
)
def test_random_reductions_run_clean_for_every_interleaving(ranks, parts, seed, is_scattered, placement, how, order):
    collective, schedule = random_allreduce(ranks, parts, random.Random(seed), is_scattered)
    assert check(schedule).valid
    program = lower(schedule, collective, placement=placement, **{"runtime": taker(collective.name), **how})
    for slots in (0, 1, 2):
        assert run(program, collective, slots=slots, order=order).problems == ()
