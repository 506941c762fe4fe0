"""Counts are those of sets counted by hand, and each design moves the rows that the text says."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from bagpipe_counts import random_counts, steady_counts
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.designs.counts import Counts, counted
from gapless.encodings.bagpipe.designs.rows import design_rows
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import DESIGNS, OWNERSHIPS
from gapless.errors import InputError
from gapless.profiles.traces.trace import Trace, trace_of_array


def small_trace(seed: int, examples: int, tables: int = 3, ids: int = 20) -> Trace:
    ids_of_tables = np.random.default_rng(seed).geometric(0.2, size=(examples, tables)) % ids
    return trace_of_array(ids_of_tables)


def by_sets(plan: BatchPlan, later: list[set[tuple[int, int]]], ids: np.ndarray) -> dict[str, int]:
    """The counts of one plan, row by row: `later` are the rows of the batches after it in its window."""
    trainers = plan.users.shape[1]
    rows = [(table, int(id_)) for example in ids for table, id_ in enumerate(example)]
    trainer = [int(j) for j in plan.trainer for _ in range(ids.shape[1])]
    users = {row: {j for other, j in zip(rows, trainer, strict=True) if other == row} for row in rows}
    order = sorted(users)  # that of the step's ids
    step = plan.step
    fetched = {row for row, is_new in zip(order, step.prefetched.tolist(), strict=True) if is_new}
    owner = dict(zip(order, plan.owner_after.tolist(), strict=True))
    evicted = {row for row in order if not any(row in batch for batch in later)}
    private = {row for row in evicted if len(users[row]) == 1}
    now = {row for row in order if later and row in later[0]}
    only = {row: min(users[row]) for row in private}
    received = Counter(j for row in order for j in users[row] if j != owner[row])
    sent = Counter(owner[row] for row in order for j in users[row] if j != owner[row])

    def busiest(names: list[int]) -> int:
        return max(Counter(names).values(), default=0)

    return {
        "distinct": len(order), "prefetched": len(fetched), "prefetched_private": len(fetched & private),
        "prefetched_private_most": busiest([only[row] for row in fetched & private]), "private": len(private),
        "private_most": busiest(list(only.values())), "sync_now": len(now),
        "sync_later": len(order) - len(private) - len(now), "evicted": len(evicted),
        "peer_rows": received.total(), "peer_most": max(*received.values(), *sent.values(), 0, 0),
        "max_load": max(received[j] + sent[j] for j in range(trainers)),
        "prefetched_most": busiest([owner[row] for row in fetched]),
        "evicted_most": busiest([owner[row] for row in evicted]),
    }  # fmt: skip


@given(
    seed=st.integers(0, 2**32 - 1),
    trainers=st.integers(1, 4),
    lookahead=st.integers(1, 4),
    ownership=st.sampled_from(OWNERSHIPS),
)
@examples(60)
def test_counts_are_those_of_sets(seed: int, trainers: int, lookahead: int, ownership: str) -> None:
    trace = small_trace(seed, examples=45)
    planning = Planning(trainers, batch_size=8, lookahead=lookahead, ownership=ownership)
    batches = list(trace.batches(8))
    rows = [{(table, int(id_)) for example in batch for table, id_ in enumerate(example)} for batch in batches]
    plans = list(batch_plans(trace, planning))
    counts = counted(plans)
    assert counts.trainers == trainers
    assert counts.batches == len(batches)
    for number, plan in enumerate(plans):
        expected = by_sets(plan, rows[number + 1 : number + lookahead + 1], batches[number])
        assert {title: int(getattr(counts, title)[number]) for title in expected} == expected
        assert counts.cache_rows[number] == plan.step.cache_rows
        assert counts.prefetch_after[number] == max(number - lookahead, -1)


def test_a_cached_row_keeps_its_owner_and_a_new_one_gets_its_most_frequent_user() -> None:
    trace = trace_of_array(np.array([[1], [1], [1], [2], [1], [3]]))
    first, second = batch_plans(trace, Planning(2, batch_size=4, lookahead=1, method="contiguous"))
    assert first.owner.tolist() == [-1, -1]
    assert first.owner_after.tolist() == [0, 1]
    assert second.owner[0] == second.owner_after[0] == 0


def test_designs_by_hand() -> None:
    """Ten rows a batch, two trainers: 4 new of which 2 private, 3 used next, 4 evicted of which 2 private."""
    rows = {design: design_rows(steady_counts(3), design) for design in DESIGNS}
    names = ("fetched", "fetched_most", "peer_rows", "peer_most", "sync_now", "sync_later", "written_early",
             "written_early_most", "written_late", "written_late_most")  # fmt: skip
    table = {design: [int(getattr(found, name)[0]) for name in names] for design, found in rows.items()}
    assert table == {
        "replicated": [8, 4, 0, 0, 10, 0, 0, 0, 4, 2],
        "partitioned": [4, 2, 6, 3, 0, 0, 0, 0, 4, 2],
        "lrpp": [6, 3, 0, 0, 8, 0, 2, 1, 2, 1],
        "lrpp-delayed": [6, 3, 0, 0, 3, 5, 2, 1, 2, 1],
        "lrpp-fine-grained": [5, 3, 3, 0, 2, 3, 3, 2, 1, 1],
    }
    assert [found.design for found in rows.values()] == list(DESIGNS)


@given(seed=st.integers(0, 2**32 - 1), trainers=st.integers(1, 5))
def test_designs_move_less_and_less(seed: int, trainers: int) -> None:
    counts = random_counts(np.random.default_rng(seed), 8, trainers)
    replicated, partitioned, lrpp, delayed, fine = (design_rows(counts, design) for design in DESIGNS)
    assert (replicated.sync_now >= lrpp.sync_now).all()
    assert (lrpp.sync_now == delayed.sync_now + delayed.sync_later).all()
    assert (replicated.fetched >= lrpp.fetched).all()
    assert (lrpp.fetched >= partitioned.fetched).all()
    assert (fine.sync_now <= np.append(delayed.sync_now[1:], 0)).all()
    for rows in (replicated, partitioned, lrpp, delayed, fine):
        assert (rows.evicted == counts.evicted).all()
        assert (rows.fetched_most <= rows.fetched).all()
        assert (rows.fetched_most * trainers >= rows.fetched).all()
        assert (rows.written_late_most * trainers >= rows.written_late).all()


@pytest.mark.parametrize(
    ("title", "value", "rule"),
    [
        ("prefetched", 11, "prefetched must be at most distinct, is more in batch 0"),
        ("evicted", -1, "evicted must be >= 0, got -1 in batch 0"),
        ("sync_now", 4, "must add up to distinct, not in batch 0"),
        ("prefetch_after", 0, "prefetch_after must be an earlier batch, isn't in batch 0"),
        ("private_most", 3, "private_most must be at most private"),
    ],
)
def test_counts_that_contradict_themselves_are_named(title: str, value: int, rule: str) -> None:
    counts = steady_counts(2)
    column = getattr(counts, title).copy()
    column[0] = value
    with pytest.raises(InputError, match=rule):
        replace(counts, **{title: column})


def test_counts_of_other_shapes_are_named() -> None:
    with pytest.raises(InputError, match="private must be int64, one for each of 2 batches, got int64 of shape"):
        replace(steady_counts(2), private=np.array([2]))
    with pytest.raises(InputError, match=r"must be int64, .* got float64"):
        replace(steady_counts(2), private=np.array([2.0, 2.0]))
    with pytest.raises(InputError, match="trainers must be >= 1, got 0"):
        replace(steady_counts(2), trainers=0)


def test_plans_that_are_none_or_out_of_order_are_named() -> None:
    plans = list(batch_plans(small_trace(0, 20), Planning(2, batch_size=5, lookahead=2)))
    assert isinstance(counted(iter(plans)), Counts)
    with pytest.raises(InputError, match="at least one plan"):
        counted([])
    with pytest.raises(InputError, match="batch 0 must be next, got that of batch 1"):
        counted(plans[1:])
