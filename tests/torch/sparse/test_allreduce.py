"""The two-phase sparse allreduce between processes: bits of the sums, words received."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.torch.sparse.allgather import TopkAllgather
from gapless.torch.sparse.allreduce import SparseAllreduce, balanced
from gapless.torch.sparse.entries import Entries
from gapless.torch.sparse.plan import Regions
from gapless.torch.sparse.relay import Hop
from tests.support.gloo_ranks import run_ranks

LENGTH, RANKS = 1000, 4
REGIONS = Regions((0, 100, 100, 700, LENGTH), (2, 0, 3, 1))
RING = tuple(
    Hop((block + turn) % RANKS, (block + turn + 1) % RANKS, (block,)) for turn in range(3) for block in range(4)
)


def of_rank(rank: int) -> Entries:
    """Entries that cluster at the beginning; rank 3 has none."""
    random = np.random.default_rng(rank)
    count = 0 if rank == 3 else 60
    places = np.sort(random.choice(LENGTH // (1 + rank), count, replace=False))
    return Entries(torch.from_numpy(places), torch.from_numpy(random.standard_normal(count).astype(np.float32)))


def dense_sum() -> torch.Tensor:
    total = torch.zeros(LENGTH)
    for rank in range(RANKS):
        dense = torch.zeros(LENGTH)
        dense[of_rank(rank).places] = of_rank(rank).values
        total += dense
    return total


def _program(rank: int, folder: Path) -> list[tuple[torch.Tensor, torch.Tensor, object]]:
    found = []
    for hops, least in ((None, 0.0), (RING, 0.5)):
        allreduce = SparseAllreduce(REGIONS, hops)
        sums = allreduce(of_rank(rank), lambda sums, least=least: sums.where(sums.values.abs() > least))
        words = allreduce.words
        found.append((sums.places, sums.values, (words.reduced, words.balanced, words.gathered)))
    gathered = TopkAllgather()
    sums = gathered(of_rank(rank), LENGTH, 0)
    return [*found, (sums.places, sums.values, gathered.received_words)]


def test_sums_have_the_bits_of_the_dense_sum_and_words_are_those_of_the_sets(tmp_path: Path) -> None:
    found = run_ranks(_program, RANKS, tmp_path)
    total = dense_sum()
    for rank, rows in enumerate(found):
        for (places, values, words), least in zip(rows, (0.0, 0.5, 0.0), strict=True):
            kept = (total.abs() > least).nonzero().flatten()
            assert torch.equal(places.sort().values, kept)
            assert torch.equal(values, total[places])
            if isinstance(words, tuple):
                assert words == expected_words(rank, kept)
            else:
                assert words == 2 * 3 * 60


def expected_words(rank: int, kept: torch.Tensor) -> tuple[int, int, int]:
    region = REGIONS.owners.index(rank)
    begin, end = REGIONS.cuts[region : region + 2]
    reduced = sum(
        int(((each.places >= begin) & (each.places < end)).sum()) for other in range(RANKS) if other != rank
        for each in [of_rank(other)]
    )  # fmt: skip
    counts = [0] * RANKS
    for number, owner in enumerate(REGIONS.owners):
        counts[owner] = int(((kept >= REGIONS.cuts[number]) & (kept < REGIONS.cuts[number + 1])).sum())
    moves, held = balanced(counts)
    moved = sum(move.count for move in moves if move.target == rank)
    return 2 * reduced, 2 * moved, 2 * (sum(held) - held[rank])


@pytest.mark.parametrize(
    ("cuts", "owners", "message"),
    [
        ((0, 5, 10), (1, 1), r"owners: must be a permutation of the ranks, got \[1, 1\]"),
        ((0, 6, 5), (1, 0), r"cuts: must be 3, rising from 0, got \[0, 6, 5\]"),
        ((1, 5, 10), (1, 0), "cuts: must be 3, rising from 0"),
        ((0, 5), (1, 0), "cuts: must be 3"),
        ((0, 5, 2**31), (1, 0), r"cuts: places must fit into 4 bytes, so be below 2\^31, got 2147483648"),
    ],
)
def test_regions_that_cannot_be_are_refused(cuts: tuple[int, ...], owners: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Regions(cuts, owners)
