"""Bounds: none is above the least step time of any order; the one that knows memory is nearly always equal to it."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from examples import share
from tiny_pipelines import tiny, tiny_span, trial

from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.bounds.one_machine import in_two_s
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.schedules.baselines import zb_h1
from gapless.options import Deadline, SolveOptions


@pytest.mark.parametrize("seed", range(share(200)))
def test_no_bound_is_above_the_least_step_time(seed: int) -> None:
    stages, best_s = tiny(seed)
    assert max(bounds_of(stages).values()) <= best_s


@pytest.mark.parametrize("seed", range(share(150)))
def test_no_bound_is_above_the_least_longest_span(seed: int) -> None:
    stages, best_s = tiny_span(seed)
    least = max(bounds_of(stages).values())
    raised = time_indexed_bound(stages, least, float(np.ceil(best_s)), 256, 8, Deadline(SolveOptions()))
    assert least <= raised <= best_s


def test_a_span_of_the_first_rank_has_all_of_the_last_ranks_gradients_in_it() -> None:
    """4 ranks, 8 micro-batches, 8 in flight: 36 s until the last rank begins, 8 x 22, 3 x 14 back up, and a weight
    gradient; the last rank's own weight gradients aren't in it."""
    bounds_s = bounds_of(replace(trial(4, 8, 8)[1], by_span=True))
    assert bounds_s["load"] == 8 * 30
    assert bounds_s["memory"] == 36 + 8 * 22 + 3 * 14 + 8


def test_most_tiny_pipelines_are_as_fast_as_their_bound() -> None:
    found = [tiny(seed) for seed in range(share(200))]
    reached = [max(bounds_of(stages).values()) == best_s for stages, best_s in found]
    assert np.mean(reached) >= 0.8


@pytest.mark.parametrize(
    ("ranks", "micro_batches", "in_flight", "bound_s"),
    [(4, 8, 4, 306), (4, 8, 5, 286), (4, 8, 6, 278), (4, 8, 8, 276), (8, 16, 8, 634), (8, 16, 9, 604), (8, 16, 10, 590),
     (8, 16, 12, 574)],
)  # fmt: skip
def test_memory_says_how_fast_the_trials_can_be(ranks: int, micro_batches: int, in_flight: int, bound_s: float) -> None:
    bounds_s = bounds_of(trial(ranks, micro_batches, in_flight)[1])
    assert bounds_s["memory"] == bound_s
    assert bounds_s["load"] == bounds_s["one-machine"] == 30 * micro_batches + 12 * (ranks - 1)


def test_the_last_rank_cannot_put_off_more_weight_gradients_than_it_has_room_for() -> None:
    """By hand, 4 ranks, 8 micro-batches, 5 in flight: 36 until the last rank begins, 8 x 22, of 3 weight gradients 8
    each, 3 x 14 up to the first rank, and its own weight gradient."""
    assert bounds_of(trial(4, 8, 5)[1])["memory"] == 36 + 8 * 22 + 3 * 8 + 3 * 14 + 8


EVEN = {"profile": "uniform:f=20,b=20,w=20", "hop": 0.0}


@pytest.mark.parametrize(("in_flight", "bound_s"), [(2, 1310), (3, 1250), (4, 1190), (5, 1130), (6, 1070), (8, 1030)])
def test_a_v_waits_at_both_ends_while_its_memory_is_full(in_flight: int, bound_s: float) -> None:
    """By hand, of the last rank: 70 until it begins and 960 of work; 160 from there to its first backward, in which it
    has room for 20 s of forwards a micro-batch; and 240 behind its last forward, for 40 s of the rest a micro-batch."""
    stages = trial(8, 16, in_flight, "v", **EVEN)[1]
    waits_s = max(160 - 20 * in_flight, 0) + max(240 - 40 * in_flight, 0)
    assert bounds_of(stages)["full-memory"] == bound_s == 70 + 960 + waits_s


def test_a_v_with_little_memory_takes_as_long_as_its_byte_seconds() -> None:
    """By hand, of the last rank with 2 in flight: 70 until it begins; 190 and 170 s for half a unit each, 16 times, in
    2 units; in the first and the last 40 s three, two and one halves of these less, for 10 s each."""
    stages = trial(8, 16, 2, "v", **EVEN)[1]
    assert bounds_of(stages)["byte-seconds"] == 70 + (16 * (190 + 170) / 2 + 2 * 10 * (3 + 2 + 1) / 2) / 2


def test_of_two_stages_a_rank_no_bound_is_above_what_waits_for_nothing() -> None:
    stages = trial(4, 8, 8, "v", **EVEN)[1]
    assert bounds_of(stages)["full-memory"] <= bounds_of(stages)["one-machine"]


@pytest.mark.parametrize("seed", range(share(60)))
def test_an_order_keeps_to_its_heads_and_tails(seed: int) -> None:
    stages, _ = tiny(seed)
    if stages.count == stages.ranks and stages.splits and not stages.recomputes.any():
        timeline = timed(replace(stages, memory_bytes=np.full(stages.ranks, np.inf)), zb_h1(stages))
        assert timeline is not None
        heads = heads_and_tails(stages, remembers=False)
        assert (timeline.start_s >= heads.head_s.reshape(-1)).all()
        assert (timeline.end_s + heads.tail_s.reshape(-1) <= timeline.step_s).all()


def test_compression_can_only_lower_bounds() -> None:
    _, stages = trial(4, 8, 5)
    quick = replace(
        stages,
        hop_s=np.concatenate([stages.hop_s, 0.5 * stages.hop_s]),
        encode_s=np.concatenate([stages.encode_s, stages.encode_s + 1]),
        decode_s=np.concatenate([stages.decode_s, stages.decode_s + 1]),
        reduce_s=np.tile(stages.reduce_s, (2, 1)),
    )
    assert bounds_of(quick)["memory"] == 286 - 3  # each of three hops takes 1 s less, and coding may cost nothing


def test_jobs_on_two_machines_take_what_they_do_in_the_best_order() -> None:
    random = np.random.default_rng(1)
    for jobs in (1, 2, 3, 4):
        first_s, then_s = random.integers(0, 6, (2, jobs, 30)).astype(float)
        best_s = np.full(30, np.inf)
        for order in permutations(range(jobs)):
            now_s = end_s = np.zeros(30)
            for job in order:
                now_s = now_s + first_s[job]
                end_s = np.maximum(end_s, now_s) + then_s[job]
            best_s = np.minimum(best_s, end_s)
        np.testing.assert_array_equal(in_two_s(first_s, then_s), best_s)
