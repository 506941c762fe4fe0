"""Counts of rows for pipelines: drawn at random, and the same in every batch."""

from __future__ import annotations

import numpy as np

from gapless.encodings.bagpipe.designs.counts import Counts, RootedCounts


def random_counts(rng: np.random.Generator, batches: int, trainers: int, most: int = 1000) -> Counts:
    """Any counts that a run could have; many are 0."""

    def upto(limit: np.ndarray) -> np.ndarray:
        share = rng.random(batches) * rng.integers(0, 2, batches)
        return np.asarray((limit * share).astype(np.int64))

    def busiest(rows: np.ndarray) -> np.ndarray:
        return np.maximum(-(-rows // trainers), upto(rows))

    distinct = rng.integers(1, most + 1, batches)
    evicted = upto(distinct)
    private = upto(evicted)
    now = upto(distinct - evicted)
    fetched_private = upto(private)
    prefetched = fetched_private + upto(distinct - fetched_private)
    sent = upto(distinct)
    lookahead = rng.integers(1, 5, batches)
    alone, moved = private + upto(evicted - private), upto(now)
    fetched = prefetched + upto(prefetched * (trainers - 1))
    messages = [upto(distinct) for _ in range(4)]
    relayed = messages[0] // 2
    rooted = RootedCounts(
        np.minimum(moved, np.append(0, now[:-1])), upto(distinct), fetched, busiest(fetched),
        *(part for each in messages for part in (each, busiest(each))),
        alone, busiest(alone), busiest(evicted - alone), relayed, relayed,
    )  # fmt: skip
    return Counts(
        trainers=trainers,
        lookahead=lookahead,
        prefetch_after=np.maximum(np.arange(batches) - lookahead, -1),
        cache_rows=distinct * 2,
        examples_most=rng.integers(1, 5000, batches),
        distinct=distinct,
        prefetched=prefetched,
        prefetched_private=fetched_private,
        prefetched_private_most=busiest(fetched_private),
        private=private,
        private_most=busiest(private),
        sync_now=now,
        sync_later=distinct - private - now,
        evicted=evicted,
        peer_rows=sent * 2,
        peer_most=sent,
        max_load=sent * 2,
        prefetched_most=busiest(prefetched),
        evicted_most=busiest(evicted),
        rooted=rooted,
    )


def steady_counts(batches: int, trainers: int = 2, lookahead: int = 2) -> Counts:
    """Ten rows a batch, the same in each: 4 new (2 private, one each), 3 used next, 4 evicted (2 private)."""

    def each(value: int) -> np.ndarray:
        return np.full(batches, value, dtype=np.int64)

    return Counts(
        trainers=trainers,
        lookahead=each(lookahead),
        prefetch_after=np.maximum(np.arange(batches) - lookahead, -1),
        cache_rows=each(16),
        examples_most=each(2048),
        distinct=each(10),
        prefetched=each(4),
        prefetched_private=each(2),
        prefetched_private_most=each(1),
        private=each(2),
        private_most=each(1),
        sync_now=each(3),
        sync_later=each(5),
        evicted=each(4),
        peer_rows=each(6),
        peer_most=each(3),
        max_load=each(6),
        prefetched_most=each(2),
        evicted_most=each(2),
        rooted=RootedCounts(
            moved_now=each(2), moved_later=each(3), fetched=each(5), fetched_most=each(3), sent_now=each(2),
            sent_now_most=each(1), sent_later=each(2), sent_later_most=each(2), gathered_now=each(1),
            gathered_now_most=each(1), gathered_later=each(1), gathered_later_most=each(1), evicted_alone=each(3),
            evicted_alone_most=each(2), evicted_rest_most=each(1), relayed=each(2), relayed_most=each(1),
        ),
    )  # fmt: skip
