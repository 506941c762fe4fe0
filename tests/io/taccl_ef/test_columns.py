"""The arrays of a program say the same as the walk through its steps."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hand_made_collectives import CASES, taker

from gapless.io.taccl_ef import lower
from gapless.io.taccl_ef.execute import execute
from gapless.io.taccl_ef.flat import Flat, columns_of, flatten, rounds_of


def flat_of(name: str) -> Flat:
    collective, schedule = CASES[name]()
    return flatten(lower(schedule, collective, runtime=taker(collective.name)))[0]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("slots", [1, 2])
def test_rounds_keep_what_steps_wait_for_and_every_walk_ends(name: str, slots: int) -> None:
    flat = flat_of(name)
    columns = columns_of(flat)
    rounds = rounds_of(flat, columns, slots)
    for number, (awaited, sent_by) in enumerate(zip(flat.awaited, columns.sent_by.tolist(), strict=True)):
        before = [number - 1] if number > flat.first[flat.owner[number]] else []
        before += [each for each in (awaited, sent_by) if each >= 0]
        assert rounds[number] > max((rounds[each] for each in before), default=0)
    for order in (None, 0):
        assert sorted(execute(flat, columns, 32, slots, order).trace) == list(range(len(flat.steps)))


@pytest.mark.parametrize("name", CASES)
def test_the_messages_of_a_connection_come_in_the_order_in_which_they_were_sent(name: str) -> None:
    flat = flat_of(name)
    sent_by = columns_of(flat).sent_by
    pairs = [pair for number in range(len(flat.connections)) for pair in zip(*flat.transfers(number), strict=True)]
    assert {(int(sent_by[received]), received) for _, received in pairs} == set(pairs)
    assert np.count_nonzero(sent_by >= 0) == len(pairs)


def test_what_waits_for_itself_is_in_no_round() -> None:
    flat = flat_of("allgather-ring")
    victim = next(number for number, step in enumerate(flat.steps) if step.type == "r")
    awaited = [victim if number == victim else other for number, other in enumerate(flat.awaited)]
    stuck = dataclasses.replace(flat, awaited=awaited)
    assert rounds_of(stuck, columns_of(stuck))[victim] == 0
    assert execute(stuck, columns_of(stuck), 32, 1, None).problems
