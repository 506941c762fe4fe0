"""Copies on a link: one each way at a time, beside the steps, in the order of leaving and of need."""

from __future__ import annotations

import pytest

from gapless import InputError
from gapless.encodings.monet.offload.copies import Copy, timed
from gapless.topologies.host import HostLink


def test_a_copy_runs_beside_the_steps_and_costs_nothing_where_there_is_time() -> None:
    times = timed([1.0, 5.0, 5.0, 1.0], [Copy(0, 0, 2, 1, 3)], [4.0])
    assert (times.out_s, times.back_s, times.end_s) == ([1.0], [6.0], 12.0)


def test_a_step_waits_until_a_tensor_is_gone_and_until_it_is_back() -> None:
    times = timed([1.0, 1.0, 1.0, 1.0], [Copy(0, 0, 1, 2, 3)], [4.0])
    assert times.start_s == [0.0, 5.0, 6.0, 11.0]
    assert (times.out_s, times.back_s) == ([1.0], [7.0])


def test_one_copy_goes_each_way_at_a_time() -> None:
    copies = [Copy(0, 0, 4, 3, 5), Copy(1, 1, 4, 3, 4)]
    times = timed([1.0] * 6, copies, [3.0, 3.0])
    assert times.out_s == [1.0, 4.0]
    assert times.back_s == [10.0, 7.0]  # what is needed first comes first, and only once both are gone
    assert times.start_s[4:] == [10.0, 13.0]


@pytest.mark.parametrize("places", [(2, 2, 3, 4), (1, 2, 4, 4), (1, 5, 3, 4), (1, 2, 0, 4), (1, 2, 3, 9)])
def test_copies_that_would_wait_for_each_other_are_refused(places: tuple[int, int, int, int]) -> None:
    with pytest.raises(InputError, match="copies must have"):
        Copy(0, *places).check(nodes=3, steps=6)


@pytest.mark.parametrize(
    ("rate", "host_bytes", "field"), [(0.0, 1, "offload"), (float("inf"), 1, "offload"), (1.0, 0, "host")]
)
def test_a_link_of_no_use_is_refused(rate: float, host_bytes: int, field: str) -> None:
    with pytest.raises(InputError, match=field):
        HostLink(rate, host_bytes)
