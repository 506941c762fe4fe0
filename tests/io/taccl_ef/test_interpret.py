"""The interpreter: right programs end with the right result, and hangs, wrong data and races are named."""

from __future__ import annotations

import dataclasses

import pytest

from gapless.errors import InputError
from gapless.io.taccl_ef import Gpu, Program, Step, ThreadBlock, lower, run, verify
from gapless.ir.collective import Collective, allgather


def with_blocks(program: Program, gpu: int, *blocks: ThreadBlock) -> Program:
    gpus = tuple(dataclasses.replace(each, threadblocks=blocks) if each.id == gpu else each for each in program.gpus)
    return dataclasses.replace(program, gpus=gpus)


def with_step(program: Program, gpu: int, tb: int, step: int, **fields: object) -> Program:
    blocks = list(program.gpus[gpu].threadblocks)
    steps = list(blocks[tb].steps)
    steps[step] = dataclasses.replace(steps[step], **fields)
    blocks[tb] = dataclasses.replace(blocks[tb], steps=tuple(steps))
    return with_blocks(program, gpu, *blocks)


def rules(program: Program, collective: Collective, **options: object) -> set[str]:
    return {problem.rule for problem in run(program, collective, **options).problems}


def allreduce(ranks: int, chunks: int) -> Collective:
    everything = (tuple(range(chunks)),) * ranks
    return Collective("allreduce", ranks, chunks, everything, everything, reduces=True)


def ring_allreduce(make_program, ranks: int) -> Program:
    """One block a rank: each chunk is summed once round the ring, then copied once round."""
    gpus = []
    for rank in range(ranks):
        kinds = ["s"] + ["rrs"] * (ranks - 2) + ["rrcs"] + ["rcs"] * (ranks - 2) + ["r"]
        chunks = [(rank - at) % ranks for at in range(len(kinds))]
        steps = tuple(
            Step(at, kind, "i", chunk, "o", chunk, 1)
            for at, (kind, chunk) in enumerate(zip(kinds, chunks, strict=True))
        )
        block = ThreadBlock(0, (rank + 1) % ranks, (rank - 1) % ranks, 0, steps)
        gpus.append(Gpu(rank, ranks, ranks, 0, (block,)))
    return make_program("allreduce", ranks, gpus, inplace=True, redop="sum")


def pairwise_reduce_scatter(make_program, ranks: int) -> Program:
    """Each rank sends every other its part; the parts are added to the rank's own one block after the other."""
    gpus = []
    for rank in range(ranks):
        own = ThreadBlock(0, -1, -1, 0, (Step(0, "cpy", "i", rank, "o", 0, 1, hasdep=True),))
        blocks = [own]
        peers = [peer for peer in range(ranks) if peer != rank]
        for number, peer in enumerate(peers):
            last = number == len(peers) - 1
            step = Step(0, "rrc", "o", 0, "o", 0, 1, depid=number, deps=0, hasdep=not last)
            blocks.append(ThreadBlock(number + 1, -1, peer, 0, (step,)))
        for peer in peers:
            blocks.append(ThreadBlock(len(blocks), peer, -1, 0, (Step(0, "s", "i", peer, "o", 0, 1),)))
        gpus.append(Gpu(rank, ranks, 1, 0, tuple(blocks)))
    return make_program("reducescatter", ranks, gpus)


def gather_and_reduce(make_program) -> Program:
    """Three ranks allreduce one chunk: rank 0 collects in scratch, adds with fused `re`, sends the sum back."""
    collect = (
        ThreadBlock(0, -1, 1, 0, (Step(0, "r", "i", 0, "s", 0, 1, hasdep=True),)),
        ThreadBlock(1, -1, 2, 0, (Step(0, "r", "i", 0, "s", 1, 1, hasdep=True),)),
        ThreadBlock(
            2,
            -1,
            -1,
            0,
            (
                Step(0, "nop", "i", -1, "o", -1, 0, depid=0, deps=0),
                Step(1, "re", "s", 0, "i", 0, 1, depid=1, deps=0),
                Step(2, "re", "s", 1, "i", 0, 1, hasdep=True),
            ),
        ),
        ThreadBlock(3, 1, -1, 0, (Step(0, "s", "i", 0, "i", 0, 1, depid=2, deps=2),)),
        ThreadBlock(4, 2, -1, 0, (Step(0, "s", "i", 0, "i", 0, 1, depid=2, deps=2),)),
    )
    gpus = [Gpu(0, 1, 0, 2, collect)]
    for rank in (1, 2):
        steps = (Step(0, "s", "i", 0, "s", rank - 1, 1), Step(1, "r", "i", 0, "i", 0, 1))
        gpus.append(Gpu(rank, 1, 0, 0, (ThreadBlock(0, 0, 0, 0, steps),)))
    return make_program("allreduce", 1, gpus, inplace=True, outofplace=False)


def swap(make_program) -> tuple[Program, Collective]:
    """In place, two ranks swap a chunk; rank 0 overwrites what it sent once rank 1's answer shows that it arrived."""
    first = Gpu(
        0,
        1,
        1,
        0,
        (
            ThreadBlock(0, 1, -1, 0, (Step(0, "s", "i", 0, "s", 0, 1),)),
            ThreadBlock(1, -1, 1, 0, (Step(0, "r", "i", 0, "o", 0, 1),)),
        ),
    )
    answer = (Step(0, "s", "i", 0, "o", 0, 1, depid=0, deps=0), Step(1, "cpy", "s", 0, "o", 0, 1))
    second = Gpu(
        1,
        1,
        1,
        1,
        (
            ThreadBlock(0, -1, 0, 0, (Step(0, "r", "i", 0, "s", 0, 1, hasdep=True),)),
            ThreadBlock(1, 0, -1, 0, answer),
        ),
    )
    collective = Collective("custom", 2, 1, inputs=((0,), (1,)), outputs=((1,), (0,)))
    return make_program("custom", 1, [first, second], inplace=True, outofplace=False), collective


def test_a_program_without_a_mistake_ends_with_the_right_result(exchange):
    outcome = run(exchange, allgather(2))
    assert outcome.is_ok
    assert not outcome.is_deadlocked
    assert outcome.placements == ("out-of-place",)
    assert outcome.steps_run == outcome.step_count == 6


def test_the_number_of_interpreted_parts_follows_from_nchunksperloop(make_ring):
    collective, schedule = make_ring(4, 2)
    program = lower(schedule, collective, instances=2)
    assert run(program, allgather(4, 2)).is_ok
    assert run(program, allgather(4, 1)).is_ok
    assert run(program, allgather(4, 4)).is_ok


@pytest.mark.parametrize("ranks", [3, 4, 7])
def test_a_ring_allreduce_in_one_block_needs_two_slots(make_program, ranks):
    program = ring_allreduce(make_program, ranks)
    assert verify(program) == []
    for slots in (2, 8):
        outcome = run(program, allreduce(ranks, ranks), slots=slots)
        assert outcome.problems == ()
        assert outcome.placements == ("out-of-place", "in-place")
    outcome = run(program, allreduce(ranks, ranks), slots=1)
    assert {problem.rule for problem in outcome.problems} == {"deadlock", "deadlock-cycle"}
    assert outcome.is_deadlocked


@pytest.mark.parametrize("slots", [0, 1, 2])
def test_a_pairwise_reduce_scatter_sums_all_parts(make_program, slots):
    program = pairwise_reduce_scatter(make_program, 4)
    everything = (tuple(range(4)),) * 4
    collective = Collective("reducescatter", 4, 1, inputs=everything, outputs=((0,), (1,), (2,), (3,)), reduces=True)
    assert verify(program, "executor") == []
    assert run(program, collective, slots=slots).problems == ()


@pytest.mark.parametrize("order", [None, 1, 2])
def test_reductions_from_scratch_wait_by_nops(make_program, order):
    program = gather_and_reduce(make_program)
    assert verify(program) == []
    assert run(program, allreduce(3, 1), order=order).problems == ()


def test_a_reduction_that_does_not_wait_is_a_race(make_program):
    program = with_step(gather_and_reduce(make_program), 0, 2, 1, depid=-1, deps=-1)
    assert "race" in rules(program, allreduce(3, 1))


def test_a_missing_dependency_between_sums_is_a_race_that_names_both_steps(make_program):
    program = pairwise_reduce_scatter(make_program, 3)
    everything = (tuple(range(3)),) * 3
    collective = Collective("reducescatter", 3, 1, inputs=everything, outputs=((0,), (1,), (2,)), reduces=True)
    program = with_step(program, 1, 2, 0, depid=0, deps=0)
    for order in (None, 1, 2, 3):
        races = [problem for problem in run(program, collective, order=order).problems if problem.rule == "race"]
        assert {problem.gpu for problem in races} == {1}
        named = {(problem.tb, problem.message.split("gpu 1 tb ")[1][0]) for problem in races}
        assert named <= {(1, "2"), (2, "1")}
        assert named


def test_messages_there_and_back_order_accesses(make_program):
    program, collective = swap(make_program)
    assert verify(program, "original") == []
    for order in (None, 1, 2, 3):
        assert run(program, collective, order=order).problems == ()


def test_an_answer_that_waits_for_nothing_orders_nothing(make_program):
    program, collective = swap(make_program)
    program = with_step(program, 1, 1, 0, depid=-1, deps=-1)
    for slots in (1, 2):
        assert "race" in rules(program, collective, slots=slots)


def test_a_full_queue_is_no_order(make_program):
    # Rank 0 overwrites i[0] once rank 1 has taken the first of two messages: with one slot that is always after the
    # second was sent, but with two slots it need not be.
    sends = tuple(Step(number, "s", "i", 0, "s", number, 1) for number in range(2))
    first = Gpu(
        0,
        1,
        1,
        0,
        (
            ThreadBlock(0, 1, -1, 0, sends),
            ThreadBlock(1, -1, 1, 0, (Step(0, "r", "i", 0, "o", 0, 1),)),
        ),
    )
    takes = tuple(Step(number, "r", "i", 0, "s", number, 1, hasdep=number == 0) for number in range(2))
    answer = (Step(0, "s", "i", 0, "o", 0, 1, depid=0, deps=0), Step(1, "cpy", "s", 0, "o", 0, 1))
    second = Gpu(1, 1, 1, 2, (ThreadBlock(0, -1, 0, 0, takes), ThreadBlock(1, 0, -1, 0, answer)))
    collective = Collective("custom", 2, 1, inputs=((0,), (1,)), outputs=((1,), (0,)))
    program = make_program("custom", 1, [first, second], inplace=True, outofplace=False)
    assert verify(program, "original") == []
    for slots in (1, 2):
        assert "race" in rules(program, collective, slots=slots)


def one_block_each(make_program, steps) -> Program:
    """Allgather of two ranks with `steps(rank, peer)` in one block that sends and receives, and the own copy."""
    gpus = []
    for rank in range(2):
        peer = 1 - rank
        numbered = tuple(dataclasses.replace(step, s=number) for number, step in enumerate(steps(rank, peer)))
        copies = ThreadBlock(1, -1, -1, 0, (Step(0, "cpy", "i", 0, "o", 2 * rank, 2),))
        gpus.append(Gpu(rank, 2, 4, 0, (ThreadBlock(0, peer, peer, 0, numbered), copies)))
    return make_program("allgather", 4, gpus)


def send(rank: int, chunk: int) -> Step:
    return Step(0, "s", "i", chunk, "o", 2 * rank + chunk, 1)


def receive(peer: int, chunk: int) -> Step:
    return Step(0, "r", "i", chunk, "o", 2 * peer + chunk, 1)


def test_who_sends_before_receiving_needs_as_many_slots_as_sends(make_program):
    def turns(rank, peer):
        return [send(rank, 0), receive(peer, 0), send(rank, 1), receive(peer, 1)]

    def sends_first(rank, peer):
        return [send(rank, 0), send(rank, 1), receive(peer, 0), receive(peer, 1)]

    for steps, enough in ((turns, 1), (sends_first, 2)):
        program = one_block_each(make_program, steps)
        for slots in range(4):
            assert run(program, allgather(2, 2), slots=slots).is_deadlocked == (slots < enough)


def test_a_deadlock_names_the_steps_and_what_they_wait_for(make_program):
    program = one_block_each(make_program, lambda rank, peer: [receive(peer, 0), send(rank, 0)])
    outcome = run(program, allgather(2, 2))
    assert [str(problem) for problem in outcome.problems] == [
        "gpu 0 tb 0 step 0: waits to receive from gpu 1 on chan 0 for ever [deadlock]",
        "gpu 1 tb 0 step 0: waits to receive from gpu 0 on chan 0 for ever [deadlock]",
        "gpu 0 tb 0 step 0: 2 blocks wait for each other: gpu 0 tb 0 step 0 <- gpu 1 tb 0 step 0 [deadlock-cycle]",
    ]


def test_chunks_received_in_the_wrong_order_are_named(make_program):
    program = one_block_each(
        make_program,
        lambda rank, peer: [send(rank, 0), receive(peer, rank), send(rank, 1), receive(peer, 1 - rank)],
    )
    assert verify(program) == []
    assert [str(problem) for problem in run(program, allgather(2, 2)).problems] == [
        "gpu 1: rank 1 output chunk 0: expected rank 0's input 0, got rank 0's input 1 [wrong-chunk]",
        "gpu 1: rank 1 output chunk 1: expected rank 0's input 1, got rank 0's input 0 [wrong-chunk]",
    ]


def test_every_dependency_of_a_lowered_program_prevents_a_race(make_ring):
    collective, schedule = make_ring(5, 2)
    program = lower(schedule, collective, instances=2, fuse=False)
    waiting = [
        (gpu.id, block.id, step.s)
        for gpu in program.gpus
        for block in gpu.threadblocks
        for step in block.steps
        if step.depid >= 0
    ]
    assert len(waiting) == 5 * 3 * 2
    for place in waiting:
        assert "race" in rules(with_step(program, *place, depid=-1, deps=-1), collective)


MISTAKES = {
    "no own-chunk copy": (lambda p: with_blocks(p, 1, *p.gpus[1].threadblocks[:2]), {"missing-chunk"}),
    "wrong destination": (lambda p: with_step(p, 0, 1, 0, dstoff=0), {"missing-chunk", "race"}),
    "copy to the wrong place": (lambda p: with_step(p, 0, 2, 0, dstoff=1), {"missing-chunk", "race"}),
    "sends what was never written": (
        lambda p: with_step(p, 0, 0, 0, srcbuf="o", srcoff=1),
        {"race", "unwritten-read", "wrong-chunk"},
    ),
    "missing receive": (
        lambda p: with_blocks(p, 1, p.gpus[1].threadblocks[0], ThreadBlock(1, -1, 0, 0), p.gpus[1].threadblocks[2]),
        {"missing-chunk"},
    ),
    "missing send": (
        lambda p: with_blocks(p, 0, ThreadBlock(0, 1, -1, 0), *p.gpus[0].threadblocks[1:]),
        {"deadlock"},
    ),
    "missing receiver": (
        lambda p: with_blocks(p, 1, p.gpus[1].threadblocks[0], ThreadBlock(1, -1, -1, 0), p.gpus[1].threadblocks[2]),
        {"missing-chunk"},
    ),
    "dependency whose target has no dependents": (lambda p: with_step(p, 0, 0, 0, depid=2, deps=0), {"deadlock"}),
    "nchannels too small": (lambda p: dataclasses.replace(p, nchannels=0), {"deadlock"}),
    "cnt that differs": (
        lambda p: with_step(dataclasses.replace(p), 1, 1, 0, cnt=2),
        {"cnt-mismatch", "missing-chunk", "race"},
    ),
    "wait for each other": (
        lambda p: with_step(with_step(p, 0, 0, 0, depid=2, deps=0, hasdep=True), 0, 2, 0, depid=0, deps=0, hasdep=True),
        {"deadlock", "deadlock-cycle"},
    ),
}


@pytest.mark.parametrize("title", MISTAKES)
@pytest.mark.parametrize("order", [None, 7])
def test_each_single_mistake_shows_when_the_program_is_run(exchange, title, order):
    mutate, expected = MISTAKES[title]
    found = rules(mutate(exchange), allgather(2), order=order)
    assert found & expected
    assert found <= {*expected, "wrong-chunk", "deadlock"}


def test_a_send_that_nobody_receives_fits_the_queue_but_not_a_rendezvous(exchange):
    program = with_blocks(exchange, 1, exchange.gpus[1].threadblocks[0], ThreadBlock(1, -1, 0, 0))
    assert not run(program, allgather(2), slots=1).is_deadlocked
    assert run(program, allgather(2), slots=0).is_deadlocked


def test_an_out_of_place_program_without_copies_is_wrong_only_out_of_place(exchange):
    gpus = tuple(dataclasses.replace(gpu, threadblocks=gpu.threadblocks[:2]) for gpu in exchange.gpus)
    program = dataclasses.replace(exchange, inplace=True, gpus=gpus)
    assert rules(program, allgather(2), in_place=False) == {"missing-chunk"}
    assert rules(program, allgather(2), in_place=True) == set()
    assert rules(program, allgather(2)) == {"missing-chunk"}


@pytest.mark.parametrize(
    ("mutate", "message"),
    [
        (lambda p: with_step(p, 0, 0, 0, cnt=0), "can't be run: gpu 0 tb 0 step 0: cnt must be in 1..71, got 0"),
        (lambda p: with_step(p, 0, 0, 0, srcoff=1), "must stay in i"),
        (lambda p: with_step(p, 0, 0, 0, type="ra"), "type must be one of"),
        (lambda p: with_step(p, 0, 0, 0, depid=7, deps=0), "depid must be a block of this GPU"),
        (lambda p: dataclasses.replace(p, gpus=p.gpus[:1]), "one gpu element for each of the 2 ranks"),
        (lambda p: with_blocks(p, 0, *p.gpus[0].threadblocks, ThreadBlock(3, 1, -1, 0)), "belongs to tb 0 already"),
    ],
)
def test_a_program_without_a_meaning_is_refused(exchange, mutate, message):
    with pytest.raises(InputError, match=message):
        run(mutate(exchange), allgather(2))


def test_a_program_for_another_collective_is_refused(exchange):
    with pytest.raises(InputError, match="ngpus must be the collective's 3, got 2"):
        run(exchange, allgather(3))
    with pytest.raises(InputError, match="nchunksperloop must be a multiple of the 4 chunks"):
        run(exchange, allgather(2, 2))
    other = Collective("custom", 2, 1, inputs=((0, 1), (0, 1)), outputs=((0,), (1,)), reduces=True)
    with pytest.raises(InputError, match="gpu 0: o_chunks must be at most 1 for this collective, got 2"):
        run(exchange, other)
    with pytest.raises(InputError, match="slots: must be >= 0, got -1"):
        run(exchange, allgather(2), slots=-1)
