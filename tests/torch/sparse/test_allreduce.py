"""The two-phase sparse allreduce between processes: bits of the sums, words received."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks

from gapless.encodings.oktopk.allreduce.balancing import balancing_moves
from gapless.errors import InputError
from gapless.torch.sparse.allreduce import Entries, SparseAllreduce, TopkAllgather
from gapless.torch.sparse.plan import Regions, SparsePlan

LENGTH, RANKS = 1000, 4
REGIONS = Regions((0, 100, 100, 700, LENGTH), (2, 0, 3, 1))
PAIRS = tuple((rank, (rank + turn) % RANKS) for turn in range(1, RANKS) for rank in range(RANKS))
RING = tuple(((of + turn) % RANKS, (of + turn + 1) % RANKS, of) for turn in range(3) for of in range(RANKS))
AROUND = tuple(
    ((rank + turn) % RANKS, (rank + turn + 1) % RANKS, rank, owner)
    for rank, owner in PAIRS for turn in range((owner - rank) % RANKS)
)  # fmt: skip
"""Contributions that only go around a ring, by way of others."""


def plan(is_ring: bool) -> SparsePlan:
    contributions = AROUND if is_ring else tuple((*pair, *pair) for pair in PAIRS)
    sums = RING if is_ring else tuple((*pair, pair[0]) for pair in PAIRS)
    return SparsePlan(REGIONS, 0.06, contributions, sums, None, "gapless.encodings.oktopk", balances=not is_ring)


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
    for is_ring, least in ((False, 0.0), (True, 0.5)):
        allreduce = SparseAllreduce(plan(is_ring))
        sums = allreduce(of_rank(rank), lambda sums, least=least: sums.where(sums.values.abs() > least))
        words = allreduce.words
        found.append((sums.places, sums.values, (words.reduced, words.balanced, words.gathered)))
    gathered = TopkAllgather()
    sums = gathered(of_rank(rank), LENGTH, 0)
    return [*found, (sums.places, sums.values, gathered.received_words)]


@pytest.mark.thorough
def test_sums_have_the_bits_of_the_dense_sum_and_words_are_those_of_the_sets(tmp_path: Path) -> None:
    found = run_ranks(_program, RANKS, tmp_path)
    total = dense_sum()
    for rank, rows in enumerate(found):
        for (places, values, _), least in zip(rows, (0.0, 0.5, 0.0), strict=True):
            assert torch.equal(places.sort().values, (total.abs() > least).nonzero().flatten())
            assert torch.equal(values, total[places])
        straight, ring, gathered = (row[2] for row in rows)
        assert straight == (2 * received(rank), *phase_2(rank, total.abs() > 0.0))
        assert ring[1:] == (0, 2 * sum(counts_of(total.abs() > 0.5)) - 2 * counts_of(total.abs() > 0.5)[rank])
        assert gathered == 2 * 3 * 60
    on_the_way = sum((owner - rank) % RANKS * sent(rank, owner) for rank, owner in PAIRS)
    assert sum(rows[1][2][0] for rows in found) == 2 * on_the_way


def sent(rank: int, owner: int) -> int:
    """Entries of a rank in another's region."""
    begin, end = REGIONS.cuts[REGIONS.owners.index(owner) :][:2]
    places = of_rank(rank).places
    return int(((places >= begin) & (places < end)).sum())


def received(owner: int) -> int:
    return sum(sent(rank, owner) for rank in range(RANKS) if rank != owner)


def counts_of(kept: torch.Tensor) -> list[int]:
    """Sums that each rank has after phase 1."""
    regions = [REGIONS.owners.index(rank) for rank in range(RANKS)]
    return [int(kept[REGIONS.cuts[region] : REGIONS.cuts[region + 1]].sum()) for region in regions]


def phase_2(rank: int, kept: torch.Tensor) -> tuple[int, int]:
    """Words moved to a rank, and gathered: together all sums but its own, whatever was moved."""
    counts = counts_of(kept)
    moved = sum(entries for _, target, entries in balancing_moves(counts, ()) if target == rank)
    return 2 * moved, 2 * (sum(counts) - counts[rank] - moved)


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
