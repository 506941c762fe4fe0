"""Training from batch plans in gloo processes against training without a cache. Without torch these are skipped."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from gloo_ranks import run_ranks
from planned_training import (
    DIMENSION,
    SETTINGS,
    TABLE_ROWS,
    Setting,
    Trained,
    be_refused,
    settings_of,
    train_all,
    train_uncached,
)

from gapless.torch.embeddings.cache import MOVES
from gapless.torch.embeddings.plans import Sharding

Found = Callable[[int], list[dict[str, Trained]]]


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each process ends with, by the number of processes."""
    return cache(lambda ranks: run_ranks(train_all, ranks, tmp_path_factory.mktemp(f"of{ranks}")))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What is said of plans that can't be followed and of calls that make no sense."""
    (only,) = run_ranks(be_refused, 1, tmp_path_factory.mktemp("refused"))
    return only


def table_of(found: list[dict[str, Trained]], name: str) -> torch.Tensor:
    """The whole table, from the servers."""
    ranks = len(found)
    table = torch.empty(sum(TABLE_ROWS), found[0][name].rows.shape[1])
    for rank in range(ranks):
        table[Sharding(TABLE_ROWS, ranks).rows_of(rank)] = found[rank][name].rows
    return table


def reference(found: list[dict[str, Trained]], name: str, setting: Setting) -> Trained:
    """Training without a cache on the same examples on the same ranks."""
    parts = [list(of_ranks) for of_ranks in zip(*(each[name].numbers for each in found), strict=True)]
    return train_uncached(setting, parts)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tells zeros of different signs apart, too."""
    return torch.equal(one.view(torch.int32), other.view(torch.int32))


CASES = [(ranks, name) for ranks in (2, 3) for name in SETTINGS if name in settings_of(ranks)]


@pytest.mark.thorough("3-")
@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_table_is_bit_equal_to_uncached_synchronous_training(found: Found, ranks: int, name: str) -> None:
    expected = reference(found(ranks), name, SETTINGS[name])
    assert same_bits(table_of(found(ranks), name), expected.rows)
    for trained in found(ranks):
        for parameter, other in zip(trained[name].parameters, expected.parameters, strict=True):
            assert same_bits(parameter, other)


@pytest.mark.thorough("3-")
@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_table_is_close_to_training_on_whole_batches(found: Found, ranks: int, name: str) -> None:
    setting = SETTINGS[name]
    starts = range(0, setting.examples, setting.batch_size)
    whole = [[list(range(start, min(start + setting.batch_size, setting.examples)))] for start in starts]
    expected = train_uncached(setting, whole[: setting.stop])
    torch.testing.assert_close(table_of(found(ranks), name), expected.rows, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough("3-")
@pytest.mark.parametrize(("ranks", "name"), CASES)
def test_loaders_give_the_trainers_the_examples_of_the_plan(found: Found, ranks: int, name: str) -> None:
    setting, first = SETTINGS[name], 0
    for plan, *numbers in zip(setting.plans(ranks), *(each[name].numbers for each in found(ranks)), strict=False):
        for rank in range(ranks):
            assert numbers[rank] == (first + np.flatnonzero(plan.trainer == rank)).tolist()
        first += plan.step.examples
    assert setting.stop or first == setting.examples


@pytest.mark.parametrize("name", ["lookahead-1", "lookahead-3", "small-cache", "smaller-cache", "fetches"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_settings_train_rows_in_all_the_ways_there_are(ranks: int, name: str) -> None:
    """Else equal tables would say little."""
    plans = list(SETTINGS[name].plans(ranks))
    for kind in ("is_private", "sync_now", "sync_later"):
        assert sum(int(getattr(plan, kind).sum()) for plan in plans), kind
    assert any((plan.is_private & ~plan.step.prefetched).any() for plan in plans)  # cached by all, then private
    prefetched = np.concatenate([plan.step.prefetch_ids for plan in plans])
    assert len(np.unique(prefetched)) < len(prefetched)  # some come back


def test_settings_are_as_unusual_as_they_say() -> None:
    for name, most, least in (("small-cache", 4, 3), ("smaller-cache", 2, 1), ("smallest-cache", 1, 1)):
        lookaheads = [plan.step.lookahead for plan in SETTINGS[name].plans(3)]
        assert (lookaheads[0], lookaheads[-1]) == (most, least)
    *_, last = SETTINGS["last-batch-of-one"].plans(3)
    assert last.trainer.tolist() == [0]


@pytest.mark.thorough("-3]")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("name", ["lookahead-1", "lookahead-10", "smaller-cache", "fetches"])
def test_no_row_moves_that_the_plan_does_not_move(found: Found, ranks: int, name: str) -> None:
    """Private rows from and to one trainer; the others to all, their gradients from each user to all others."""
    rows = dict.fromkeys(MOVES, 0)
    for plan in SETTINGS[name].plans(ranks):
        for kind in ("sync_now", "sync_later"):
            rows[kind] += (ranks - 1) * int(plan.users[getattr(plan, kind)].sum())
        private = int((plan.step.prefetched & plan.is_private).sum())
        rows["fetched"] += private + ranks * (len(plan.step.prefetch_ids) - private)
        rows["written"] += int(plan.step.evicted.sum())
    for kind, planned in rows.items():
        assert sum(each[name].moved_bytes[kind] for each in found(ranks)) == planned * 4 * DIMENSION, kind


# -- broken plans ------------------------------------------------------------------------------------------------------


@pytest.mark.thorough("-3]")
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("change", ["now-unsynchronised", "later-unsynchronised", "two-early"])
def test_broken_plan_changes_the_table(found: Found, ranks: int, change: str) -> None:
    """A synchronisation skipped in one batch; prefetches that start before the last write-back of their rows."""
    expected = reference(found(ranks), change, Setting())
    assert not torch.allclose(table_of(found(ranks), change), expected.rows, rtol=1e-4, atol=1e-5)


@pytest.mark.thorough("3")
@pytest.mark.parametrize("ranks", [2, 3])
def test_rule_for_prefetches_has_one_batch_to_spare(found: Found, ranks: int) -> None:
    """What x prefetches isn't used in x - L either, so waiting for batch x - L - 1 would do."""
    assert same_bits(table_of(found(ranks), "one-early"), reference(found(ranks), "one-early", Setting()).rows)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("evicted-early", r"batch [567]: id \d+ of table \d must be in the cache of trainer 0 to be looked up"),
        ("not-prefetched", r"batch 4: id \d+ of table \d must be in the cache of trainer 0 to be looked up"),
        ("left-to-background", r"batch 5: id \d+ of table \d must not be left to the background"),
        ("place-taken", r"batch 6: must prefetch into free rows of the cache, row \d+ isn't"),
        ("too-late", r"batch 4: prefetches must not wait for batch 4"),
    ],
)
def test_plan_that_cannot_be_followed_is_refused(said: dict[str, str], change: str, message: str) -> None:
    assert re.search(message, said[change]), said[change]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        ("looked up twice", "lookup must be followed by update, got another lookup"),
        ("flushed between", "lookup must be followed by update, got flush"),
        ("no lookup", "update must follow a lookup, got none"),
        ("no backward", "update must follow the backward pass"),
        ("past the end", "the plan has 1 batches, got a lookup for one more"),
        ("weights", r"weights: must be 219 rows x dimension, got shape \(7, 4\)"),
        ("servers", "sharding: must have 1 servers, as roles have, got 2"),
        ("trainers", "plans: must be for 1 trainers, one a process, got 2"),
        ("rank", r"rank: must be a trainer of the plan, 0\.\.1, got 2"),
        ("plans", "plans: must be given in process 0, and there only"),
        ("ahead", "ahead: must be >= 1, got 0"),
    ],
)
def test_misuse_is_refused(said: dict[str, str], misuse: str, message: str) -> None:
    assert re.search(message, said[misuse]), said[misuse]


@pytest.mark.thorough
def test_all_processes_hear_that_there_is_no_plan(found: Found) -> None:
    for ranks in (2, 3):
        assert all("cache_rows must hold" in str(each["no plan"]) for each in found(ranks))
