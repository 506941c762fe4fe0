"""Groups and modes together, against brute force over both, and on measured gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from counted_looks import After
from espresso import DATA, fusion_profile
from examples import is_thorough, share
from fusion_instances import KINDS, brute_force_s, known_instance, mixed_instance, without

from gapless.array_types import Floats
from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.methods.baselines import all_baselines, one_group
from gapless.encodings.cupcake.methods.joint import solve_joint, suffixes_of
from gapless.encodings.cupcake.methods.pareto import START, Sweep, Work, all_arcs, sweep
from gapless.encodings.cupcake.parameters import Parameters
from gapless.encodings.cupcake.solve import best_fusion
from gapless.encodings.cupcake.views import render_groups
from gapless.options import Deadline, SolveOptions
from gapless.profiles.compressors.grammar import compressor_names, named_compressor
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.cost_functions import FREE, AffineCost, CostFunction
from gapless.profiles.gradients.fusion import DECODES, Costs, timeline
from gapless.profiles.gradients.modes import Mode, plain_mode
from gapless.profiles.gradients.named import fusion_profile_names, load_fusion_profile, with_compressors
from gapless.profiles.gradients.profile import FusionProfile
from gapless.recipe import solve
from gapless.solution import Status, StopReason

CASES = 500
MODES = (*KINDS, "free")


def _optimum_s(profile: FusionProfile) -> float:
    """Without forward."""
    return brute_force_s(profile) - profile.forward_s


def _at_most_8(rng: np.random.Generator, kind: str) -> FusionProfile:
    """Three modes of up to 8 gradients, or two of up to 10."""
    return mixed_instance(rng, kind, 8) if rng.random() < 0.5 else without(mixed_instance(rng, kind, 10), "low-rank")


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("kind", MODES)
def test_the_optimum_over_groups_and_modes(kind: str, decode: str) -> None:
    rng = np.random.default_rng(MODES.index(kind))
    mixed = 0
    for _ in range(share(CASES)):
        profile = _at_most_8(rng, kind)
        best = best_fusion(profile, decode=decode)
        assert best.iteration_s == pytest.approx(brute_force_s(profile, decode=decode), rel=1e-9), profile
        assert best.bound_s == best.iteration_s
        mixed += len(set(best.fusion.modes)) > 1
    assert mixed or kind == "free"


@pytest.mark.parametrize("bins", [1, 7, 300])
def test_a_grid_however_coarse_bounds_every_fusion(bins: int) -> None:
    rng = np.random.default_rng(bins)
    for kind in MODES:
        for _ in range(share(100)):
            profile = _at_most_8(rng, kind)
            costs, optimum_s = Costs.of(profile), _optimum_s(profile)
            known_s = timeline(costs, one_group(costs).fusion).end_s
            found = suffixes_of(costs, known_s, bins, Deadline(SolveOptions()))
            if found is None:  # nothing can be better than the group of all
                assert known_s == pytest.approx(optimum_s)
                continue
            bound_s = float(found.bound_s(costs, 0, START)[0])
            assert min(bound_s, known_s) <= optimum_s * (1 + 1e-9)
            assert timeline(costs, found.fusion(costs)).end_s >= optimum_s * (1 - 1e-9)


@pytest.mark.thorough(
    but=(
        "10",
        "22",
    )
)
@pytest.mark.parametrize("looks", [0, 5, 10, 15, 22, 25, 1000])
def test_a_search_that_ends_at_any_moment_has_a_fusion_and_a_true_bound(looks: int) -> None:
    rng = np.random.default_rng(looks)
    parameters = Parameters(grid_bins=(4, 20), most_labels=1)
    open_gaps = 0
    for kind in MODES:
        for _ in range(20):
            profile = mixed_instance(rng, kind, 8, 8)
            costs, optimum_s = Costs.of(profile), _optimum_s(profile)
            start = one_group(costs).fusion
            start_s = timeline(costs, start).end_s
            found = solve_joint(costs, start, start_s, After(looks), parameters)
            found_s = timeline(costs, found.fusion).end_s
            assert found.bound_end_s <= optimum_s * (1 + 1e-9)
            assert optimum_s * (1 - 1e-9) <= found_s <= start_s * (1 + 1e-9)
            open_gaps += found.bound_end_s < found_s * (1 - 1e-9)
    assert open_gaps


class _NoBounds:
    """Bounds that say nothing of what is still to come."""

    def bound_s(self, costs: Costs, k: int, ends_s: Floats) -> Floats:
        """When what is there is sent."""
        return ends_s[1]


def _without_bounds(costs: Costs, forwards: bool, most: int, is_relaxed: bool) -> Sweep:
    """Labels up to the end of the group of all."""
    work, end_s = Work(Deadline(SolveOptions()), 1e9), timeline(costs, one_group(costs).fusion).end_s
    found = sweep(costs, all_arcs(costs), _NoBounds(), end_s * (1 + 1e-9) + 1e-15, most, work, forwards, is_relaxed)
    assert found is not None
    return found


@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("kind", KINDS)
def test_long_instances_agree_with_labels_that_no_grid_prunes(
    kind: str, decode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the front and from the end, which are searches apart."""
    monkeypatch.setattr("gapless.encodings.cupcake.methods.pareto._COMPARED", 10**7)
    rng = np.random.default_rng(20 + KINDS.index(kind))
    for _ in range(share(40, cases=len(KINDS) * len(DECODES))):
        profile = mixed_instance(rng, kind, most=24, least=16)
        costs = Costs.of(profile, decode=decode)
        best = best_fusion(profile, decode=decode)
        for forwards in (True, False):
            plain = _without_bounds(costs, forwards, 10**6, is_relaxed=False)
            assert plain.is_exact
            assert plain.fusion is not None
            assert plain.bound_end_s == pytest.approx(timeline(costs, plain.fusion).end_s)
            assert best.bound_s == best.iteration_s == pytest.approx(profile.forward_s + plain.bound_end_s, rel=1e-9)


@pytest.mark.parametrize("most", [1, 2])
@pytest.mark.parametrize("forwards", [True, False])
def test_merged_labels_bound_every_fusion_and_keep_every_group_of_the_best(forwards: bool, most: int) -> None:
    rng = np.random.default_rng(most)
    loose = 0
    for kind in MODES:
        for _ in range(share(100, cases=len(MODES))):
            profile = replace(_at_most_8(rng, kind), cores=float(rng.integers(1, 4)) if rng.random() < 0.3 else None)
            costs = Costs.of(profile)
            best = best_fusion(profile).fusion
            end_s = timeline(costs, best).end_s
            merged = _without_bounds(costs, forwards, most, is_relaxed=True)
            assert merged.bound_end_s <= end_s * (1 + 1e-9)
            for (start, last), mode in zip(best.groups, best.modes, strict=True):
                assert merged.arcs[costs.names.index(mode), start, last + 1]
            other = _without_bounds(costs, not forwards, 10**6, is_relaxed=False)
            for k in (end for end in best.ends if end < costs.count):
                there = other.labels[k]
                assert there is not None
                assert merged.bound_s(costs, k, there.ends_s).min() <= end_s * (1 + 1e-9)
            loose += merged.bound_end_s < end_s * (1 - 1e-9)
    assert loose


def test_a_gap_that_is_enough_ends_the_search_before_its_labels() -> None:
    rng = np.random.default_rng(6)
    sooner = 0
    for _ in range(20):
        profile = mixed_instance(rng, "points", 24, 20)
        best = best_fusion(profile, SolveOptions(gap=0.05))
        assert best.bound_s is not None
        assert best.iteration_s - best.bound_s <= 0.05 * best.iteration_s * (1 + 1e-9)
        sooner += best.details["labels"] == 0 and best.bound_s < best.iteration_s
    assert sooner


def test_a_search_that_runs_out_of_extensions_says_so() -> None:
    rng = np.random.default_rng(4)
    parameters = Parameters(grid_bins=(4,), most_extensions=8)
    stopped = 0
    for _ in range(30):
        profile = mixed_instance(rng, "points", 8, 8)
        best = best_fusion(profile, parameters=parameters)
        assert best.bound_s is not None
        assert best.bound_s <= brute_force_s(profile) * (1 + 1e-9)
        if best.bound_s < best.iteration_s:
            assert best.stop_reason is StopReason.WORK_LIMIT
            stopped += 1
    assert stopped


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_never_beaten_by_a_baseline_and_replays_at_its_objective(kind: str) -> None:
    rng = np.random.default_rng(10)
    for _ in range(share(100, cases=len(KINDS))):
        profile = mixed_instance(rng, kind, most=30)
        result = solve(Problem(profile))
        assert result.valid
        assert result.report is not None
        assert result.solution.objective is not None
        assert result.status is Status.OPTIMAL
        assert result.report.makespan_s == pytest.approx(result.solution.objective, rel=1e-9)
        least_s = min(baseline.iteration_s for baseline in all_baselines(Costs.of(profile)))
        assert result.solution.objective <= least_s * (1 + 1e-9)


def _known(plain: CostFunction, encode: CostFunction | None = None) -> FusionProfile:
    """The known instance, where a group may be plain as well."""
    profile = known_instance()
    mode = profile.modes[0] if encode is None else replace(profile.modes[0], encode=encode)
    return replace(profile, modes=(plain_mode(plain), mode))


def test_where_plain_groups_cost_no_more_nothing_is_gained_by_compressing() -> None:
    profile = _known(known_instance().modes[0].communication)
    best = best_fusion(profile)
    assert best.iteration_s == pytest.approx(brute_force_s(profile))
    assert best.iteration_s < best_fusion(known_instance()).iteration_s


def test_where_everything_is_free_the_step_is_the_backward_pass() -> None:
    profile = replace(known_instance(), modes=(plain_mode(FREE), Mode("free", FREE)))
    best = best_fusion(profile)
    assert best.iteration_s == best.bound_s == pytest.approx(profile.compute_s)


def test_a_step_of_no_time_at_all_is_optimal() -> None:
    profile = _known(FREE)
    nothing = replace(profile, forward_s=0.0, backward_s=np.zeros_like(profile.backward_s))
    result = solve(Problem(nothing))
    assert (result.status, result.solution.objective) == (Status.OPTIMAL, 0.0)


def test_where_plain_groups_are_dear_it_is_the_question_of_the_paper() -> None:
    best = best_fusion(_known(AffineCost(1.0, 0.0)))
    assert best.iteration_s == pytest.approx(4.2615e-3)
    assert set(best.fusion.modes) == {"compressed"}


@pytest.mark.parametrize("alpha_s", [1.0, 1e60])
def test_where_compression_is_dear_every_group_is_plain(alpha_s: float) -> None:
    profile = _known(AffineCost(1e-5, 1e-10), AffineCost(alpha_s, 0.0))
    best = best_fusion(profile)
    assert best.iteration_s == best.bound_s == pytest.approx(brute_force_s(profile))
    assert set(best.fusion.modes) == {"plain"}


def test_modes_are_shown_by_group() -> None:
    result = solve(Problem(mixed_instance(np.random.default_rng(5), "affine", most=12, least=12)))
    assert result.schedule is not None
    modes = result.details["modes"]
    lines = render_groups(result.schedule, modes).splitlines()[1:]
    assert [line.split()[4] for line in lines] == modes
    assert len(set(modes)) > 1


@pytest.mark.thorough(but=("vgg16",))
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("name", fusion_profile_names())
def test_no_plan_called_optimal_is_beaten_by_a_baseline_on_shipped_profiles(name: str, decode: str) -> None:
    """All compressors, three networks; the paper's question answered beside is a baseline, too."""
    slow, fast = FlatNetwork(8, 2e9 / 8, 1e-5), FlatNetwork(64, 1e10 / 8, 1e-5)
    compressors = [name for name in compressor_names() if name != "none"]
    for network in (slow, fast, FlatNetwork(16, 25e9 / 8, 5e-5)):
        for compressor in compressors[:: 1 if is_thorough() else 5]:
            offered = [named_compressor(each) for each in ("none", compressor)]
            profile = with_compressors(load_fusion_profile(name), offered, network)
            result = solve(Problem(profile, decode=decode))
            least_s = min(result.details["baselines_s"].values())
            assert "fusion-only" in result.details["baselines_s"]
            assert result.solution.objective is not None
            assert result.solution.objective <= least_s * (1 + 1e-9)
            assert result.solution.bound is not None
            assert result.solution.bound <= least_s * (1 + 1e-9)


@pytest.mark.thorough(but=("resnet50",))
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
    best = best_fusion(profile, decode="before")
    assert best.bound_s == best.iteration_s
    assert round(1e3 * best.iteration_s, 1) <= most_ms
    costs = Costs.of(profile, decode="before")
    assert best.iteration_s < min(baseline.iteration_s for baseline in all_baselines(costs))
