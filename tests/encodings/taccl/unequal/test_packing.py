"""Packed trees of an ALLGATHERV: they replay clean, bring all bytes to all ranks, and are near the bound."""

from __future__ import annotations

import numpy as np
import pytest
from exact_shares import network
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

import gapless
from gapless.checker import check
from gapless.encodings.taccl.parameters import Parameters, Shares
from gapless.encodings.taccl.unequal.bounds import check_paths, quick_bounds, routed_bound_s
from gapless.encodings.taccl.unequal.packing import packed_plan, pieces_alike
from gapless.encodings.taccl.unequal.problem import Unequal
from gapless.ir.amounts import Amounts
from gapless.methods import MethodChoice
from gapless.options import Deadline, SolveOptions

LITTLE = Shares(packed_pieces=(1, 3), perturbed_rows=2_000)


def zipf(ranks: int, mean_bytes: int) -> tuple[int, ...]:
    """Bytes that fall with the rank's place in a random order, by Zipf's law."""
    weight = np.random.default_rng(0).permutation(1 / np.arange(1, ranks + 1))
    return tuple((weight / weight.sum() * mean_bytes * ranks).astype(int).tolist())


def bound_s(problem: Unequal) -> float:
    """The best bound that is worked out for it."""
    return max(*quick_bounds(problem).values(), routed_bound_s(problem, SolveOptions(), 0))


@examples(60)
@given(seed=st.integers(0, 10**6))
def test_trees_replay_clean_on_random_networks_with_ports_and_never_beat_the_bounds(seed: int) -> None:
    chance = np.random.default_rng(seed)
    vector = (1, *chance.choice([0, 1, 7, 1000, 2500], 4).tolist())
    problem = Unequal(network(seed, 5), Amounts("allgatherv", (vector,)))
    check_paths(problem)
    packed = packed_plan(problem, LITTLE, 0, Deadline(SolveOptions()), 0.0)
    assert packed is not None
    cut, schedule, _ = packed
    report = check(schedule)
    assert report.valid, report.summary()
    assert report.makespan_s >= bound_s(problem) * (1 - 1e-9)
    assert sum(cut.collective.chunk_sizes or ()) == sum(vector)
    assert all(len(wants) == cut.collective.chunk_count for wants in cut.collective.outputs)


def test_trees_are_within_a_tenth_of_the_bound_on_a_torus_with_skewed_bytes() -> None:
    problem = gapless.taccl.problem("torus:4x4", collective="allgatherv", matrix=np.array([zipf(16, 8_000_000)]))
    assert isinstance(problem, Unequal)
    packed = packed_plan(problem, Parameters().shares, 0, Deadline(SolveOptions()), 1.05 * bound_s(problem))
    assert packed is not None
    assert check(packed[1]).makespan_s <= 1.1 * bound_s(problem)


def test_pieces_are_of_nearly_one_size_and_add_up_to_the_shares() -> None:
    sizes = (4_000_000, 1_000_000, 0, 1, 2_999_999)
    pieces = pieces_alike(sizes, 5)
    assert [sum(share) for share in pieces] == list(sizes)
    assert [len(share) for share in pieces] == [12, 3, 0, 1, 9]
    assert max(map(max, filter(None, pieces))) <= 340_000


@pytest.mark.parametrize("name", ["packed", "matched"])
def test_more_sends_than_are_allowed_are_not_tried(name: str) -> None:
    less = {"packed": {"most_packed_sends": 1}, "matched": {"most_matched_sends": 1}}[name]
    shares = Shares(**less, perturbed_rows=1)  # type: ignore[arg-type]
    result = gapless.taccl.solve(
        "ring:4", collective="allgatherv", matrix=np.array([zipf(4, 1_000_000)]), gap=0.0,
        parameters=Parameters(shares=shares, methods=MethodChoice()).with_share(0.01),
    )  # fmt: skip
    assert result.valid
    assert result.details["provenance"]["method"] != name
