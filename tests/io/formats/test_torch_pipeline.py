"""Schedules of torch.distributed.pipelining as CSV: the rows, what is refused, and that no rank waits in a circle."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from pipeline_plans import baseline_plan

from gapless.encodings.pipeline.programs.program import program_of
from gapless.encodings.pipeline.schedules.baselines import BASELINES
from gapless.errors import InputError
from gapless.io.formats.torch_pipeline import Action, ActionOrder, rows_of, torch_pipeline_text

ONE_COPY = [name for name, baseline in BASELINES.items() if baseline.placement != "bidirectional"]
"""What torch can play: no second copy of a model."""


def actions(text: str) -> tuple[Action, ...]:
    """`0F0 1F0`, read."""
    found = [re.fullmatch(r"(\d+)([FIWB])(\d+)", word) for word in text.split()]
    return tuple(Action(int(match[1]), match[2], int(match[3])) for match in found if match)


TWO = ActionOrder((0, 1), 2, actions("0F0 0F1 1F0 1I0 0I0 1W0 0W0 1F1 1B1 0B1"))


def test_compute_rows_are_what_each_rank_computes() -> None:
    assert torch_pipeline_text(TWO, "compute") == "0F0,0F1,0I0,0W0,0B1\n1F0,1I0,1W0,1F1,1B1\n"


def test_communication_rows_have_messages_and_divide_gradients_once() -> None:
    assert torch_pipeline_text(TWO, "communication") == (
        "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0I0,0W0,0RECV_B1,0B1,0REDUCE_GRAD\n"
        "1RECV_F0,1RECV_F1,1F0,1I0,1SEND_B0,1W0,1F1,1B1,1SEND_B1,1REDUCE_GRAD\n"
    )


def test_losses_that_torch_would_count_as_others_are_refused() -> None:
    order = ActionOrder((0,), 2, actions("0F1 0F0 0B1 0B0"))
    with pytest.raises(InputError, match=r"^order: torch counts .* stage 0 must run 0, 1, \.\.\., got 1 0$"):
        rows_of(order, "compute")


def test_nothing_is_sent_within_a_rank() -> None:
    turn = ActionOrder((0, 1, 1, 0), 1, actions("0F0 1F0 2F0 3F0 3B0 2B0 1B0 0B0"))
    assert [Counter(word[1:5] for word in row)["SEND"] for row in rows_of(turn, "communication")] == [2, 2]


TURNED = actions("0F0 1F0 2F0 3F0 3B0 0F1 2B0 1B0 0B0 1F1 2F1 3F1 3B1 2B1 1B1 0B1")


def test_messages_leave_in_the_order_that_they_are_given() -> None:
    queue = actions("0F0 0F1 2F0 2F1 1B0 1B1")
    with pytest.raises(InputError, match=r"messages\[0\]: must be from one rank to another, got 0F0 0F1 2F0"):
        ActionOrder((0, 1, 1, 0), 2, TURNED, (queue,))
    as_made = ActionOrder((0, 1, 1, 0), 2, TURNED)
    assert rows_of(as_made, "communication")[0][:6] == ["0F0", "0SEND_F0", "3RECV_F0", "3F0", "3B0", "3SEND_B0"]
    waits = ActionOrder((0, 1, 1, 0), 2, TURNED, (actions("0F0 0F1 3B0 3B1"),))
    row = rows_of(waits, "communication")[0]
    assert row[:8] == ["0F0", "0SEND_F0", "3RECV_F0", "3F0", "3B0", "0F1", "0SEND_F1", "3SEND_B0"]
    assert Counter(rows_of(as_made, "communication")[0]) == Counter(row)


def test_an_order_of_messages_has_all_of_its_link() -> None:
    with pytest.raises(InputError, match=r"messages\[0\]: must be the link's 4 messages, each once, got 0F0 0F1"):
        ActionOrder((0, 1, 1, 0), 2, TURNED, (actions("0F0 0F1"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1F0", r"actions: 1F0 must come after 0F0"),
        ("0F0 0I0 0W0", r"actions: 0I0 must come after 1I0"),
        ("0F0 1F0 1W0", r"actions: 1W0 must come after 1I0"),
        ("0F0 1F0 0F0", r"actions: 0F0 must be there once, got it twice"),
        ("0F0 1F0 1B0 0I0", r"actions: stage 0 must have W of each of 1 micro-batches, got 0"),
        ("0F0", r"actions: stage 0 must have W of each of 1 micro-batches, got 0"),
    ],
)
def test_an_order_that_cannot_run_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ActionOrder((0, 1), 1, actions(text))


def test_each_rank_needs_a_stage() -> None:
    with pytest.raises(InputError, match="rank_of_stage: each of 3 ranks must have a stage"):
        ActionOrder((0, 2), 1, ())


@pytest.mark.parametrize("name", ONE_COPY)
def test_ranks_never_wait_in_a_circle_even_where_a_send_waits_for_its_receiver(name: str) -> None:
    rows = rows_of(program_of(baseline_plan(name)).order, "communication")
    rank_of = {int(re.match(r"\d+", word)[0]): rank for rank, row in enumerate(rows) for word in row}  # type: ignore[index]
    place = [0] * len(rows)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(rows):
            if place[rank] == len(row):
                continue
            match = re.fullmatch(r"(\d+)SEND_([FB])(\d+)", row[place[rank]])
            if match is None and "RECV" not in row[place[rank]]:
                place[rank] += 1
                moved = True
            elif match is not None:
                to = int(match[1]) + (1 if match[2] == "F" else -1)
                peer = rank_of[to]
                if rows[peer][place[peer] : place[peer] + 1] == [f"{to}RECV_{match[2]}{match[3]}"]:
                    place[rank], place[peer], moved = place[rank] + 1, place[peer] + 1, True
    assert place == [len(row) for row in rows]
