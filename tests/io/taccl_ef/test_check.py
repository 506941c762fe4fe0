"""Anybody's program is judged against the collective that it claims to be, with its root."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hand_made_collectives import (
    CASES,
    chain_broadcast,
    chain_gather,
    chain_reduce,
    chain_scatter,
    relayed_sendrecv,
    ring_allgather,
    taker,
    tree_broadcast,
    tree_reduce,
)

from gapless.errors import InputError
from gapless.io.taccl_ef import Gpu, Step, ThreadBlock, judge, lower, parse_xml, xml_text

ROOTED = {
    "broadcast": (chain_broadcast, tree_broadcast),
    "gather": (chain_gather,),
    "reduce": (chain_reduce, tree_reduce),
    "scatter": (chain_scatter,),
}
TOOL_MADE = """<algo name="allreduce_ring" nchannels="1" nchunksperloop="3" proto="{proto}" ngpus="3" coll="allreduce" \
inplace="1" redop="sum">
{gpus}</algo>
"""


def ring_by_a_tool(proto="Simple", kinds=("s", "rrs", "rrcs", "rcs", "r")):
    """A ring allreduce in place as a public tool writes it: one block a rank, attributes of the executor left out."""
    gpus = ""
    for rank in range(3):
        gpus += f'  <gpu id="{rank}" i_chunks="3" o_chunks="0" s_chunks="0">\n'
        gpus += f'    <tb id="0" send="{(rank + 1) % 3}" recv="{(rank - 1) % 3}" chan="0">\n'
        for at, kind in enumerate(kinds):
            chunk = (rank - at) % 3
            gpus += f'      <step s="{at}" type="{kind}" srcbuf="i" srcoff="{chunk}" dstbuf="i" dstoff="{chunk}" '
            gpus += 'cnt="1" depid="-1" deps="-1" hasdep="0"/>\n'
        gpus += "    </tb>\n  </gpu>\n"
    return TOOL_MADE.format(proto=proto, gpus=gpus)


def judge_text(text, **how):
    program, warnings = parse_xml(text, "f.xml")
    return judge(program, warnings=tuple(warnings), **how)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("is_original", [False, True])
def test_every_exported_collective_is_recognised(name, is_original):
    collective, schedule = CASES[name]()
    runtime = "original" if is_original else taker(collective.name)
    verdict = judge(lower(schedule, collective, runtime=runtime), runtime)
    assert verdict.is_valid
    assert verdict.executed
    assert verdict.warnings == ()
    assert verdict.collective is not None
    # The inverse of a gather is a scatter, and is called custom as it has no name of its own.
    assert verdict.collective.name == collective.name.replace("custom", "scatter")


@pytest.mark.parametrize("placement", ["in-place", "out-of-place", "both"])
@pytest.mark.parametrize("root", range(4))
@pytest.mark.parametrize("name", ROOTED)
def test_the_root_is_found(name, root, placement):
    for build in ROOTED[name]:
        collective, schedule = build(4, 2, root)
        runtime = taker(name, placement)
        verdict = judge(lower(schedule, collective, placement=placement, runtime=runtime), runtime)
        assert (verdict.is_valid, verdict.root) == (True, root)
        assert f"{name} with root {root} on 4 GPUs: valid, executed" in verdict.summary()


def test_another_root_or_collective_than_the_program_has_is_a_fault():
    program = lower(*chain_broadcast(4, 2, 1)[::-1])
    assert judge(program, root=1).is_valid
    for wrong in (judge(program, root=2), judge(program, collective="reduce", root=1)):
        assert {"wrong-chunk", "missing-chunk", "chunk-count"} & {problem.rule for problem in wrong.problems}
        assert re.search(r": \d+ faults?$", wrong.summary())


@pytest.mark.parametrize("name", ["gather", "scatter"])
def test_what_only_custom_programs_can_hold_has_both_buffers_as_large_as_the_original_runtime_takes_them(name):
    """It compares both with nchunksperloop, as it knows no collective that would tell it another size."""
    program = lower(*ROOTED[name][0](4, 2, 0)[::-1], runtime="original")
    sizes = {(gpu.i_chunks, gpu.o_chunks) for gpu in program.gpus}
    assert program.coll == "custom"
    assert {size for pair in sizes for size in pair} <= {0, program.nchunksperloop}


def test_a_custom_program_is_recognised_by_what_it_does():
    program = lower(*relayed_sendrecv(3)[::-1], runtime="original")
    verdict = judge(program, "original")
    assert "custom (it does sendrecv) with root 0 on 3 GPUs: valid" in verdict.summary()


def test_a_custom_program_that_does_nothing_known_runs_and_is_not_judged():
    def blocks(peer, waits):
        """Receive what the peer adds to the own chunk; once that is done, add the own chunk again."""
        receive = Step(0, "rrc", "i", 0, "o", 0, 1, hasdep=True)
        again = Step(0, "re", "i", 0, "o", 0, 1, *((1, 0) if waits else (-1, -1)))
        return (
            ThreadBlock(0, peer, -1, 0, (Step(0, "s", "i", 0, "o", 0, 1),)),
            ThreadBlock(1, -1, peer, 0, (receive,)),
            ThreadBlock(2, -1, -1, 0, (again,)),
        )

    gpus = tuple(Gpu(rank, 1, 1, 0, blocks(1 - rank, True)) for rank in range(2))
    program = dataclasses.replace(
        lower(*ring_allgather(2)[::-1]), coll="custom", nchunksperloop=1, gpus=gpus, inplace=False, outofplace=True
    )
    verdict = judge(program, "original")
    assert verdict.problems == ()
    assert verdict.collective is None
    assert "its result can't be judged" in verdict.summary()
    broken = dataclasses.replace(program, gpus=(dataclasses.replace(gpus[0], threadblocks=blocks(1, False)), gpus[1]))
    assert "race" in {problem.rule for problem in judge(broken, "original").problems}


def test_a_file_of_the_public_tools_is_valid_for_the_original_runtime_and_refused_by_the_executor():
    verdict = judge_text(ring_by_a_tool(), runtime="original")
    assert verdict.is_valid
    assert verdict.summary() == "allreduce on 3 GPUs: valid, executed in place with 1 and 8 messages in flight"
    assert [warning[:48] for warning in verdict.warnings] == ["needs 2 messages in flight on a connection: Simp"]
    for runtime in ("executor", "both"):
        problems = judge_text(ring_by_a_tool(), runtime=runtime).problems
        assert [problem.rule for problem in problems] == ["attribute"] * 3
        assert [problem.message.split()[0] for problem in problems] == ["outofplace", "minBytes", "maxBytes"]
        assert all(problem.message.endswith("--runtime original") for problem in problems)


def test_more_messages_in_flight_than_the_protocol_holds_are_a_fault():
    def turned(proto):
        """Every rank sends three messages before it receives one."""
        return judge_text(ring_by_a_tool(proto, ("s", "s", "s", "rrc", "rrc", "rrc")), runtime="original")

    few = "needs 3 messages in flight on a connection, Simple holds 2"
    assert any(few in str(each) for each in turned("Simple").problems)
    assert any("needs 3 messages in flight on a connection: LL holds 8" in each for each in turned("LL").warnings)


def test_no_upper_byte_limit_is_a_fault_for_the_original_runtime_only():
    program = dataclasses.replace(lower(*ring_allgather(4)[::-1]), max_bytes=0)
    assert judge(program, "executor").problems == ()
    for runtime in ("original", "both"):
        assert [problem.rule for problem in judge(program, runtime).problems] == ["byte-range"]


def test_what_is_asked_for_must_exist():
    program = lower(*ring_allgather(4)[::-1])
    with pytest.raises(InputError, match=r"collective: must be one of .*, got 'allsum'"):
        judge(program, collective="allsum")
    with pytest.raises(InputError, match="root: must be left out, allgather has none; got 1"):
        judge(program, root=1)
    with pytest.raises(InputError, match=re.escape("root must be in 0..3, got 4")):
        judge(program, collective="broadcast", root=4)


def test_buffers_that_do_not_fit_the_collective_asked_for_are_a_fault():
    program = lower(*CASES["alltoall-pairs"]()[::-1])
    assert {problem.rule for problem in judge(program, collective="scatter").problems} >= {"chunk-count"}


def test_a_program_that_breaks_a_rule_is_not_executed():
    text = xml_text(lower(*ring_allgather(4)[::-1])).replace('chan="0"', 'chan="3"', 1)
    verdict = judge_text(text)
    assert not verdict.executed
    assert verdict.summary().endswith("faults, not executed")


def test_hundreds_of_wrong_chunks_are_named_up_to_a_number():
    program = lower(*ring_allgather(12, 8)[::-1])
    gpus = tuple(
        dataclasses.replace(gpu, threadblocks=tuple(b for b in gpu.threadblocks if b.send >= 0 or b.recv >= 0))
        for gpu in program.gpus
    )
    problems = judge(dataclasses.replace(program, gpus=gpus)).problems
    assert len(problems) == 64 + 1
    assert problems[-1].message == f"{12 * 8 - 64} more output chunks are wrong"


def one_pass_allreduce(ranks):
    """Everyone sends all to everyone in one step and adds up in place, one block a chunk, with fused `re` steps."""
    gpus = []
    for rank in range(ranks):
        peers = [peer for peer in range(ranks) if peer != rank]
        blocks = []
        for block in range(ranks):
            steps = []
            if block:
                slot = (block - 1) * ranks
                there = (rank - (rank > peers[block - 1])) * ranks
                steps.append(Step(0, "s", "i", 0, "s", there, ranks, hasdep=True))
                steps.append(Step(1, "r", "i", 0, "s", slot, ranks, hasdep=True))
            awaited = [(other, at) for other in range(1, ranks) if other != block for at in (0, 1)]
            steps += [Step(0, "nop", "i", -1, "o", -1, 0, *each) for each in awaited[:-1]]
            last = awaited[-1]
            for each in range(ranks - 1):
                steps.append(Step(0, "re", "s", each * ranks + block, "i", block, 1, *(last if not each else (-1, -1))))
            numbered = tuple(dataclasses.replace(step, s=number) for number, step in enumerate(steps))
            peer = peers[block - 1] if block else -1
            blocks.append(ThreadBlock(block, peer, peer, 0, numbered))
        gpus.append(Gpu(rank, ranks, 0, ranks * (ranks - 1), tuple(blocks)))
    return tuple(gpus)


def test_a_one_pass_allreduce_with_fused_reductions_is_valid_and_its_dependencies_count():
    base = lower(*ring_allgather(4)[::-1], placement="in-place")
    program = dataclasses.replace(base, coll="allreduce", nchunksperloop=4, gpus=one_pass_allreduce(4))
    assert judge(program, "executor").summary().startswith("allreduce on 4 GPUs: valid")
    for number in range(4):
        # A nop that no longer waits for what the reduction overwrites, or reads.
        gpu = program.gpus[0]
        block = gpu.threadblocks[0]
        other = dataclasses.replace(block.steps[number], depid=block.steps[-3].depid, deps=block.steps[-3].deps)
        steps = (*block.steps[:number], other, *block.steps[number + 1 :])
        blocks = (dataclasses.replace(block, steps=steps), *gpu.threadblocks[1:])
        broken = dataclasses.replace(program, gpus=(dataclasses.replace(gpu, threadblocks=blocks), *program.gpus[1:]))
        found = {problem.rule for problem in judge(broken, "executor").problems}
        # That a peer was sent to is known too where its answer came: both steps are in one block, in this order.
        assert found == ({"race"} if number % 2 else set())
