"""The zero-bubble heuristic: an order always comes out, it is within memory, and it is the same twice."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from examples import share
from tiny_pipelines import tiny, trial

from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.order.zero_bubble import all_rules, fits, list_schedule, zero_bubble
from gapless.options import Deadline, SolveOptions

FIGURES = [
    (4, 8, 5, "linear", 290), (4, 8, 6, "linear", 278), (4, 8, 8, "linear", 276), (8, 16, 10, "linear", 602),
    (8, 16, 12, "linear", 574), (4, 8, 8, "v", 261), pytest.param(4, 16, 8, "looped", 501, marks=pytest.mark.thorough),
]  # fmt: skip


@pytest.mark.thorough("8-8-v", "8-16-12")
@pytest.mark.parametrize(("ranks", "micro_batches", "in_flight", "placement", "most_s"), FIGURES)
def test_it_is_as_fast_as_ever_on_the_trials(
    ranks: int, micro_batches: int, in_flight: int, placement: str, most_s: float
) -> None:
    found = zero_bubble(trial(ranks, micro_batches, in_flight, placement)[1], 10**6)
    assert found is not None
    assert found[1].step_s <= most_s


@pytest.mark.parametrize("seed", range(share(200)))
def test_every_set_of_rules_gives_an_order_within_memory(seed: int) -> None:
    stages, best_s = tiny(seed)
    for rules in all_rules(stages):
        timeline = timed(stages, list_schedule(stages, rules))
        assert timeline is not None
        assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
        assert timeline.step_s >= best_s


def uneven(seed: int) -> Stages:
    """Several chunks of different sizes on each rank, some of which run their forward again, in little memory."""
    random = np.random.default_rng(seed)
    placement = ("looped", "v")[seed % 2]
    _, stages = trial(3, 6, 1, placement, chunks=int(random.integers(2, 4)))
    stash = random.integers(1, 9, stages.count)
    one = np.bincount(stages.rank, weights=stash, minlength=3)
    states = np.bincount(stages.rank, weights=stages.state_bytes, minlength=3)
    return replace(
        stages,
        stash_bytes=stash,
        weight_stash_bytes=stash if random.integers(2) else random.integers(0, stash + 1),
        saved_bytes=np.ones(stages.count, dtype=np.int64),
        recomputes=random.integers(2, size=stages.count) == 0,
        memory_bytes=states + one + random.integers(0, 9, 3),
    )


@pytest.mark.thorough("6", "7", "8", "9", "10", "11")
@pytest.mark.parametrize("seed", range(share(12)))
def test_room_for_one_micro_batch_is_enough(seed: int) -> None:
    stages = uneven(seed)
    for rules in islice(all_rules(stages), 0, None, 7):
        timeline = timed(stages, list_schedule(stages, rules))
        assert timeline is not None
        assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()


def test_less_room_than_for_one_micro_batch_gives_nothing() -> None:
    _, stages = trial(4, 8, 1)
    assert fits(stages)
    short = replace(stages, memory_bytes=stages.memory_bytes - 1)
    assert not fits(short)
    assert zero_bubble(short, 10**6) is None


def test_the_number_of_ops_bounds_the_work_and_at_least_one_set_is_tried() -> None:
    _, stages = trial(4, 8, 5)
    first = list_schedule(stages, next(all_rules(stages)))
    few = zero_bubble(stages, 1)
    assert few is not None
    assert all((one == other).all() for one, other in zip(few[0].sequences, first.sequences, strict=True))


def test_a_deadline_that_is_over_leaves_the_first_order() -> None:
    options = SolveOptions()
    options.stop.set()
    assert zero_bubble(trial(4, 8, 5)[1], 10**6, Deadline(options)) is not None


def test_blocking_sends_hold_the_rank() -> None:
    _, stages = trial(4, 8, 8)
    free, held = zero_bubble(stages, 10**5), zero_bubble(replace(stages, blocks=True), 10**5)
    assert free is not None
    assert held is not None
    assert held[1].step_s >= 8 * (10 + 12 + 8 + 2 + 2)  # a rank in the middle sends two messages of each micro-batch
    assert free[1].step_s < held[1].step_s
