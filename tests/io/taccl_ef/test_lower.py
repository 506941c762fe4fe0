"""The lowering: what it makes of hand-made schedules runs clean, and what does not fit is refused with its numbers."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.io.taccl_ef import PLACEMENTS, lower, run, verify, xml_text
from gapless.io.taccl_ef.program import NO_MAX_BYTES
from gapless.ir.collective import Collective, allgather
from gapless.ir.graph import Graph, Implementation, Op
from gapless.ir.schedule import Event, EventKind, schedule_from_events
from gapless.topologies.topology import Topology


@pytest.mark.thorough("all-pairs-16")
@pytest.mark.parametrize("instances", [1, 2, 8])
@pytest.mark.parametrize("placement", list(PLACEMENTS))
def test_hand_made_allgathers_run_clean_with_any_number_of_slots(case, instances, placement):
    collective, schedule = case
    program = lower(schedule, collective, instances=instances, placement=placement)
    assert verify(program) == []
    for slots in (0, 1, 2, 8):
        outcome = run(program, collective, slots=slots)
        assert outcome.problems == ()
        assert outcome.steps_run == program.step_count


@pytest.mark.parametrize("merge", [True, False])
def test_merged_and_separate_blocks_both_run_clean(case, merge):
    collective, schedule = case
    program = lower(schedule, collective, instances=2, merge_blocks=merge)
    assert all(run(program, collective, slots=slots).is_ok for slots in (0, 1, 2))
    both = [block for gpu in program.gpus for block in gpu.threadblocks if block.send >= 0 and block.recv >= 0]
    assert bool(both) == merge


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_result_does_not_depend_on_the_interleaving(case, seed):
    collective, schedule = case
    program = lower(schedule, collective, instances=2)
    assert run(program, collective, slots=1, order=seed).is_ok


def test_lowering_twice_gives_the_same_bytes(case):
    collective, schedule = case
    first, second = (xml_text(lower(schedule, collective, instances=2)) for _ in range(2))
    assert first == second


def test_chunks_side_by_side_at_both_ends_are_one_step(make_schedule):
    collective = allgather(2, 6)
    schedule = make_schedule(collective, [(0, 0, 1, [3, 0, 1, 5, 2]), (1, 0, 1, [4]), (0, 1, 0, range(6, 12))])
    program = lower(schedule, collective, instances=4)
    sends = [step for block in program.gpus[0].threadblocks for step in block.steps if step.type == "s"]
    assert Counter(step.cnt for step in sends) == {4: 4, 1: 8}
    assert run(program, collective).is_ok


def test_a_chunk_that_a_relay_does_not_keep_goes_through_scratch(make_schedule):
    collective = Collective("custom", 3, 2, inputs=((0, 1), (), ()), outputs=((), (), (0, 1)))
    schedule = make_schedule(collective, [(0, 0, 1, [1]), (1, 0, 1, [0]), (2, 1, 2, [0, 1])])
    program = lower(schedule, collective, instances=2, runtime="original")
    assert [gpu.s_chunks for gpu in program.gpus] == [0, 4, 0]
    assert run(program, collective).is_ok


def test_a_send_waits_once_for_each_block_that_brought_its_chunks(make_star):
    collective, schedule = make_star(5, 1)
    program = lower(schedule, collective, runtime="original")
    to_one = next(block for block in program.gpus[0].threadblocks if block.send == 1)
    # Chunk 0 is rank 0's own (from the input), chunks 2 to 4 (in the output) came from three ranks.
    assert [step.type for step in to_one.steps] == ["s", "nop", "nop", "s"]
    assert len({step.depid for step in to_one.steps[1:]}) == 3
    assert all(step.depid >= 0 for step in to_one.steps[1:])


def test_blocks_that_others_wait_for_have_the_lowest_numbers(make_star):
    collective, schedule = make_star(5, 1)
    gpu = lower(schedule, collective, instances=3).gpus[0]
    waited = [any(step.hasdep for step in block.steps) for block in gpu.threadblocks]
    assert waited == sorted(waited, reverse=True)


def test_what_a_rank_holds_already_is_not_sent_again(make_schedule):
    collective = allgather(2)
    schedule = make_schedule(collective, [(0, 0, 1, [0]), (0, 1, 0, [1]), (1, 0, 1, [0, 1]), (2, 1, 0, [0])])
    program = lower(schedule, collective)
    assert program.step_count == 2 + 2 + 2
    assert run(program, collective).is_ok


def test_more_steps_than_a_block_holds_are_spread_over_channels(make_schedule):
    collective = allgather(2, 150)
    sends = [(at, rank, 1 - rank, [rank * 150 + at]) for at in range(0, 150) for rank in range(2)]
    program = lower(make_schedule(collective, sends), collective, instances=2)
    assert program.nchannels == 6
    assert max(len(block.steps) for gpu in program.gpus for block in gpu.threadblocks) <= 64
    assert run(program, collective, slots=0).is_ok


def test_more_peers_than_a_channel_holds_are_spread_over_channels(make_all_pairs):
    collective, schedule = make_all_pairs(36, 1)
    program = lower(schedule, collective)
    assert program.nchannels == 2
    assert run(program, collective).is_ok


def test_blocks_are_merged_where_separate_ones_would_exceed_the_multiprocessors(make_all_pairs):
    collective, schedule = make_all_pairs(16, 1)
    assert len(lower(schedule, collective, sm_count=40).gpus[0].threadblocks) == 31
    assert len(lower(schedule, collective, sm_count=30).gpus[0].threadblocks) == 16


def test_the_byte_range_is_written_and_zero_means_no_upper_limit(make_ring):
    collective, schedule = make_ring(4, 1)
    program = lower(schedule, collective, min_bytes=1024, max_bytes=2048)
    assert (program.min_bytes, program.max_bytes) == (1024, 2048)
    assert lower(schedule, collective).max_bytes == NO_MAX_BYTES


def test_in_place_uses_only_the_larger_buffer(make_ring):
    collective, schedule = make_ring(4, 2)
    program = lower(schedule, collective, placement="in-place")
    steps = [step for gpu in program.gpus for block in gpu.threadblocks for step in block.steps]
    assert {step.srcbuf for step in steps} == {step.dstbuf for step in steps} == {"o"}
    assert {(gpu.i_chunks, gpu.o_chunks) for gpu in program.gpus} == {(0, 8)}
    assert not any(step.type == "cpy" for step in steps)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 0}, "instances: must be >= 1, got 0"),
        ({"placement": "inside"}, "placement: must be one of .*, got 'inside'"),
        ({"proto": "simple"}, "proto must be one of Simple, LL, LL128, got 'simple'"),
        ({"runtime": "newest"}, "runtime: must be one of .*, got 'newest'"),
        ({"min_bytes": 9, "max_bytes": 8}, "minBytes 9, maxBytes 8"),
        ({"instances": 33}, "there are 32 channels, needed are 33"),
        ({"sm_count": 1, "merge_blocks": True}, "1 multiprocessors, got 2"),
    ],
)
def test_what_the_caller_may_not_ask_for_is_refused_with_its_number(make_ring, changes, message):
    collective, schedule = make_ring(4, 1)
    with pytest.raises(InputError, match=message):
        lower(schedule, collective, **changes)


def test_more_blocks_than_a_gpu_may_have_are_refused(make_all_pairs):
    collective, schedule = make_all_pairs(16, 1)
    with pytest.raises(InputError, match="a GPU may have 216 thread blocks, got 248"):
        lower(schedule, collective, instances=8, merge_blocks=False)


def test_more_awaited_blocks_than_an_int8_numbers_are_refused(make_star):
    collective, schedule = make_star(20, 1)
    with pytest.raises(InputError, match=re.escape("depid must be at most 127 (int8), got 128")):
        lower(schedule, collective, instances=7, runtime="executor")


def test_more_chunks_than_an_int16_numbers_are_refused(make_schedule):
    collective = allgather(2, 2000)
    sends = [(0, rank, 1 - rank, collective.inputs[rank]) for rank in range(2)]
    with pytest.raises(InputError, match=re.escape("nchunksperloop must be in 1..32768, got 36000")):
        lower(make_schedule(collective, sends), collective, instances=9)


@pytest.mark.parametrize(
    ("sends", "message"),
    [
        ([(0, 0, 1, [0])], "chunk 1 never reaches rank 0"),
        ([(0, 0, 1, [1]), (1, 1, 0, [1])], "event 0 sends chunk 1 from rank 0, which does not hold it"),
        ([(0, 0, 1, [0]), (0, 1, 0, [7])], "event 1: chunks must be in 0..1, got 7"),
    ],
)
def test_a_schedule_that_is_no_allgather_is_refused(make_schedule, sends, message):
    collective = allgather(2)
    with pytest.raises(InputError, match=message):
        lower(make_schedule(collective, sends), collective)


def test_a_schedule_on_more_ranks_than_the_collective_has_is_refused(make_schedule):
    schedule = make_schedule(allgather(3), [(0, 0, 2, [0])])
    with pytest.raises(InputError, match=re.escape("ranks must be in 0..1")):
        lower(schedule, allgather(2))


def test_events_that_are_no_plain_transfers_are_refused(make_schedule):
    collective = allgather(2)
    graph = Graph(np.array([1, 1]), ops=(Op("work", (), (), (Implementation(1.0),)),))
    computing = schedule_from_events(graph, Topology("one", (0,)), [Event(EventKind.COMPUTE, 0.0, 1.0, 0, op=0)])
    with pytest.raises(InputError, match="event 0 must be a transfer, got compute"):
        lower(computing, collective)
    plain = make_schedule(collective, [(0, 0, 1, [0])])
    event = Event(EventKind.TRANSFER, 0.0, 1.0, place=0, moves=(0,), reduces=True)
    with pytest.raises(InputError, match="event 0 reduces"):
        lower(schedule_from_events(plain.graph, plain.topology, [event]), collective)
