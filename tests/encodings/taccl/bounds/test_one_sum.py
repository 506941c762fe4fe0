"""The sum of one byte: as many rounds as an independent model says, and never more time than its best schedule."""

from __future__ import annotations

import random

import numpy as np
import pytest
from exact_model import Wire, least_ticks
from exact_rounds import schedule_in_rounds
from examples import share
from shapes import SHAPES, two_way

from gapless import SolveOptions
from gapless.encodings.taccl import Chunked
from gapless.encodings.taccl.bounds.bounds import bounds_of
from gapless.encodings.taccl.bounds.cuts import kinds_of
from gapless.encodings.taccl.bounds.one_sum import is_impossible
from gapless.encodings.taccl.parameters import BoundParameters
from gapless.ir.collective import allreduce, reduce
from gapless.topologies.topology import Link, Topology

BYTE_S = 1e-6 + 1e-11


def connected(ranks: int, chance: random.Random) -> list[tuple[int, int]]:
    """A tree of pairs, and some pairs more."""
    tree = {(chance.randrange(rank), rank) for rank in range(1, ranks)}
    others = sorted({(a, b) for a in range(ranks) for b in range(a + 1, ranks)} - tree)
    return sorted(tree | set(chance.sample(others, chance.randint(0, len(others) // 2))))


@pytest.mark.thorough(*map(str, range(6, 12)))
@pytest.mark.parametrize("seed", range(share(12)))
def test_two_models_agree_on_what_is_possible_in_rounds(seed: int) -> None:
    chance = random.Random(seed)
    ranks = chance.randint(3, 6)
    pairs = connected(ranks, chance)
    topology = two_way("random", ranks, pairs, lambda _: (1e-6, 0.0))
    kind = kinds_of(Chunked(topology, allreduce(ranks), 1))[0]
    links = [link for a, b in pairs for link in ((a, b), (b, a))]
    for rounds in range(2, 2 * ranks):
        found = schedule_in_rounds(ranks, links, rounds, work=5.0)
        steps = np.ones(len(topology.links), dtype=np.int64)
        assert is_impossible(topology, kind, steps, rounds, SolveOptions(threads=1)) == (found is None)
        if found is not None:
            break


@pytest.mark.parametrize(("shape", "rounds"), [("ring", 6), ("line", 8)])
def test_eight_ranks(shape: str, rounds: int) -> None:
    topology = SHAPES[shape](8, lambda _: (1e-6, 1e-11))
    assert bounds_of(Chunked(topology, allreduce(8), 1)).asked_s == pytest.approx(rounds * BYTE_S)


@pytest.mark.thorough("0", "2", "3", "4", "5")
@pytest.mark.parametrize("seed", range(6))
def test_links_may_differ_and_take_turns(seed: int) -> None:
    chance = random.Random(seed)
    pairs = [pair for a, b in connected(4, chance) for pair in ((a, b), (b, a))]
    alphas = [chance.choice([20, 30, 40, 50]) for _ in pairs]
    held = [(chance.randrange(2),) if seed % 2 else () for _ in pairs]
    wires = [Wire(*pair, alpha, 1, ends) for pair, alpha, ends in zip(pairs, alphas, held, strict=True)]
    links = tuple(Link(*pair, alpha * 1e-7, 1e-7, ends) for pair, alpha, ends in zip(pairs, alphas, held, strict=True))
    problem = Chunked(Topology("uneven", (0,) * 4, links, ("one", "other")), allreduce(4), 1)
    found = least_ticks(wires, problem.collective, 500, 2, 0.5)
    assert found.ticks is not None
    assert 0 < bounds_of(problem).asked_s <= found.ticks * 1e-7 * (1 + 1e-9)


def test_too_much_is_left_to_other_bounds() -> None:
    problem = Chunked(SHAPES["ring"](8, lambda _: (1e-6, 1e-11)), allreduce(8), 1)
    for limits in (BoundParameters(most_sum_rows=1000), BoundParameters(most_sum_steps=3)):
        assert bounds_of(problem, limits).one_sum_s == 0.0


def test_a_sum_for_one_rank_is_left_to_other_bounds() -> None:
    assert bounds_of(Chunked(SHAPES["ring"](4, lambda _: (1e-6, 1e-11)), reduce(4), 1)).one_sum_s == 0.0
