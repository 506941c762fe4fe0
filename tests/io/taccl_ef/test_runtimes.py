"""The runtimes' models: each rule of loading, allocating and launching has a file that breaks it on purpose."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hand_made_collectives import CASES, chain_scatter, pairs_alltoall, relayed_alltoall, ring_allgather, taker

from gapless.errors import InputError
from gapless.io.taccl_ef import Gpu, Step, ThreadBlock, judge, lower, parse_xml, run, served_placement, verify, xml_text
from gapless.io.taccl_ef.program import EXECUTOR, NO_MAX_BYTES, ORIGINAL, runtime_for


def rules(program, runtime, **how):
    return {problem.rule for problem in verify(program, runtime, **how)}


def one_sided(steps=1, blocks=1):
    """A ring, and at rank 0 so many more blocks of so many copies."""
    program = lower(*ring_allgather(3)[::-1])
    first = program.gpus[0]
    copies = tuple(Step(number, "cpy", "i", 0, "o", 0, 1) for number in range(steps))
    more = tuple(ThreadBlock(len(first.threadblocks) + number, -1, -1, 0, copies) for number in range(blocks))
    gpu = dataclasses.replace(first, threadblocks=first.threadblocks + more)
    return dataclasses.replace(program, gpus=(gpu, *program.gpus[1:]))


def without(attribute):
    return parse_xml(re.sub(f' {attribute}="[^"]*"', "", xml_text(lower(*ring_allgather(3)[::-1]))), "f.xml")[0]


def with_scratch(max_bytes):
    program = lower(*relayed_alltoall(6)[::-1])
    assert max(gpu.s_chunks for gpu in program.gpus) > 0
    return dataclasses.replace(program, max_bytes=max_bytes)


BROKEN = {
    "blocks": (lambda: one_sided(blocks=220), {"original": "tb-limit", "executor": ""}),
    "steps": (lambda: one_sided(steps=65), {"executor": "step-limit", "original": ""}),
    "name": (lambda: without("name"), {"original": "attribute", "executor": ""}),
    "outofplace": (lambda: without("outofplace"), {"executor": "attribute", "original": ""}),
    "minBytes": (lambda: without("minBytes"), {"executor": "attribute", "original": ""}),
    "maxBytes": (lambda: without("maxBytes"), {"executor": "attribute", "original": ""}),
    "its name of reducescatter": (
        lambda: lower(*CASES["reducescatter-ring"]()[::-1], runtime="original"),
        {"executor": "coll", "original": ""},
    ),
    "the other's name of reducescatter": (
        lambda: lower(*CASES["reducescatter-ring"]()[::-1], runtime="executor"),
        {"original": "coll", "executor": ""},
    ),
    "custom": (
        lambda: lower(*CASES["sendrecv-relayed"]()[::-1], runtime="original"),
        {"executor": "coll", "original": ""},
    ),
    "chunks": (
        lambda: lower(*CASES["gather-chain"]()[::-1], runtime="executor"),
        {"original": "coll", "executor": ""},
    ),
    "maxBytes of 0": (
        lambda: dataclasses.replace(lower(*ring_allgather(3)[::-1]), max_bytes=0),
        {"original": "byte-range", "executor": ""},
    ),
    "scratch without an end": (lambda: with_scratch(NO_MAX_BYTES), {"original": "scratch", "executor": ""}),
    "alltoall in place": (
        lambda: lower(*pairs_alltoall(4)[::-1], placement="in-place", runtime="executor"),
        {"original": "placement", "executor": ""},
    ),
}


@pytest.mark.parametrize("title", BROKEN)
def test_a_file_that_one_runtime_would_not_load_is_refused_by_that_rule_and_valid_for_the_other(title):
    build, wanted = BROKEN[title]
    program = build()
    for runtime, rule in wanted.items():
        verdict = judge(program, runtime)
        if rule:
            assert not verdict.is_valid
            assert rule in {problem.rule for problem in verdict.problems}
            assert rule in rules(program, "both")
        else:
            assert rules(program, runtime) == set()


def test_more_blocks_than_multiprocessors_are_never_launched():
    assert rules(lower(*ring_allgather(3)[::-1]), "executor", sm_count=1) == {"co-residency"}


@pytest.mark.parametrize("runtime", ["original", "both"])
@pytest.mark.parametrize("max_scratch_bytes", [2**20, 2**32])
def test_the_scratch_of_an_export_is_the_most_that_fits(runtime, max_scratch_bytes):
    program = lower(*relayed_alltoall(6)[::-1], runtime=runtime, max_scratch_bytes=max_scratch_bytes)
    assert verify(program, runtime, max_scratch_bytes=max_scratch_bytes) == []
    assert 0.9 * max_scratch_bytes < ORIGINAL.scratch_bytes(program) <= max_scratch_bytes
    assert EXECUTOR.scratch_bytes(program) == 0
    chunks = max(gpu.s_chunks for gpu in program.gpus)
    more = dataclasses.replace(program, max_bytes=program.max_bytes + program.nchunksperloop // chunks + 1)
    assert rules(more, runtime, max_scratch_bytes=max_scratch_bytes) == {"scratch"}


def test_a_size_that_takes_too_much_scratch_is_refused_with_the_largest_that_fits():
    case = relayed_alltoall(6)[::-1]
    most = lower(*case, runtime="original", max_scratch_bytes=2**30).max_bytes
    with pytest.raises(InputError, match=rf"allocates \d+ bytes of scratch .*; maxBytes may be {most} \[scratch\]$"):
        lower(*case, runtime="original", max_scratch_bytes=2**30, max_bytes=2**40)
    assert lower(*case, runtime="executor", max_bytes=2**40).max_bytes == 2**40


def test_without_scratch_or_for_the_executor_there_is_no_limit():
    assert lower(*ring_allgather(3)[::-1], runtime="original").max_bytes == NO_MAX_BYTES
    assert lower(*relayed_alltoall(6)[::-1], runtime="executor").max_bytes == NO_MAX_BYTES


@pytest.mark.parametrize(
    ("placement", "collective", "runtime", "served"),
    [
        (None, "allgather", "executor", "both"),
        (None, "allgather", "original", "out-of-place"),
        (None, "allgather", "both", "out-of-place"),
        ("in-place", "allgather", "both", "in-place"),
        ("both", "alltoall", "executor", "both"),
    ],
)
def test_a_file_serves_the_calls_that_its_runtimes_take_it_for(placement, collective, runtime, served):
    assert served_placement(placement, collective, runtime) == served


@pytest.mark.parametrize("runtime", ["original", "both"])
def test_one_file_is_no_longer_said_to_serve_calls_that_the_original_runtime_would_not_take_it_for(runtime):
    with pytest.raises(InputError, match=r"placement: .*, got both; export once with in-place and once with out-of-pl"):
        served_placement("both", "allgather", runtime)
    with pytest.raises(InputError, match="placement: original offers ALLTOALL between two buffers only, got in-place"):
        served_placement("in-place", "alltoall", runtime)


@pytest.mark.parametrize(
    ("collective", "runtime"),
    [("allgather", "both"), ("reducescatter", "executor"), ("reduce_scatter", "original"), ("gather", "executor"),
     ("sendrecv", "original"), ("custom", "original")],
)  # fmt: skip
def test_a_file_is_for_those_who_know_its_collective(collective, runtime):
    assert runtime_for(collective) == runtime


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("runtime", ["executor", "original", "both"])
def test_what_receives_and_sends_on_names_one_place(name, runtime):
    collective, schedule = CASES[name]()
    if runtime not in ("original", taker(collective.name)):
        return
    program = lower(schedule, collective, runtime=runtime)
    steps = [step for gpu in program.gpus for block in gpu.threadblocks for step in block.steps]
    assert all((s.srcbuf, s.srcoff) == (s.dstbuf, s.dstoff) for s in steps if s.type == "rcs")
    assert run(program, collective).is_ok


def test_there_are_such_steps():
    program = lower(*chain_scatter(4, 2, 0)[::-1], runtime="executor")
    assert isinstance(program.gpus[0], Gpu)
    assert "rcs" in {step.type for gpu in program.gpus for block in gpu.threadblocks for step in block.steps}
