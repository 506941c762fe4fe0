"""Random schedules lower to programs that run clean; random damage to a program or its text never crashes a check."""

from __future__ import annotations

import dataclasses
import re

from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from random_allgathers import allgathers

from gapless.errors import InputError
from gapless.io.taccl_ef import PLACEMENTS, lower, parse_xml, run, verify, xml_text


@examples(60)
@given(
    case=allgathers(),
    instances=st.sampled_from([1, 2, 3]),
    placement=st.sampled_from(sorted(PLACEMENTS)),
    merge=st.booleans(),
    order=st.none() | st.integers(0, 9),
)
def test_random_tree_schedules_lower_to_programs_that_run_clean(case, instances, placement, merge, order):
    collective, schedule = case
    program = lower(schedule, collective, instances=instances, placement=placement, merge_blocks=merge)
    assert verify(program) == []
    for slots in (0, 1):
        assert run(program, collective, slots=slots, order=order).problems == ()
    assert parse_xml(xml_text(program), "text") == (program, [])


@examples(100)
@given(
    case=allgathers(),
    place=st.integers(0, 10**6),
    field=st.sampled_from(["s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"]),
    number=st.integers(-2, 8),
    word=st.sampled_from(["i", "o", "s", "r", "rcs", "rrc", "rrs", "rrcs", "cpy", "re", "nop"]),
)
def test_a_damaged_step_is_judged_without_a_crash_and_alike_for_every_order(case, place, field, number, word):
    collective, schedule = case
    program = lower(schedule, collective, merge_blocks=True)
    value = word if field in ("type", "srcbuf", "dstbuf") else bool(number % 2) if field == "hasdep" else number
    damaged = _damage(program, place, {field: value})
    verify(damaged)
    try:
        outcomes = [run(damaged, collective, slots=2, order=order) for order in (None, 1, 2)]
    except InputError:
        assert verify(damaged) != []
        return
    assert len({outcome.steps_run for outcome in outcomes}) == 1
    assert len({outcome.is_ok for outcome in outcomes}) == 1


def _damage(program, place, fields):
    """The program with one of its steps changed; `place` picks it."""
    places = [
        (gpu, block, step)
        for gpu, each in enumerate(program.gpus)
        for block, inner in enumerate(each.threadblocks)
        for step in range(len(inner.steps))
    ]
    gpu, block, step = places[place % len(places)]
    inner = program.gpus[gpu].threadblocks[block]
    steps = (*inner.steps[:step], dataclasses.replace(inner.steps[step], **fields), *inner.steps[step + 1 :])
    blocks = list(program.gpus[gpu].threadblocks)
    blocks[block] = dataclasses.replace(inner, steps=steps)
    gpus = list(program.gpus)
    gpus[gpu] = dataclasses.replace(gpus[gpu], threadblocks=tuple(blocks))
    return dataclasses.replace(program, gpus=tuple(gpus))


@examples(200)
@given(
    case=allgathers(),
    at=st.integers(0, 10**6),
    length=st.integers(0, 40),
    insert=st.text(st.sampled_from("<>/=\"' \n\t!-?a0&"), max_size=4),
)
def test_a_damaged_text_is_read_or_refused_in_one_line(case, at, length, insert):
    text = xml_text(lower(*case[::-1]))
    at %= len(text)
    message = ""
    try:
        program, _ = parse_xml(text[:at] + insert + text[at + length :], "text")
        verify(program)
    except InputError as error:
        message = str(error)
    assert re.fullmatch("(text:[0-9]+: .+)?", message)
