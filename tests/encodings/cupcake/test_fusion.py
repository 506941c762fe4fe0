"""Fusions, their time lines, their schedules, and the baselines."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusion_instances import KINDS, known_instance, random_instance

from gapless.checker import Rule, check
from gapless.encodings.cupcake import Fusion, Problem, timeline
from gapless.encodings.cupcake.baselines import all_baselines, buckets, even_split, layer_wise, one_group, selective
from gapless.encodings.cupcake.lowering import COMPUTE, NETWORK, to_schedule
from gapless.encodings.cupcake.solve import best_fusion
from gapless.encodings.cupcake.summary import render_baselines, render_groups
from gapless.errors import InputError
from gapless.graph import Graph, Placement
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.profile import FusionProfile
from gapless.recipe import solve
from gapless.schedule import Schedule
from gapless.simulate import retime
from gapless.solution import Status
from gapless.topologies.topology import Topology

MS = 1e-3


def _three() -> FusionProfile:
    """Three gradients of 1 MB, 1 ms each; compression 2 ms a group, communication 1 ms + 1 ms/MB."""
    return FusionProfile(
        "three", 5 * MS, ("a", "b", "c"), np.full(3, 10**6), np.full(3, MS), AffineCost(2 * MS, 0.0),
        AffineCost(MS, MS / 1e6),
    )  # fmt: skip


def _random_fusion(rng: np.random.Generator, count: int) -> Fusion:
    cuts = np.flatnonzero(rng.random(count - 1) < 0.5) + 1
    return Fusion((*cuts.tolist(), count))


# -- time lines --------------------------------------------------------------------------------------------------------


def test_groups_are_inclusive_pairs_in_ready_order() -> None:
    assert Fusion((2, 3, 6)).groups == ((0, 1), (2, 2), (3, 5))


def test_a_time_line_by_hand() -> None:
    """Group 0 is compressed at 1 + 2, sent until 3 + 2; group 1 compressed at 3 + 2 + 2, sent until 7 + 3."""
    times = timeline(_three(), Fusion((1, 3)))
    assert times.compressed_s.tolist() == pytest.approx([3 * MS, 7 * MS])
    assert times.sending_s.tolist() == pytest.approx([3 * MS, 7 * MS])
    assert times.sent_s.tolist() == pytest.approx([5 * MS, 10 * MS])
    assert times.exposed_s == pytest.approx(3 * MS)


def test_a_collective_waits_for_the_one_before_it() -> None:
    slow = replace(_three(), communication=AffineCost(10 * MS, 0.0))
    times = timeline(slow, Fusion((1, 2, 3)))
    assert times.sending_s.tolist() == pytest.approx([3 * MS, 13 * MS, 23 * MS])


@pytest.mark.parametrize("ends", [(), (2,), (1, 1, 3), (0, 3), (3, 2), (1, 4)])
def test_ends_that_do_not_cover_the_gradients_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ends: must rise from 1 or more to 3"):
        timeline(_three(), Fusion(ends))


def test_sending_plain_needs_to_know_its_cost() -> None:
    with pytest.raises(InputError, match="uncompressed_communication"):
        timeline(_three(), Fusion((3,), frozenset({0})))


def test_a_group_sent_plain_is_not_compressed() -> None:
    profile = replace(_three(), uncompressed_communication=AffineCost(0.0, 4 * MS / 1e6))
    times = timeline(profile, Fusion((1, 3), frozenset({1})))
    assert times.compress_s.tolist() == pytest.approx([2 * MS, 0.0])
    assert times.send_s.tolist() == pytest.approx([2 * MS, 8 * MS])


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_takes_as_long_as_the_time_line(kind: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        profile = random_instance(rng, kind)
        fusion = _random_fusion(rng, profile.tensor_count)
        report = check(to_schedule(profile, fusion))
        assert report.valid, report.summary()
        assert report.makespan_s == pytest.approx(profile.forward_s + timeline(profile, fusion).end_s, rel=1e-9)


def test_no_event_of_the_schedule_can_run_earlier() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        profile = random_instance(rng, "affine")
        schedule = to_schedule(profile, _random_fusion(rng, profile.tensor_count))
        assert check(retime(schedule)).makespan_s == pytest.approx(check(schedule).makespan_s, rel=1e-9)


def test_compute_and_network_are_busy_for_what_they_do() -> None:
    profile = known_instance()
    busy = check(to_schedule(profile, Fusion((2, 3, 5, 6, 7)))).busy_s.engines
    times = timeline(profile, Fusion((2, 3, 5, 6, 7)))
    assert busy[COMPUTE] == pytest.approx(profile.compute_s + times.compress_s.sum())
    assert busy[NETWORK] == pytest.approx(times.send_s.sum())


def _moved(schedule: Schedule, name: str, by_s: float) -> Schedule:
    """The schedule with one op's event at another time."""
    row = next(k for k, op in enumerate(schedule.op.tolist()) if schedule.graph.ops[op].name == name)
    start_s, end_s = schedule.start_s.copy(), schedule.end_s.copy()
    start_s[row] += by_s
    end_s[row] += by_s
    return replace(schedule, start_s=start_s, end_s=end_s)


@pytest.mark.parametrize(
    ("op", "by_s", "rule"),
    [("collective 1", -1 * MS, Rule.INPUT_LATE), ("encode 0", -0.5 * MS, Rule.RESOURCE_OVERLAP),
     ("decode 1", -1 * MS, Rule.INPUT_LATE), ("collective 0", 3 * MS, Rule.RESOURCE_OVERLAP)],
)  # fmt: skip
def test_a_schedule_in_a_hurry_is_caught(op: str, by_s: float, rule: Rule) -> None:
    report = check(_moved(to_schedule(_three(), Fusion((1, 3))), op, by_s))
    assert rule in report.violation_counts


def test_a_gradient_that_is_never_synchronised_is_caught() -> None:
    schedule = to_schedule(_three(), Fusion((1, 3)))
    keep = np.array([schedule.graph.ops[op].name != "decode 1" for op in schedule.op.tolist()])
    rows = np.flatnonzero(keep)
    columns = {title: getattr(schedule, title)[rows] for title in ("kind", "start_s", "end_s", "place", "op")}
    lists = {title: getattr(schedule, title).take(rows) for title in ("moves", "freed_tensor", "freed_device")}
    less = replace(
        schedule, **columns, **lists, implementation=schedule.implementation[rows], reduces=schedule.reduces[rows]
    )
    assert Rule.REQUIRED_MISSING in check(less).violation_counts


# -- baselines ---------------------------------------------------------------------------------------------------------


def test_layer_wise_and_one_group_are_the_extremes() -> None:
    assert layer_wise(_three()).fusion.ends == (1, 2, 3)
    assert one_group(_three()).fusion.ends == (3,)


def test_a_bucket_is_closed_once_it_is_full() -> None:
    best = buckets(replace(_three(), size_bytes=np.array([1_500_000, 600_000, 10**6])))
    assert best.setting == "2 MB"
    assert best.fusion.ends == (2, 3)


def test_even_splits_differ_by_one_at_most() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        profile = random_instance(rng, "affine", most=60)
        sizes = np.diff((0, *even_split(profile).fusion.ends))
        assert sizes.max() - sizes.min() <= 1


def test_selective_compression_leaves_small_gradients_plain() -> None:
    profile = replace(
        _three(), size_bytes=np.array([1000, 10**7, 2000]), compression=AffineCost(MS, 0.0),
        communication=AffineCost(0.0, MS / 1e7), uncompressed_communication=AffineCost(0.0, MS / 1e6),
    )  # fmt: skip
    best = selective(profile)
    assert best.fusion.sent_plain == {0, 2}
    assert check(to_schedule(profile, best.fusion)).makespan_s == pytest.approx(best.iteration_s)
    assert selective(_three()) is None


@pytest.mark.parametrize("kind", KINDS)
def test_no_baseline_beats_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(10)
    for _ in range(60):
        profile = random_instance(rng, kind, most=40)
        best = best_fusion(profile)
        assert all(best.iteration_s <= baseline.iteration_s * (1 + 1e-9) for baseline in all_baselines(profile))


# -- the whole recipe --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "pareto", "milp", "algorithm1", "layer-wise", "buckets"])
def test_a_solved_problem_replays_clean_at_its_objective(method: str) -> None:
    result = solve(Problem(known_instance(), method))
    assert result.valid
    assert result.report is not None
    assert result.report.makespan_s == pytest.approx(result.solution.objective, rel=1e-9)
    exact = method in ("auto", "pareto", "milp")
    assert result.status is (Status.OPTIMAL if exact else Status.FEASIBLE)
    assert (result.solution.bound is None) is not exact
    assert result.details["groups"][-1][1] == 6


def test_equal_input_gives_an_equal_plan() -> None:
    profile = random_instance(np.random.default_rng(12), "points", most=60, least=60)
    first, second = solve(Problem(profile)), solve(Problem(profile))
    assert first.details == second.details


def test_a_summary_has_a_line_for_each_group_and_each_baseline() -> None:
    result = solve(Problem(known_instance()))
    assert result.schedule is not None
    assert len(render_groups(result.schedule).splitlines()) == 1 + 5
    text = render_baselines(result.details["baselines_s"], result.solution.objective or 0.0)
    assert "layer-wise" in text
    assert "23.47 %" in text


def test_a_long_summary_is_cut() -> None:
    profile = random_instance(np.random.default_rng(1), "affine", most=90, least=90)
    text = render_groups(to_schedule(profile, layer_wise(profile).fusion))
    assert text.splitlines()[-1].strip() == "... and 50 groups more"


def test_a_summary_of_another_schedule_is_refused() -> None:
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]))
    empty = to_schedule(_three(), Fusion((3,)))
    none = np.empty(0, dtype=np.int64)
    lists = {title: getattr(empty, title).take(none) for title in ("moves", "freed_tensor", "freed_device")}
    columns = {
        title: getattr(empty, title)[none]
        for title in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    }
    with pytest.raises(InputError, match="fusion plan"):
        render_groups(replace(empty, graph=graph, topology=Topology("one", (0,)), **columns, **lists))
