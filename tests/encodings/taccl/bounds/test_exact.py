"""Bounds of every class against an independent exact model, which knows nothing of chunks' trees, roots or phases."""

from __future__ import annotations

import pytest
from exact_bounds import compare
from exact_model import Wire, least_ticks
from examples import share

from gapless.ir.collective import Collective, allreduce, broadcast


@pytest.mark.thorough(
    but=(
        "2",
        "3",
        "4",
    )
)
@pytest.mark.parametrize("seed", range(share(27)))
def test_bounds_are_in_order_below_the_optimum(seed: int) -> None:
    found = compare(seed, work=1.0)
    assert found.in_order, found


def test_the_model_groups_what_is_worth_it() -> None:
    wires = [Wire(0, 1, 5, 2), Wire(1, 2, 5, 2), Wire(2, 0, 5, 2)]
    assert least_ticks(wires, broadcast(3, 2), 100, 2, 1.0).ticks == 18  # both together; one by one it is 21


def test_the_model_adds_partial_sums() -> None:
    line = [Wire(0, 1, 1, 3), Wire(1, 2, 1, 3), Wire(2, 3, 1, 3)]
    summed = Collective("sum", 4, 1, ((0,),) * 4, ((), (), (), (0,)), reduces=True)
    assert least_ticks(line, summed, 100, 2, 1.0).ticks == 12


def test_a_copy_is_not_sent_while_it_is_added_to() -> None:
    pair = [Wire(0, 1, 1, 3), Wire(1, 0, 1, 3)]
    whole = Collective("one", 2, 1, ((0,), (0,)), ((0,), (0,)), reduces=True)
    assert least_ticks(pair, whole, 100, 2, 1.0).ticks == 8
    assert least_ticks(pair, allreduce(2), 100, 2, 1.0).ticks == 8


def test_there_may_be_no_schedule_by_the_limit() -> None:
    found = least_ticks([Wire(0, 1, 1, 3), Wire(1, 0, 1, 3)], broadcast(2), 3, 1, 1.0)
    assert found.ticks is None
    assert found.proven
