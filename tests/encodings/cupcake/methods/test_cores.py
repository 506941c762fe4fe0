"""Cores that all work of a rank shares: exact methods against brute force, and no way to share them beats the bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest
from examples import share
from fusion_instances import KINDS, brute_force_s, mixed_instance, with_cores, without
from shared_cores import POLICIES, flowed_s

from gapless.checker import check
from gapless.encodings.cupcake.lowering import CORES, to_schedule
from gapless.encodings.cupcake.methods.baselines import layer_wise
from gapless.encodings.cupcake.methods.joint import solve_joint
from gapless.encodings.cupcake.parameters import Parameters
from gapless.encodings.cupcake.solve import best_fusion
from gapless.options import Deadline, SolveOptions
from gapless.profiles.gradients.cost_functions import AffineCost
from gapless.profiles.gradients.fusion import DECODES, Costs, Fusion, timeline
from gapless.profiles.gradients.modes import PLAIN, Mode, plain_mode
from gapless.profiles.gradients.profile import FusionProfile

CASES = 500
MS = 1e-3


def _random(rng: np.random.Generator, kind: str) -> FusionProfile:
    """Three modes of up to 7 gradients, or two of up to 9, on few cores."""
    if rng.random() < 0.5:
        return with_cores(rng, mixed_instance(rng, kind, 7))
    return with_cores(rng, without(mixed_instance(rng, kind, 9), "low-rank"))


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_on_few_cores(kind: str, decode: str) -> None:
    rng, bound_by_cores = np.random.default_rng(KINDS.index(kind)), 0
    for _ in range(share(CASES)):
        profile = _random(rng, kind)
        best = best_fusion(profile, decode=decode)
        assert best.iteration_s == pytest.approx(brute_force_s(profile, decode=decode), rel=1e-9), profile
        assert best.bound_s == best.iteration_s
        times = timeline(Costs.of(profile, decode=decode), best.fusion)
        bound_by_cores += times.worked_s > times.decoded_s[-1]
    assert bound_by_cores


@pytest.mark.thorough("before")
@pytest.mark.parametrize("decode", DECODES)
def test_the_milp_agrees_on_few_cores(decode: str) -> None:
    rng = np.random.default_rng(11)
    for kind in KINDS:
        for _ in range(share(30, len(KINDS) * 10)):
            profile = with_cores(rng, mixed_instance(rng, kind, most=12))
            first, second = (best_fusion(profile, method=method, decode=decode) for method in ("auto", "milp"))
            assert second.iteration_s == pytest.approx(first.iteration_s, rel=1e-6)
            assert second.bound_s == pytest.approx(first.iteration_s, rel=1e-6)


def test_a_search_with_little_work_bounds_every_plan_on_few_cores() -> None:
    rng, capped, little = np.random.default_rng(5), 0, Parameters(grid_bins=(2,), most_labels=1, most_extensions=20)
    for _ in range(share(200)):
        profile = _random(rng, "points")
        costs, optimum_s = Costs.of(profile), brute_force_s(profile) - profile.forward_s
        start = layer_wise(costs)
        known_s = start.iteration_s - profile.forward_s
        found = solve_joint(costs, start.fusion, known_s, Deadline(SolveOptions()), little)
        assert found.bound_end_s <= optimum_s * (1 + 1e-9)
        capped += found.bound_end_s < timeline(costs, found.fusion).end_s * (1 - 1e-9)
    assert capped


def _all_fusions(profile: FusionProfile) -> list[Fusion]:
    count = profile.tensor_count
    cuts = (inner for size in range(count) for inner in combinations(range(1, count), size))
    ends = [(*inner, count) for inner in cuts]
    return [Fusion(each, modes) for each in ends for modes in product(profile.mode_names, repeat=len(each))]


@pytest.mark.parametrize("policy", POLICIES)
def test_no_plan_is_faster_however_the_cores_are_shared(policy: str) -> None:
    rng = np.random.default_rng(3)
    for number in range(share(200)):
        profile = with_cores(rng, without(mixed_instance(rng, KINDS[number % len(KINDS)], 4), "low-rank"))
        costs, best = Costs.of(profile), best_fusion(profile)
        flowed = [flowed_s(costs, fusion, policy) for fusion in _all_fusions(profile)]
        assert profile.forward_s + min(flowed) >= best.iteration_s * (1 - 1e-9), profile


def test_the_flow_is_the_time_line_where_every_lane_has_a_core() -> None:
    rng = np.random.default_rng(4)
    for kind in KINDS:
        profile = replace(mixed_instance(rng, kind, 8), cores=3.0)
        costs, fusion = Costs.of(profile), best_fusion(profile).fusion
        for policy in POLICIES:
            assert flowed_s(costs, fusion, policy) == pytest.approx(timeline(costs, fusion).end_s, rel=1e-9)


def _two_modes(cores: float | None) -> FusionProfile:
    """Four gradients of 1 MB, 1 ms each: plain sends 3 ms/MB, the other takes 1 ms of work/MB before and after."""
    plain = plain_mode(AffineCost(0.0, 3 * MS / 1e6))
    coding = AffineCost(0.0, MS / 1e6)
    other = Mode("small", AffineCost(0.0, MS / 1e6), AffineCost(0.0, 0.0), coding, communication_work=coding)
    return FusionProfile("four", MS, tuple("abcd"), np.full(4, 10**6), np.full(4, MS), (plain, other), cores=cores)


def test_with_few_cores_a_plan_compresses_less() -> None:
    """All four compressed are 4 ms of backward pass, 4 of collectives, 4 of decoding: 12 on one core, 6 on many."""
    many, one = best_fusion(_two_modes(None)), best_fusion(_two_modes(1.0))
    assert many.iteration_s == pytest.approx(7 * MS)
    assert set(many.fusion.modes) == {"small"}
    everywhere = Costs.of(_two_modes(1.0)).step_s(many.fusion)
    assert everywhere == pytest.approx(13 * MS)
    assert one.iteration_s < everywhere
    assert PLAIN in one.fusion.modes


def test_the_replay_ends_when_the_cores_are_through() -> None:
    profile = _two_modes(1.0)
    costs, fusion = Costs.of(profile), Fusion.uniform(range(1, 5), "small")
    report = check(to_schedule(profile, costs, fusion))
    assert report.valid
    assert report.makespan_s == pytest.approx(13 * MS)
    assert report.busy_s.engines[CORES] == pytest.approx(12 * MS)
