"""Messages and hops: the bound of ALLTOALL behind a switch is what the best of Bruck's algorithms takes."""

from __future__ import annotations

import numpy as np
import pytest
from shapes import SHAPES

from gapless.encodings.taccl.bounds.hops import hops_bound_s

ALPHA_S = 1e-6


@pytest.mark.parametrize(("part_s", "reached"), [(1e-9, 1.0), (0.5e-6, 0.87), (0.9e-6, 0.98), (1.1e-6, 1), (5e-6, 1)])
def test_four_ranks_get_two_messages_or_three(part_s: float, reached: float) -> None:
    topology = SHAPES["switch"](4, lambda _: (ALPHA_S, 1e-9))
    wanted = np.full((4, 4), part_s / 1e-9) - np.diag([part_s / 1e-9] * 4)
    two_messages, three = 2 * ALPHA_S + 4 * part_s, 3 * ALPHA_S + 3 * part_s
    best_s = min(two_messages, three)
    assert (reached - 1e-5) * best_s <= hops_bound_s(topology, wanted) <= best_s


def test_what_has_far_to_go_takes_as_many_hops() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, 1e-9))
    wanted = np.full((6, 6), 1e6) - np.diag([1e6] * 6)
    hops_of_a_rank = 1 + 1 + 2 + 2 + 3
    assert hops_bound_s(topology, wanted) >= hops_of_a_rank / 2 * 1e-3


def test_nothing_takes_no_time() -> None:
    topology = SHAPES["ring"](6, lambda _: (ALPHA_S, 1e-9))
    assert hops_bound_s(topology, np.zeros((6, 6))) == 0.0


def test_links_that_cost_nothing_prove_nothing() -> None:
    topology = SHAPES["switch"](4, lambda _: (0.0, 1e-9))
    assert hops_bound_s(topology, np.ones((4, 4))) == 0.0
