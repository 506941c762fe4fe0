"""Fusions, their time lines, their schedules, and the baselines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import share
from fusion_instances import KINDS, known_instance, mixed_instance, random_instance

from gapless.checker import Rule, check
from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.lowering import COMPUTE, DECODE, NETWORK, to_schedule
from gapless.encodings.cupcake.methods.baselines import (
    all_baselines,
    buckets,
    even_split,
    layer_wise,
    one_group,
    selective,
)
from gapless.encodings.cupcake.solve import best_fusion
from gapless.encodings.cupcake.views import render_groups
from gapless.errors import InputError
from gapless.ir.graph import Graph, Placement
from gapless.ir.schedule import Schedule
from gapless.ir.simulate import retime
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.fusion import DECODES, Costs, Fusion, timeline
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile
from gapless.recipe import solve
from gapless.report.baselines import render_baselines
from gapless.solution import Status
from gapless.topologies.topology import Topology

MS = 1e-3


def _three() -> FusionProfile:
    """Three gradients of 1 MB, 1 ms each; compression 2 ms a group, communication 1 ms + 1 ms/MB."""
    return FusionProfile(
        "three", 5 * MS, ("a", "b", "c"), np.full(3, 10**6), np.full(3, MS),
        (Mode("small", AffineCost(MS, MS / 1e6), AffineCost(2 * MS, 0.0)),),
    )  # fmt: skip


def _with(profile: FusionProfile, plain: AffineCost | None = None, **changes: Any) -> FusionProfile:
    """The profile with another first mode, and perhaps plain."""
    modes = (replace(profile.modes[0], **changes),)
    return replace(profile, modes=modes if plain is None else (*modes, plain_mode(plain)))


def _small(*ends: int) -> Fusion:
    return Fusion.uniform(ends, "small")


def _random_fusion(rng: np.random.Generator, count: int) -> Fusion:
    cuts = np.flatnonzero(rng.random(count - 1) < 0.5) + 1
    return Fusion.uniform((*cuts.tolist(), count), "compressed")


# -- time lines --------------------------------------------------------------------------------------------------------


def test_groups_are_inclusive_pairs_in_ready_order() -> None:
    assert _small(2, 3, 6).groups == ((0, 1), (2, 2), (3, 5))


def test_a_time_line_by_hand() -> None:
    """Group 0 is compressed at 1 + 2, sent until 3 + 2; group 1 compressed at 3 + 2 + 2, sent until 7 + 3."""
    times = timeline(Costs.of(_three()), _small(1, 3))
    assert times.compressed_s.tolist() == pytest.approx([3 * MS, 7 * MS])
    assert times.sending_s.tolist() == pytest.approx([3 * MS, 7 * MS])
    assert times.sent_s.tolist() == pytest.approx([5 * MS, 10 * MS])
    assert times.exposed_s == pytest.approx(3 * MS)


def test_a_collective_waits_for_the_one_before_it() -> None:
    slow = Costs.of(_with(_three(), communication=AffineCost(10 * MS, 0.0)))
    times = timeline(slow, _small(1, 2, 3))
    assert times.sending_s.tolist() == pytest.approx([3 * MS, 13 * MS, 23 * MS])


@pytest.mark.parametrize("ends", [(), (2,), (1, 1, 3), (0, 3), (3, 2), (1, 4)])
def test_ends_that_do_not_cover_the_gradients_are_refused(ends: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="ends: must rise from 1 or more to 3"):
        timeline(Costs.of(_three()), _small(*ends))


@pytest.mark.parametrize(
    ("modes", "message"),
    [(("small",), "must be one for each of 2 groups"), (("small", "smal"), "did you mean 'small'")],
)
def test_modes_that_do_not_go_with_the_groups_are_refused(modes: tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        timeline(Costs.of(_three()), Fusion((1, 3), modes))


def test_a_group_sent_plain_is_not_compressed() -> None:
    profile = _with(_three(), plain=AffineCost(0.0, 4 * MS / 1e6))
    times = timeline(Costs.of(profile), Fusion((1, 3), ("small", "plain")))
    assert times.compress_s.tolist() == pytest.approx([2 * MS, 0.0])
    assert times.send_s.tolist() == pytest.approx([2 * MS, 8 * MS])


def test_decoding_follows_the_collective_one_group_after_the_other_or_counts_as_compression() -> None:
    """Decoding takes 4 ms: group 0 is there at 5 + 4, group 1, sent at 10, at 10 + 4; before, 6 ms go before a send."""
    profile = _with(_three(), decode=AffineCost(4 * MS, 0.0))
    after, before = (timeline(Costs.of(profile, decode=decode), _small(1, 3)) for decode in ("after", "before"))
    assert after.sent_s.tolist() == pytest.approx([5 * MS, 10 * MS])
    assert after.decoded_s.tolist() == pytest.approx([9 * MS, 14 * MS])
    assert before.compressed_s.tolist() == pytest.approx([7 * MS, 15 * MS])
    assert before.decoded_s.tolist() == before.sent_s.tolist() == pytest.approx([9 * MS, 18 * MS])
    busy = timeline(Costs.of(_with(profile, decode=AffineCost(9 * MS, 0.0))), _small(1, 3))
    assert busy.decoded_s.tolist() == pytest.approx([14 * MS, 23 * MS])


def test_costs_are_functions_of_the_sums_of_a_modes_own_vectors() -> None:
    profile = _with(
        _three(), encoded_bytes=(0.0, 2e6, 0.0), sent_bytes=(5e6, 0.0, 1e6), encode=AffineCost(0.0, MS / 1e6)
    )
    times = timeline(Costs.of(profile), _small(1, 3))
    assert times.compress_s.tolist() == pytest.approx([0.0, 2 * MS])
    assert times.send_s.tolist() == pytest.approx([6 * MS, 2 * MS])


# -- schedules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_the_replay_takes_as_long_as_the_time_line(kind: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(40):
        profile = mixed_instance(rng, kind)
        ends = _random_fusion(rng, profile.tensor_count).ends
        fusion = Fusion(ends, tuple(rng.choice(profile.mode_names, len(ends)).tolist()))
        for decode in DECODES:
            costs = Costs.of(profile, decode=decode)
            report = check(to_schedule(profile, costs, fusion))
            assert report.valid, report.summary()
            assert report.makespan_s == pytest.approx(costs.step_s(fusion), rel=1e-9)


def test_no_event_of_the_schedule_can_run_earlier() -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        profile = random_instance(rng, "affine")
        schedule = to_schedule(profile, Costs.of(profile), _random_fusion(rng, profile.tensor_count))
        assert check(retime(schedule)).makespan_s == pytest.approx(check(schedule).makespan_s, rel=1e-9)


def test_compute_network_and_decoding_are_busy_for_what_they_do() -> None:
    profile = _with(known_instance(), decode=AffineCost(1e-4, 0.0))
    costs, fusion = Costs.of(profile), Fusion.uniform((2, 3, 5, 6, 7), "compressed")
    busy, times = check(to_schedule(profile, costs, fusion)).busy_s.engines, timeline(costs, fusion)
    assert busy[COMPUTE] == pytest.approx(profile.compute_s + times.compress_s.sum())
    assert busy[NETWORK] == pytest.approx(times.send_s.sum())
    assert busy[DECODE] == pytest.approx(5e-4)


def _schedule(*ends: int) -> Schedule:
    """Of three gradients, with 4 ms to decode a group."""
    profile = _with(_three(), decode=AffineCost(4 * MS, 0.0))
    return to_schedule(profile, Costs.of(profile), _small(*ends))


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
     ("decode 1", -1 * MS, Rule.INPUT_LATE), ("collective 0", 3 * MS, Rule.RESOURCE_OVERLAP),
     ("decode 0", 2 * MS, Rule.RESOURCE_OVERLAP)],
)  # fmt: skip
def test_a_schedule_in_a_hurry_is_caught(op: str, by_s: float, rule: Rule) -> None:
    report = check(_moved(_schedule(1, 3), op, by_s))
    assert rule in report.violation_counts


def test_a_gradient_that_is_never_synchronised_is_caught() -> None:
    schedule = _schedule(1, 3)
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
    assert layer_wise(Costs.of(_three())).fusion.ends == (1, 2, 3)
    assert one_group(Costs.of(_three())).fusion.ends == (3,)


def test_a_bucket_is_closed_once_it_is_full() -> None:
    best = buckets(Costs.of(replace(_three(), size_bytes=np.array([1_500_000, 600_000, 10**6]))))
    assert best.setting == "2 MB"
    assert best.fusion.ends == (2, 3)


def test_even_splits_differ_by_one_at_most() -> None:
    rng = np.random.default_rng(8)
    for _ in range(30):
        profile = random_instance(rng, "affine", most=60)
        sizes = np.diff((0, *even_split(Costs.of(profile)).fusion.ends))
        assert sizes.max() - sizes.min() <= 1


def test_selective_compression_leaves_small_gradients_plain() -> None:
    changes = {"encode": AffineCost(MS, 0.0), "communication": AffineCost(0.0, MS / 1e7)}
    profile = replace(_three(), size_bytes=np.array([1000, 10**7, 2000]))
    profile = _with(profile, plain=AffineCost(0.0, MS / 1e6), **changes)
    costs = Costs.of(profile)
    best = selective(costs)
    assert best is not None
    assert best.fusion.modes == ("plain", "small", "plain")
    assert check(to_schedule(profile, costs, best.fusion)).makespan_s == pytest.approx(best.iteration_s)
    assert selective(Costs.of(_three())) is None


def test_baselines_compress_every_group_but_for_those_that_say_so() -> None:
    found = {each.name: each for each in all_baselines(Costs.of(_with(_three(), plain=AffineCost(MS, MS / 1e6))))}
    assert all(
        set(found[name].fusion.modes) == {"small"} for name in ("layer-wise", "one-group", "buckets", "even-split")
    )
    assert set(found["plain-buckets"].fusion.modes) == {"plain"}
    assert found["selective-buckets"].iteration_s <= min(
        found[name].iteration_s for name in ("buckets", "plain-buckets")
    )


@pytest.mark.parametrize("kind", KINDS)
def test_no_baseline_beats_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(10)
    for _ in range(share(200)):
        profile = random_instance(rng, kind, most=40)
        best = best_fusion(profile)
        assert all(
            best.iteration_s <= baseline.iteration_s * (1 + 1e-9) for baseline in all_baselines(Costs.of(profile))
        )


# -- the whole recipe --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "pareto", "milp", "algorithm1", "layer-wise", "buckets"])
def test_a_solved_problem_replays_clean_at_its_objective(method: str) -> None:
    result = solve(Problem(known_instance(), method, decode="before"))
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
    text = render_baselines("fusion", result.details["baselines_s"], result.solution.objective or 0.0)
    assert "layer-wise" in text
    assert "23.47 %" in text


def test_a_long_summary_is_cut() -> None:
    profile = random_instance(np.random.default_rng(1), "affine", most=90, least=90)
    text = render_groups(to_schedule(profile, Costs.of(profile), layer_wise(Costs.of(profile)).fusion))
    assert text.splitlines()[-1].strip() == "... and 50 groups more"


def test_a_summary_of_another_schedule_is_refused() -> None:
    graph = Graph(np.array([1]), initial=Placement.of([(0, 0)]))
    empty = _schedule(3)
    none = np.empty(0, dtype=np.int64)
    lists = {title: getattr(empty, title).take(none) for title in ("moves", "freed_tensor", "freed_device")}
    columns = {
        title: getattr(empty, title)[none]
        for title in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces")
    }
    with pytest.raises(InputError, match="fusion plan"):
        render_groups(replace(empty, graph=graph, topology=Topology("one", (0,)), **columns, **lists))
