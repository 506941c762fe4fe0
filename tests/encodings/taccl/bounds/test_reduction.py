"""Gossip: how many rounds it takes until every rank has the sum of all."""

from __future__ import annotations

import pytest

from gapless.encodings.taccl.bounds.reduction import gossip_rounds


@pytest.mark.parametrize(("ranks", "rounds"), [(3, 3), (4, 3), (5, 4), (8, 5), (16, 6), (32, 8)])
def test_sums_for_all_take_more_rounds_than_doubling(ranks: int, rounds: int) -> None:
    assert gossip_rounds(ranks, 1) == rounds


def test_who_sends_to_all_at_once_spreads_in_one_round_more() -> None:
    assert gossip_rounds(8, 7) == 4
