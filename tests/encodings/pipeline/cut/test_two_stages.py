"""The least cut of two stages a rank: what no plan of any cut is below, and no other cut by the same rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from examples import share
from random_layers import random_layers

from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.two_stages import LeastCut, _Ranks, least_cut
from gapless.encodings.pipeline.methods import first_orders
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.order.timeline import has_room
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.problem import EvenHops, Problem, Replicas
from gapless.profiles.pipelines.profile import PipelineProfile


def random_problem(seed: int, **changes: Any) -> Problem:
    """Two stages on each of two ranks, or of three; some with memory, replicas, a shared embedding, steps, spans."""
    rng = np.random.default_rng(seed)
    ranks = int(rng.integers(2, 4))
    layers = 2 * ranks + int(rng.integers(1, 4))
    profile = random_layers(rng, layers)
    limit = float(rng.choice([np.inf, 160.0]))
    replicas = Replicas(int(rng.integers(1, 4)), 0.5, float(rng.choice([0.2, 2.0])), bool(rng.integers(2)))
    asked = Problem(
        profile, ranks, int(rng.integers(1, 9)), placement=("v", "looped")[seed % 2], chunks=2,
        hops=EvenHops(*rng.choice([0.0, 0.5, 2.0], 2)), replicas=replicas, memory_bytes=limit,
        backward=str(rng.choice(["split", "whole"])),
    )  # fmt: skip
    repeated: dict[str, Any] = [{}, {}, {"minimise": "span"}, {"steps": 2}][int(rng.integers(4))]
    if repeated:
        repeated["message_memory"] = "free"
    return replace(asked, **{**repeated, **changes})


def all_cuts(problem: Problem) -> list[Cut]:
    return list(combinations(range(1, problem.profile.layer_count), problem.stage_count - 1))


def fastest_s(problem: Problem, cut: Cut) -> float:
    """What the first order that fits and the heuristic take, inf where nothing fits."""
    stages = stages_of(problem, cut)
    splits = [stages] if stages.splits else []
    heuristic = [found for each in splits if (found := zero_bubble(each, 300)) is not None]
    steps = [found[1].cost_s for found in heuristic if has_room(stages, *found)]
    steps += [
        each.timeline.cost_s
        for each in first_orders(problem, cut, stages)
        if has_room(each.stages, each.order, each.timeline)
    ]
    return min(steps, default=np.inf)


@pytest.mark.parametrize("seed", range(share(1000)))
def test_no_other_cut_has_an_earlier_end_of_its_last_rank(seed: int) -> None:
    problem = random_problem(seed)
    ranks, found = _Ranks(problem, problem.placement == "v"), least_cut(problem)
    least_s = min(ranks.end_s(cut) for cut in all_cuts(problem))
    assert found is None or ranks.end_s(found.cut) >= least_s >= found.bound_s
    assert found is not None or np.isinf(least_s)


@pytest.mark.thorough
def test_the_cut_of_the_bound_is_most_often_a_least_one() -> None:
    found = [(random_problem(seed), least_cut(random_problem(seed))) for seed in range(300)]
    known = [(_Ranks(problem, problem.placement == "v"), problem, one) for problem, one in found if one is not None]
    shares = [min(map(ranks.end_s, all_cuts(problem))) / ranks.end_s(one.cut) for ranks, problem, one in known]
    assert len(known) > 200
    assert np.mean(np.array(shares) > 0.999) > 0.9


@pytest.mark.parametrize("seed", range(share(500)))
def test_no_plan_of_a_cut_ends_before_its_last_rank_or_the_bound(seed: int) -> None:
    problem = random_problem(seed)
    ranks, found, rng = _Ranks(problem, problem.placement == "v"), least_cut(problem), np.random.default_rng(seed)
    cuts = all_cuts(problem)
    for cut in (cuts[place] for place in rng.permutation(len(cuts))[:4].tolist()):
        bound_s = ranks.end_s(cut)
        assert fastest_s(problem, cut) >= bound_s * (1 - 1e-9)
        assert bound_s >= (np.inf if found is None else found.bound_s)


@pytest.mark.parametrize(
    "change", [{"placement": "linear", "chunks": 1}, {"placement": (0, 1, 1, 0, 0, 1), "chunks": 3}]
)
def test_ranks_that_do_not_have_two_stages_in_a_v_or_a_loop_have_none(change: dict[str, Any]) -> None:
    assert least_cut(replace(random_problem(2, ranks=2), **change)) is None


def test_equal_layers_are_cut_so_that_the_first_rank_has_more() -> None:
    """Of a V with much to do, the rank that waits longest for its first forward has least."""
    ones = np.ones(24)
    profile = PipelineProfile(
        "equal", tuple(map(str, range(24))), ones, ones, ones, *(np.zeros(24, dtype=np.int64) for _ in range(4))
    )
    found = least_cut(Problem(profile, 2, 4, placement="v", chunks=2, hops=EvenHops(0.0, 0.0)))
    assert isinstance(found, LeastCut)
    first, _, back = found.cut
    assert first + 24 - back >= 12
    assert found.bound_s >= 4 * 3 * 12 * 0.999
