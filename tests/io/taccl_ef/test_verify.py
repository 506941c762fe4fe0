"""The static checks: a program without a mistake has no problem, and each single mistake is found under its name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from gapless.errors import InputError
from gapless.io.taccl_ef import Gpu, Program, Step, ThreadBlock, lower, verify


def test_a_program_without_a_mistake_has_no_problem(exchange):
    for runtime in ("executor", "original", "both"):
        assert verify(exchange, runtime) == []


def test_an_unknown_runtime_is_refused(exchange):
    with pytest.raises(InputError, match="runtime: must be one of executor, original, both, got 'nccl'"):
        verify(exchange, "nccl")


def change_gpu(program: Program, gpu: int, **fields: object) -> Program:
    gpus = tuple(dataclasses.replace(each, **fields) if each.id == gpu else each for each in program.gpus)
    return dataclasses.replace(program, gpus=gpus)


def change_block(program: Program, gpu: int, tb: int, **fields: object) -> Program:
    blocks = list(program.gpus[gpu].threadblocks)
    blocks[tb] = dataclasses.replace(blocks[tb], **fields)
    return change_gpu(program, gpu, threadblocks=tuple(blocks))


def change_step(program: Program, gpu: int, tb: int, step: int, **fields: object) -> Program:
    steps = list(program.gpus[gpu].threadblocks[tb].steps)
    steps[step] = dataclasses.replace(steps[step], **fields)
    return change_block(program, gpu, tb, steps=tuple(steps))


def put_before(program: Program, gpu: int, tb: int, *new: Step, after: bool = False) -> Program:
    old = program.gpus[gpu].threadblocks[tb].steps
    steps = (*old, *new) if after else (*new, *old)
    numbered = tuple(dataclasses.replace(step, s=number) for number, step in enumerate(steps))
    return change_block(program, gpu, tb, steps=numbered)


def nop(depid: int = -1, deps: int = -1) -> Step:
    return Step(0, "nop", "i", -1, "o", -1, 0, depid, deps)


def many_steps(program: Program, count: int) -> Program:
    copies = tuple(Step(number, "cpy", "i", 0, "o", 0, 1) for number in range(count))
    return change_block(program, 0, 2, steps=copies)


def many_blocks(program: Program, count: int, steps: int = 0) -> Program:
    copies = tuple(Step(number, "cpy", "i", 0, "o", 0, 1) for number in range(steps))
    extra = tuple(ThreadBlock(3 + number, -1, -1, 0, copies) for number in range(count))
    return change_gpu(program, 0, threadblocks=program.gpus[0].threadblocks + extra)


def crowded_channel(program: Program) -> Program:
    """34 ranks, rank 0 sends to all on one channel."""
    senders = tuple(ThreadBlock(peer - 1, peer, -1, 0) for peer in range(1, 34))
    others = tuple(Gpu(peer, 0, 0, 0, (ThreadBlock(0, -1, 0, 0),)) for peer in range(1, 34))
    gpus = (Gpu(0, 0, 0, 0, senders), *others)
    return dataclasses.replace(program, ngpus=34, nchunksperloop=34, gpus=gpus)


def far_dependency(program: Program) -> Program:
    far = many_blocks(program, 126, steps=1)
    far = change_step(far, 0, 128, 0, hasdep=True)
    return change_step(far, 0, 0, 0, depid=128, deps=0)


def cycle_of_dependencies(program: Program) -> Program:
    waiting = change_step(program, 0, 0, 0, depid=2, deps=0, hasdep=True)
    return change_step(waiting, 0, 2, 0, depid=0, deps=0, hasdep=True)


def cycle_through_messages(program: Program) -> Program:
    for rank in range(2):
        program = change_step(change_step(program, rank, 1, 0, hasdep=True), rank, 0, 0, depid=1, deps=0)
    return program


def fused_reductions(program: Program) -> Program:
    first = Step(0, "re", "o", 0, "o", 0, 1)
    return put_before(program, 0, 2, first, dataclasses.replace(first, cnt=2), after=True)


def replace(**fields: object) -> Callable[[Program], Program]:
    return lambda program: dataclasses.replace(program, **fields)


MISTAKES: dict[str, tuple[Callable[[Program], Program], str, str]] = {
    "protocol in lower case": (replace(proto="simple"), "proto", "got 'simple'"),
    "unknown collective": (replace(coll="AllGather"), "coll", "got 'AllGather'"),
    "no placement": (replace(outofplace=False), "placement", "inplace or outofplace must be 1"),
    "odd nthreads": (replace(nthreads=100), "nthreads", "a multiple of 32, 0 for the default, got 100"),
    "byte range reversed": (replace(min_bytes=5, max_bytes=4), "byte-range", "minBytes 5, maxBytes 4"),
    "no upper bytes": (replace(max_bytes=0), "byte-range", "the original runtime never chooses"),
    "nchannels too small": (replace(nchannels=0), "nchannels", "largest chan + 1 = 1, at most 32, got 0"),
    "nchannels too large": (replace(nchannels=33), "nchannels", "largest chan + 1 = 1, at most 32, got 33"),
    "wrong ngpus": (replace(ngpus=3, nchunksperloop=3), "gpu-ids", "each of the 3 ranks: gpu 2"),
    "gpu twice": (lambda p: change_gpu(p, 1, id=0), "gpu-ids", "gpu 1"),
    "missing gpu": (lambda p: dataclasses.replace(p, gpus=p.gpus[:1]), "gpu-ids", "each of the 2 ranks: gpu 1"),
    "odd nchunksperloop": (replace(nchunksperloop=3), "chunk-count", "a multiple of ngpus = 2, got 3"),
    "wrong i_chunks": (
        lambda p: change_gpu(p, 0, i_chunks=2),
        "chunk-count",
        "gpu 0: i_chunks must be 1 for allgather",
    ),
    "huge scratch": (lambda p: change_gpu(p, 0, s_chunks=32769), "chunk-count", "in 0..32768, got 32769"),
    "gap in tb ids": (lambda p: change_block(p, 0, 2, id=3), "tb-ids", "gpu 0: tb ids must be 0..2, each once"),
    "peer that does not exist": (lambda p: change_block(p, 0, 0, send=2), "peer", "rank in 0..1, got 2"),
    "peer is the rank itself": (lambda p: change_block(p, 1, 1, recv=1), "peer", "gpu 1 tb 1: recv must be -1 or"),
    "channel 32": (lambda p: change_block(p, 0, 0, chan=32), "channel", "chan must be in 0..31, got 32"),
    "33 senders on a channel": (crowded_channel, "channel-limit", "gpu 0: 32 blocks may send on one channel, got 33"),
    "217 blocks": (lambda p: many_blocks(p, 214), "tb-limit", "may have 216 thread blocks, got 217"),
    "65 steps": (lambda p: many_steps(p, 65), "step-limit", "gpu 0 tb 2: a block may have 64 steps, got 65"),
    "4097 elements": (lambda p: many_blocks(p, 63, steps=64), "node-limit", "may load 4096 elements"),
    "gap in s": (lambda p: change_step(p, 0, 0, 0, s=1), "step-ids", "s must be 0, got 1"),
    "unknown type": (lambda p: change_step(p, 0, 0, 0, type="ra"), "step-type", "got 'ra'"),
    "unknown buffer": (lambda p: change_step(p, 0, 0, 0, srcbuf="x"), "buffer", "got 'x' and 'o'"),
    "cnt 0": (lambda p: change_step(p, 0, 0, 0, cnt=0), "cnt", "cnt must be in 1..71, got 0"),
    "cnt 72": (lambda p: change_step(p, 0, 0, 0, cnt=72), "cnt", "cnt must be in 1..71, got 72"),
    "send without a send peer": (lambda p: change_block(p, 0, 0, send=-1), "peer-needed", "type s sends"),
    "receive without a recv peer": (lambda p: change_block(p, 0, 1, recv=-1), "peer-needed", "type r receives"),
    "source overrun": (lambda p: change_step(p, 0, 0, 0, cnt=2), "offset", "srcoff 0 with cnt 2 must stay in i"),
    "negative target": (lambda p: change_step(p, 0, 1, 0, dstoff=-1), "offset", "dstoff -1 with cnt 1 must stay in o"),
    "missing receiver": (
        lambda p: change_block(p, 1, 1, recv=-1, steps=()),
        "peer-side",
        "gpu 0 tb 0: no block of gpu 1 receives (sender 0, receiver 1, chan 0)",
    ),
    "channel of the sender only": (
        lambda p: change_block(dataclasses.replace(p, nchannels=2), 0, 0, chan=1),
        "peer-side",
        "no block of gpu 0 sends (sender 0, receiver 1, chan 0)",
    ),
    "connection claimed twice": (
        lambda p: change_block(p, 0, 2, send=1),
        "triple",
        "gpu 0 tb 2: send of (sender 0, receiver 1, chan 0) belongs to tb 0 already",
    ),
    "missing receive": (
        lambda p: change_block(p, 1, 1, steps=()),
        "send-receive",
        "gpu 0 tb 0 step 0: (sender 0, receiver 1, chan 0) has 1 sends and 0 receives",
    ),
    "counts that differ": (
        lambda p: change_step(p, 1, 1, 0, cnt=2),
        "cnt-mismatch",
        "gpu 1 tb 1 step 0: receive 0 of (sender 0, receiver 1, chan 0) has cnt 2",
    ),
    "dependency on a missing block": (lambda p: change_step(p, 0, 0, 0, depid=9, deps=0), "dep-missing", "got 9"),
    "dependency on a missing step": (lambda p: change_step(p, 0, 0, 0, depid=2, deps=4), "dep-missing", "got 4"),
    "half a dependency": (lambda p: change_step(p, 0, 0, 0, depid=2), "dep-missing", "got 2 and -1"),
    "dependency on the own block": (
        lambda p: change_step(p, 0, 0, 0, depid=0, deps=0, hasdep=True),
        "dep-own-block",
        "must not depend on its own block",
    ),
    "dependency on a nop": (
        lambda p: change_step(put_before(p, 0, 2, nop(1, 0)), 0, 0, 0, depid=2, deps=0),
        "dep-nop",
        "must not depend on a nop, got gpu 0 tb 2 step 0",
    ),
    "target without hasdep": (
        lambda p: change_step(p, 0, 0, 0, depid=1, deps=0),
        "dep-hasdep",
        "gpu 0 tb 1 step 0: hasdep must be 1, gpu 0 tb 0 step 0 waits for it",
    ),
    "dependency on block 128": (far_dependency, "dep-limit", "depid must be at most 127 (int8), got 128"),
    "nop without dependency": (lambda p: put_before(p, 0, 0, nop()), "nop-dep", "a nop must carry a dependency"),
    "step after a nop without dependency": (
        lambda p: put_before(change_step(p, 0, 2, 0, hasdep=True), 0, 0, nop(2, 0)),
        "nop-chain",
        "gpu 0 tb 0 step 1: the step after nops must carry a dependency itself",
    ),
    "nop at the end": (
        lambda p: put_before(change_step(p, 0, 2, 0, hasdep=True), 0, 0, nop(2, 0), after=True),
        "nop-chain",
        "gpu 0 tb 0 step 1: a nop must not end a block",
    ),
    "fused reductions of different cnt": (fused_reductions, "re-fusion", "cnt must be 1, got 2"),
    "cycle of dependencies": (cycle_of_dependencies, "dep-cycle", "gpu 0 tb 0 step 0 <- gpu 0 tb 2 step 0"),
    "cycle through messages": (cycle_through_messages, "order-cycle", "4 steps can never run"),
}


@pytest.mark.parametrize("title", MISTAKES)
def test_each_single_mistake_is_found_under_its_name_with_its_number(exchange, title):
    mutate, rule, message = MISTAKES[title]
    problems = verify(mutate(exchange))
    assert rule in {problem.rule for problem in problems}
    assert any(message in str(problem) for problem in problems if problem.rule == rule)


def test_blocks_beyond_the_multiprocessors_are_a_problem_where_their_number_is_known(exchange):
    assert verify(exchange, sm_count=3) == []
    assert {problem.rule for problem in verify(exchange, sm_count=2)} == {"co-residency"}


def test_the_two_runtimes_have_limits_of_their_own(exchange):
    long, wide = many_steps(exchange, 65), many_blocks(exchange, 300)
    assert {problem.rule for problem in verify(long, "executor")} == {"step-limit"}
    assert verify(long, "original") == []
    assert verify(wide, "executor") == []
    assert {problem.rule for problem in verify(wide, "original")} == {"tb-limit"}
    assert verify(dataclasses.replace(exchange, max_bytes=0), "executor") == []


def test_the_order_of_elements_with_right_ids_does_not_matter(make_ring):
    collective, schedule = make_ring(4, 2)
    program = lower(schedule, collective)
    gpus = tuple(
        dataclasses.replace(gpu, threadblocks=gpu.threadblocks[::-1])
        for gpu in sorted(program.gpus, key=lambda g: -g.id)
    )
    assert verify(dataclasses.replace(program, gpus=gpus)) == []
