"""Cuts: all of them, in the order of a bound that holds; ties; the least memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from examples import share
from random_layers import random_layers

from gapless.encodings.pipeline.cut.costs import stages_of
from gapless.encodings.pipeline.cut.search import (
    CutSearch,
    bottleneck_of,
    cheap_cuts,
    fixed_cut,
    least_memory_bytes,
    mean_load_s,
)
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.order.timeline import has_room, timed
from gapless.encodings.pipeline.order.zero_bubble import zero_bubble
from gapless.encodings.pipeline.problem import EvenHops, Problem, Replicas
from gapless.encodings.pipeline.schedules.baselines import BASELINES, suits, whole
from gapless.profiles.pipelines.profile import PipelineProfile

MOST = 100_000


def random_problem(seed: int, **changes: Any) -> Problem:
    """Five to seven layers on two or three ranks, some with memory, replicas, a shared embedding."""
    rng = np.random.default_rng(seed)
    layers, ranks = int(rng.integers(5, 8)), int(rng.integers(2, 4))
    profile = random_layers(rng, layers)
    limit = float(rng.choice([np.inf, 150.0, 110.0]))
    replicas = Replicas(int(rng.integers(1, 4)), 0.5, 0.2, bool(rng.integers(2)))
    asked = Problem(
        profile, ranks, int(rng.integers(1, 5)), hops=EvenHops(0.5, 0.5), replicas=replicas, memory_bytes=limit
    )
    return replace(asked, **changes)


def all_cuts(problem: Problem) -> list[Cut]:
    return list(combinations(range(1, problem.profile.layer_count), problem.stage_count - 1))


def needed_bytes(problem: Problem, cut: Cut) -> float:
    """States, one micro-batch, a message in and one out, on the rank that needs most."""
    stages, messages = stages_of(problem, cut), [0, *problem.profile.boundary_bytes[np.array(cut) - 1].tolist(), 0]
    needs = stages.state_bytes + stages.stash_bytes
    return max(int(need) + a + b for need, a, b in zip(needs.tolist(), messages, messages[1:], strict=False))


def best_known_s(problem: Problem, cut: Cut) -> float:
    """What the best of the field's schedules and the heuristic within memory takes, inf where there is none."""
    stages, steps = stages_of(problem, cut), [np.inf]
    for name, baseline in BASELINES.items():
        if suits(name, problem.placement, stages):
            costs = stages if baseline.splits else whole(stages)
            order = baseline.order(costs)
            timeline = timed(costs, order)
            if timeline is not None and has_room(costs, order, timeline):
                steps.append(timeline.cost_s)
    found = zero_bubble(stages, 300)
    return min(*steps, np.inf if found is None else found[1].cost_s)


@pytest.mark.parametrize("seed", range(share(24)))
def test_every_cut_that_fits_comes_once_in_the_order_of_a_bound_that_holds(seed: int) -> None:
    problem = random_problem(seed, backward=("split", "whole")[seed % 2])
    search, found, bounds = CutSearch(problem, MOST), [], []
    for cut in search:
        found.append(cut)
        bounds.append(search.bound)
        assert search.bound <= best_known_s(problem, cut) * (1 + 1e-9)
    assert bounds == sorted(bounds)
    assert not search.is_cut_short
    assert search.bound == np.inf
    fitting = [cut for cut in all_cuts(problem) if needed_bytes(problem, cut) <= problem.memory_bytes]
    assert sorted(found) == fitting


@pytest.mark.parametrize("seed", range(share(30, 3)))
@pytest.mark.parametrize(
    ("placement", "recomputation"), [("looped", "none"), ("v", "none"), ("bidirectional", "none"), ("linear", "auto")]
)
def test_bounds_hold_for_other_placements_and_where_stages_may_recompute(
    seed: int, placement: str, recomputation: str
) -> None:
    changes = {"placement": placement, "chunks": 1 if placement == "linear" else 2, "recomputation": recomputation}
    micro_batches = {"micro_batches": 2 + 2 * (seed % 2)} if placement == "bidirectional" else {}
    problem = random_problem(seed, ranks=2, **changes, **micro_batches)
    search, count = CutSearch(problem, MOST), 0
    for cut in search:
        count += 1
        assert search.bound <= best_known_s(problem, cut) * (1 + 1e-9)
    if np.isinf(problem.memory_bytes):
        assert count == len(all_cuts(problem))


@pytest.mark.parametrize("seed", range(share(20, 2)))
@pytest.mark.parametrize("recomputation", ["none", "auto"])
def test_bounds_of_cuts_hold_for_spans(seed: int, recomputation: str) -> None:
    changes = {"placement": "v", "chunks": 2, "ranks": 2} if seed % 3 == 0 else {}
    problem = random_problem(seed, **changes, recomputation=recomputation, minimise="span", message_memory="free")
    search = CutSearch(problem, MOST)
    for cut in search:
        assert search.bound <= best_known_s(problem, cut) * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_the_least_memory_is_that_of_the_best_cut(seed: int) -> None:
    problem = random_problem(seed)
    least = min(needed_bytes(problem, cut) for cut in all_cuts(problem))
    assert least_memory_bytes(problem, MOST) == (least, True)
    even = replace(problem, cut="even")
    cut = fixed_cut(even)
    assert cut is not None
    assert least_memory_bytes(even, MOST) == (needed_bytes(problem, cut), True)


@pytest.mark.parametrize("seed", range(10))
def test_the_bottleneck_programme_finds_all_ties(seed: int) -> None:
    problem = random_problem(seed, memory_bytes=np.inf)
    loads = {cut: float(stages_of(problem, cut).compute_s.max()) for cut in all_cuts(problem)}
    least = min(loads.values())
    assert sorted(bottleneck_of(problem, MOST)) == [cut for cut in loads if loads[cut] <= least * (1 + 1e-9)]


def test_a_search_that_is_cut_short_says_so_and_its_bound_still_holds() -> None:
    problem = random_problem(3, memory_bytes=np.inf)
    full = CutSearch(problem, MOST)
    next(iter(full))
    short = CutSearch(problem, 1)
    assert list(short) == []
    assert short.is_cut_short
    assert short.bound <= full.bound


def head_heavy() -> PipelineProfile:
    """24 layers of 10, 12, 8 seconds between an embedding of 0.2 and a head of 3.2 of them; a layer keeps 1 GB."""
    share = np.ones(26)
    share[[0, -1]] = 0.2, 3.2
    none, stash = np.zeros(26, dtype=np.int64), np.full(26, 10**9)
    stash[[0, -1]] = 0
    return PipelineProfile(
        "heavy", tuple(map(str, range(26))), 10 * share, 12 * share, 8 * share, none, none, stash, np.full(26, 10**6)
    )


def test_cuts_of_equal_bottleneck_differ() -> None:
    """A head of 3.2 layers: cut evenly by its layers 2,396; of the cuts of equal bottleneck the best bound is 1,826."""
    problem = Problem(head_heavy(), 4, 8, hops=EvenHops(2.0))
    assert best_known_s(problem, (7, 13, 19)) == pytest.approx(2396)
    ties = {cut: best_known_s(problem, cut) for cut in bottleneck_of(problem, MOST)}
    assert ties[7, 14, 21] == pytest.approx(1936)
    assert ties[8, 15, 22] == pytest.approx(1830)
    assert len({float(stages_of(problem, cut).compute_s.max()) for cut in ties}) == 1
    search = CutSearch(problem, MOST)
    assert next(iter(search)) == (8, 15, 22)
    assert search.bound == pytest.approx(1826)


@pytest.mark.parametrize("seed", range(share(24)))
def test_cheap_cuts_leave_room_and_take_no_less_than_the_mean_load(seed: int) -> None:
    problem = random_problem(seed, **({"placement": "looped", "chunks": 2, "ranks": 2} if seed % 2 else {}))
    cuts = cheap_cuts(problem)
    for cut in cuts:
        assert seed % 2 or needed_bytes(problem, cut) <= problem.memory_bytes
        assert mean_load_s(problem) <= best_known_s(problem, cut) * (1 + 1e-9)
    fitting = [cut for cut in all_cuts(problem) if seed % 2 == 0 and needed_bytes(problem, cut) <= problem.memory_bytes]
    assert cuts or not fitting
