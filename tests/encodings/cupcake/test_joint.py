"""Groups and modes together, against brute force over both, and on measured gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from espresso import DATA, fusion_profile
from examples import share
from fusion_instances import KINDS, known_instance, random_instance

from gapless.encodings.cupcake import Problem, timeline
from gapless.encodings.cupcake.baselines import all_baselines, one_group
from gapless.encodings.cupcake.fusion import Costs
from gapless.encodings.cupcake.joint import solve_joint, suffixes_of
from gapless.encodings.cupcake.parameters import Parameters
from gapless.encodings.cupcake.pareto import Floats, solve_pareto
from gapless.encodings.cupcake.solve import best_fusion
from gapless.encodings.cupcake.summary import render_groups
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.gradients.cost_functions import FREE, AffineCost
from gapless.profiles.gradients.profile import FusionProfile
from gapless.recipe import solve
from gapless.solution import Status, StopReason

CASES = 500
MODES = (*KINDS, "free")


def _instance(rng: np.random.Generator, kind: str, most: int = 10, least: int = 1) -> FusionProfile:
    """A profile where sending plain takes about as long as compressing and sending."""
    profile = random_instance(rng, kind, most, least)
    total, scale_s = float(profile.total_bytes), 2e-2 * 10 ** rng.uniform(-1, 0.5)
    plain = AffineCost(scale_s * rng.uniform(0, 0.5) / profile.tensor_count, scale_s * rng.uniform(0, 1) / total)
    return replace(profile, uncompressed_communication=plain)


def _brute_force_end_s(profile: FusionProfile) -> float:
    """The least end over all groups and modes, of which there are 2 * 3^(N - 1)."""
    assert profile.uncompressed_communication is not None
    prefix, ready_s = np.append(0, np.cumsum(profile.size_bytes)), np.append(0.0, np.cumsum(profile.backward_s))
    start, compress_s, sent_s = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros(1)
    for j in range(1, profile.tensor_count + 1):
        sizes = prefix[j] - prefix[start]
        total_s = np.concatenate([compress_s + profile.compression(sizes), compress_s])
        send_s = np.concatenate([profile.communication(sizes), profile.uncompressed_communication(sizes)])
        end_s = np.maximum(np.tile(sent_s, 2), ready_s[j] + total_s) + send_s
        start = np.concatenate([start, np.full(2 * len(start), j)])
        compress_s, sent_s = np.concatenate([compress_s, total_s]), np.concatenate([sent_s, end_s])
    return float(end_s.min())


@pytest.mark.parametrize("kind", MODES)
def test_the_optimum_over_groups_and_modes(kind: str) -> None:
    rng = np.random.default_rng(MODES.index(kind))
    mixed = 0
    for _ in range(share(CASES)):
        profile = _instance(rng, kind)
        best = best_fusion(profile, method="joint")
        optimum_s = profile.forward_s + _brute_force_end_s(profile)
        assert best.iteration_s == pytest.approx(optimum_s, rel=1e-9), profile
        assert best.bound_s == best.iteration_s
        mixed += 0 < len(best.fusion.sent_plain) < len(best.groups)
    assert mixed or kind == "free"


@pytest.mark.parametrize("bins", [1, 7, 300])
def test_a_grid_however_coarse_bounds_every_fusion(bins: int) -> None:
    rng = np.random.default_rng(bins)
    for kind in MODES:
        for _ in range(share(100)):
            profile = _instance(rng, kind)
            costs, optimum_s = Costs.of(profile, may_be_plain=True), _brute_force_end_s(profile)
            known_s = timeline(profile, one_group(profile).fusion).end_s
            found = suffixes_of(costs, known_s, bins, Deadline(SolveOptions()))
            if found is None:  # nothing can be better than the group of all
                assert known_s == pytest.approx(optimum_s)
                continue
            bound_s = float(found.bound_s(costs, 0, np.zeros(1), np.zeros(1))[0])
            assert min(bound_s, known_s) <= optimum_s * (1 + 1e-9)
            assert timeline(profile, found.fusion(costs)).end_s >= optimum_s * (1 - 1e-9)


class _After(Deadline):
    """A deadline that is over after so many looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(SolveOptions())
        self.looks = looks

    @property
    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0


@pytest.mark.parametrize("looks", [0, 5, 10, 15, 22, 25, 1000])
def test_a_search_that_ends_at_any_moment_has_a_fusion_and_a_true_bound(looks: int) -> None:
    rng = np.random.default_rng(looks)
    parameters = Parameters(grid_bins=(4, 20), most_labels=1)
    open_gaps = 0
    for kind in MODES:
        for _ in range(20):
            profile = _instance(rng, kind, least=8)
            optimum_s, start = _brute_force_end_s(profile), one_group(profile).fusion
            start_s = timeline(profile, start).end_s
            found = solve_joint(profile, start, start_s, _After(looks), parameters)
            found_s = timeline(profile, found.fusion).end_s
            assert found.bound_end_s <= optimum_s * (1 + 1e-9)
            assert optimum_s * (1 - 1e-9) <= found_s <= start_s * (1 + 1e-9)
            open_gaps += found.bound_end_s < found_s * (1 - 1e-9)
    assert open_gaps


class _NoBounds:
    """Bounds that say nothing of what is still to come."""

    def bound_s(self, costs: Costs, k: int, compress_s: Floats, sent_s: Floats) -> Floats:
        """When what is there is sent."""
        return sent_s


@pytest.mark.parametrize("kind", KINDS)
def test_long_instances_agree_with_labels_that_no_grid_prunes(kind: str) -> None:
    rng = np.random.default_rng(20 + KINDS.index(kind))
    for _ in range(share(60)):
        profile = _instance(rng, kind, most=30, least=20)
        start = one_group(profile).fusion
        costs, start_s = Costs.of(profile, may_be_plain=True), timeline(profile, start).end_s
        plain = solve_pareto(costs, _NoBounds(), start, start_s, Deadline(SolveOptions()), most=10**6)
        assert plain.bound_end_s == pytest.approx(timeline(profile, plain.fusion).end_s)
        best = best_fusion(profile, method="joint")
        assert best.bound_s == best.iteration_s == pytest.approx(profile.forward_s + plain.bound_end_s, rel=1e-9)


def test_a_search_that_runs_out_of_extensions_says_so() -> None:
    rng = np.random.default_rng(4)
    parameters = Parameters(grid_bins=(4,), most_extensions=8)
    stopped = 0
    for _ in range(30):
        profile = _instance(rng, "points", least=8)
        best = best_fusion(profile, method="joint", parameters=parameters)
        assert best.bound_s is not None
        assert best.bound_s - profile.forward_s <= _brute_force_end_s(profile) * (1 + 1e-9)
        if best.bound_s < best.iteration_s:
            assert best.stop_reason is StopReason.WORK_LIMIT
            stopped += 1
    assert stopped


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_never_beaten_by_a_baseline_and_replays_at_its_objective(kind: str) -> None:
    rng = np.random.default_rng(10)
    for _ in range(share(100)):
        profile = _instance(rng, kind, most=40)
        result = solve(Problem(profile, "joint"))
        assert result.valid
        assert result.report is not None
        assert result.solution.objective is not None
        assert result.status is Status.OPTIMAL
        assert result.report.makespan_s == pytest.approx(result.solution.objective, rel=1e-9)
        least_s = min(baseline.iteration_s for baseline in all_baselines(profile))
        assert result.solution.objective <= least_s * (1 + 1e-9)


def test_where_plain_groups_cost_no_more_nothing_is_gained_by_compressing() -> None:
    profile = replace(known_instance(), uncompressed_communication=known_instance().communication)
    best = best_fusion(profile, method="joint")
    assert best.iteration_s == pytest.approx(_brute_force_end_s(profile))
    assert best.iteration_s < best_fusion(profile).iteration_s


def test_where_everything_is_free_the_step_is_the_backward_pass() -> None:
    profile = replace(known_instance(), compression=FREE, communication=FREE, uncompressed_communication=FREE)
    best = best_fusion(profile, method="joint")
    assert best.iteration_s == best.bound_s == pytest.approx(profile.compute_s)


def test_where_plain_groups_are_dear_it_is_the_question_of_the_paper() -> None:
    profile = replace(known_instance(), uncompressed_communication=AffineCost(1.0, 0.0))
    best = best_fusion(profile, method="joint")
    assert best.iteration_s == pytest.approx(4.2615e-3)
    assert not best.fusion.sent_plain


@pytest.mark.parametrize("alpha_s", [1.0, 1e60])
def test_where_compression_is_dear_every_group_is_plain(alpha_s: float) -> None:
    profile = replace(
        known_instance(), compression=AffineCost(alpha_s, 0.0), uncompressed_communication=AffineCost(1e-5, 1e-10)
    )
    best = best_fusion(profile, method="joint")
    assert best.iteration_s == best.bound_s == pytest.approx(_brute_force_end_s(profile))
    assert len(best.fusion.sent_plain) == len(best.groups)


def test_a_profile_without_the_cost_of_plain_groups_is_refused() -> None:
    with pytest.raises(InputError, match="joint needs uncompressed_communication"):
        best_fusion(known_instance(), method="joint")


def test_plain_groups_are_marked() -> None:
    profile = _instance(np.random.default_rng(3), "affine", most=12, least=12)
    result = solve(Problem(profile, "joint"))
    assert result.schedule is not None
    plain = result.details["sent_plain"]
    lines = render_groups(result.schedule, plain).splitlines()[1:]
    assert [number for number, line in enumerate(lines) if line.endswith("(plain)")] == plain


@pytest.mark.skipif(not DATA.is_file(), reason=f"the measured gradients are not at {DATA}")
@pytest.mark.parametrize(
    ("network", "compressor", "forward_ms", "most_ms"),
    [
        ("resnet50", "dgc", 32, 98.7), ("resnet50", "onebit", 32, 100.9), ("resnet101", "dgc", 60, 184.6),
        ("resnet101", "onebit", 60, 187.7), ("bert", "dgc", 33, 140.7), ("bert", "onebit", 33, 170.3),
    ],
)  # fmt: skip
def test_measured_gradients_are_solved_to_the_optimum(
    network: str, compressor: str, forward_ms: float, most_ms: float
) -> None:
    """The steps of a capped search over groups and modes, whose forward passes are in whole milliseconds."""
    profile = replace(fusion_profile(network, compressor, affine=False), forward_s=1e-3 * forward_ms)
    best = best_fusion(profile, method="joint")
    assert best.bound_s == best.iteration_s
    assert round(1e3 * best.iteration_s, 1) <= most_ms
    assert best.iteration_s < min(baseline.iteration_s for baseline in all_baselines(profile))
