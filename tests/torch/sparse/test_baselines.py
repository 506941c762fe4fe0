"""TopkDSA and gTopk between processes: bits of their sums, words received, balancing in some calls only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks

from gapless.errors import InputError
from gapless.torch.sparse.allreduce import Entries, SparseAllreduce, Words
from gapless.torch.sparse.baselines import SplitAllgather, TreeTopk, largest, tree_hops, tree_sum
from gapless.torch.sparse.plan import Regions, SparsePlan

LENGTH, RANKS, COUNT = 300, 3, 20
PAIRS = tuple((rank, (rank + turn) % RANKS) for turn in range(1, RANKS) for rank in range(RANKS))
PLAN = SparsePlan(
    Regions((0, 100, 200, LENGTH), (0, 1, 2)), COUNT / LENGTH, tuple((*pair, *pair) for pair in PAIRS),
    tuple((*pair, pair[0]) for pair in PAIRS), None, "gapless.encodings.oktopk", balances=False,
)  # fmt: skip


def of_rank(rank: int, count: int) -> Entries:
    random = np.random.default_rng(rank)
    places = np.sort(random.choice(LENGTH, count, replace=False))
    return Entries(torch.from_numpy(places), torch.from_numpy(random.standard_normal(count).astype(np.float32)))


def dense(entries: Entries) -> torch.Tensor:
    total = torch.zeros(LENGTH)
    total[entries.places] = entries.values
    return total


def first_region(rank: int) -> Entries:
    """Entries that all lie with one owner, or evenly with all."""
    return Entries(torch.arange(rank, 30 + rank), torch.ones(30))


def _program(rank: int, folder: Path) -> dict[str, object]:
    split, tree = SplitAllgather(LENGTH), TreeTopk(COUNT)
    found: dict[str, object] = {}
    for count in (COUNT, 90):  # of the second the union is more words than all entries
        before = split.received_words
        sums = split(of_rank(rank, count), LENGTH, 0)
        found[f"split {count}"] = (dense(sums), split.received_words - before, split.dense_calls)
    kept = tree(of_rank(rank, COUNT), LENGTH, 0)
    found["tree"] = (kept.places, kept.values, tree.received_words)
    rule, words = SparseAllreduce(PLAN, balance_above=2.0), []
    for given in (first_region(rank), Entries(torch.arange(0, LENGTH, 10), torch.ones(30))):
        rule.words = Words()
        sums = rule(given)
        words.append((rule.words.balanced, rule.balanced_calls, int(sums.values.sum())))
    found["balanced"] = words
    return found


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(_program, RANKS, tmp_path_factory.mktemp("baselines"))


@pytest.mark.thorough
def test_sums_and_words_are_those_of_the_published_allreduces(found: list[dict[str, Any]]) -> None:
    tree = tree_sum([of_rank(rank, COUNT) for rank in range(RANKS)], COUNT, LENGTH)
    for count, dense_calls in ((COUNT, 0), (90, 1)):
        total = sum(dense(of_rank(rank, count)) for rank in range(RANKS))
        for rank in found:
            sums, _, calls = rank[f"split {count}"]
            assert torch.equal(sums, total)
            assert calls == dense_calls
    for rank in range(RANKS):
        received = sum(int((of_rank(each, 90).places // 100 == rank).sum()) for each in range(RANKS) if each != rank)
        assert found[rank]["split 90"][1] == 2 * received + 200
        places, values, words = found[rank]["tree"]
        assert torch.equal(places, tree.places)
        assert torch.equal(values, tree.values)
        assert words == 2 * COUNT * (2 if rank == 0 else 1)


@pytest.mark.thorough
def test_sums_are_balanced_in_calls_in_which_one_rank_holds_too_many(found: list[dict[str, Any]]) -> None:
    for rank in found:
        (_, first, total), (moved, second, even) = rank["balanced"]
        assert (first, second, moved) == (1, 1, 0)
        assert (total, even) == (90, 90)
    moved_words = [rank["balanced"][0][0] for rank in found]
    assert sum(moved_words) == 2 * (32 - 11)  # 32 sums, at most 11 on a rank
    assert moved_words[0] == 0


def test_a_tree_of_any_number_of_ranks_reaches_each_once() -> None:
    for ranks in range(1, 20):
        hops = tree_hops(ranks)
        assert sorted(source for source, _ in hops) == list(range(1, ranks))
        gone = set[int]()
        for source, target in hops:
            assert target not in gone
            gone.add(source)


def test_the_largest_are_kept_and_of_equal_ones_the_first() -> None:
    entries = Entries(torch.tensor([1, 4, 6, 9]), torch.tensor([-2.0, 1.0, 2.0, -2.0]))
    assert largest(entries, 2).places.tolist() == [1, 6]


def test_a_factor_below_one_is_refused() -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        plan = SparsePlan(Regions((0, 5), (0,)), 0.5, (), (), None, "gapless.encodings.oktopk")
        with pytest.raises(InputError, match=r"balance_above: must be a factor of the mean, at least 1, got 0\.5"):
            SparseAllreduce(plan, balance_above=0.5)
    finally:
        torch.distributed.destroy_process_group()
