"""No step that is reached is refuted, however few points in time there are; what memory costs in a V is found."""

from __future__ import annotations

import numpy as np
import pytest
from exact_pipeline import exact_step, few_stages
from examples import share
from tiny_pipelines import tiny

from gapless.encodings.pipeline.bounds.activities import of_rank
from gapless.encodings.pipeline.bounds.bounds import bounds_of
from gapless.encodings.pipeline.bounds.destructive import time_indexed_bound
from gapless.encodings.pipeline.bounds.heads import heads_and_tails
from gapless.encodings.pipeline.bounds.time_indexed import is_refuted, points_of
from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.order.stages import Stages
from gapless.encodings.pipeline.order.ticks import in_ticks
from gapless.encodings.pipeline.problem import problem
from gapless.options import Deadline, SolveOptions

POINTS = (12, 30, 60, 150, 256)


def bound_s(stages: Stages, step_s: float, points: int = 256) -> float:
    ticked = in_ticks(stages, step_s)
    least = max(bounds_of(ticked.stages).values())
    deadline = Deadline(SolveOptions())
    found = time_indexed_bound(ticked.stages, least, step_s // ticked.tick_s, points, 8, deadline)
    return found * ticked.tick_s


def v(ranks: int, micro_batches: int, in_flight: int, costs: str, hop: float = 0.0) -> Stages:
    question = problem(profile=f"uniform:{costs}", ranks=ranks, micro_batches=micro_batches, placement="v",
                       in_flight=in_flight, hop=hop, cut="even")  # fmt: skip
    return stages_of(question, even_cut(question.profile.layer_count, question.stage_count))


@pytest.mark.parametrize("seed", range(share(200)))
def test_no_step_that_a_tiny_pipeline_reaches_is_refuted(seed: int) -> None:
    stages, best_s = tiny(seed)
    assert bound_s(stages, 1.2 * best_s + 2, POINTS[seed % 5]) <= best_s


@pytest.mark.thorough("[5]", "[14]")
@pytest.mark.parametrize("seed", range(share(300, 3)))
def test_no_step_that_several_stages_a_rank_reach_is_refuted(seed: int) -> None:
    stages = few_stages(seed)
    best_s, proven_s = exact_step(stages, 20.0)
    if best_s == proven_s:
        assert max(bounds_of(stages).values()) <= best_s
        assert bound_s(stages, 1.15 * best_s + 2, POINTS[seed % 5]) <= best_s


@pytest.mark.parametrize(
    ("in_flight", "points", "least_s", "most_s"),
    [(5, 256, 1130, 1130), (5, 60, 1075, 1130), (4, 256, 1190, 1210), (4, 60, 1130, 1210)],
)
def test_a_v_has_to_wait_for_memory_at_both_ends(in_flight: int, points: int, least_s: float, most_s: float) -> None:
    """The zero-bubble authors' V-Half takes 1,130 s; with 4 in flight an order of 1,210 s is known."""
    stages = v(8, 16, in_flight, "f=20,b=20,w=20")
    assert bounds_of(stages)["memory"] == 1030
    assert least_s <= bound_s(stages, 1300.0, points) <= most_s


@pytest.mark.thorough
def test_what_was_open_in_the_trial_of_a_v_is_proven() -> None:
    assert bound_s(v(4, 8, 4, "f=10,b=12,w=8", 2.0), 281.0) == 281


def test_what_a_bound_takes_does_not_grow_with_micro_batches() -> None:
    sizes = []
    for micro_batches in (16, 160):
        stages = v(4, micro_batches, 3, "f=10,b=12,w=8", 2.0)
        activities = of_rank(heads_and_tails(stages), 3)
        points = points_of(activities, 40.0 * micro_batches, 100)
        assert points[0] == 0
        assert points[-1] == 40 * micro_batches
        assert (np.diff(points) > 0).all()
        sizes.append(len(points))
    assert max(sizes) <= 110


def test_durations_without_a_common_unit_are_rounded_down() -> None:
    stages = v(4, 8, 4, "f=10.00013,b=12.00007,w=8.00001", 2.0003)
    assert not in_ticks(stages, 281.0).is_exact
    assert 270 <= bound_s(stages, 282.0, 100) <= 281.01


def test_where_time_is_up_nothing_is_refuted() -> None:
    activities = of_rank(heads_and_tails(v(8, 16, 5, "f=20,b=20,w=20")), 7)
    assert is_refuted(activities, 1060.0, 60, Deadline(SolveOptions()))
    assert not is_refuted(activities, 1060.0, 60, Deadline(SolveOptions(time_limit_s=1e-9)))
