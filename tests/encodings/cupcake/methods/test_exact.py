"""Exact methods against brute force over all fusions, on random instances of four kinds of costs."""

from __future__ import annotations

import numpy as np
import pytest
from counted_looks import After
from examples import share
from fusion_instances import KINDS, brute_force_s, known_instance, mixed_instance, random_instance, scaled_instance

from gapless.checker import check
from gapless.encodings.cupcake import Problem
from gapless.encodings.cupcake.methods.affine import solve_affine
from gapless.encodings.cupcake.methods.baselines import layer_wise
from gapless.encodings.cupcake.methods.joint import solve_joint
from gapless.encodings.cupcake.parameters import DEFAULTS, Parameters
from gapless.encodings.cupcake.solve import best_fusion, solve
from gapless.errors import InputError
from gapless.options import Deadline, SolveOptions
from gapless.profiles.gradients.fusion import DECODES, Costs, Fusion, timeline
from gapless.profiles.gradients.profile import FusionProfile
from gapless.system import Plan

CASES = 1000


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_method_finds_the_optimum(kind: str) -> None:
    rng = np.random.default_rng(sorted(KINDS).index(kind))
    for _ in range(share(CASES)):
        profile = random_instance(rng, kind)
        best = best_fusion(profile)
        assert best.iteration_s == pytest.approx(brute_force_s(profile), rel=1e-9), profile
        assert best.bound_s == best.iteration_s


def test_label_setting_agrees_with_the_affine_programme_on_long_instances() -> None:
    rng = np.random.default_rng(7)
    for _ in range(share(60)):
        profile = random_instance(rng, "affine", most=120)
        affine, pareto = best_fusion(profile, method="affine"), best_fusion(profile, method="pareto")
        assert affine.iteration_s == pytest.approx(pareto.iteration_s, rel=1e-9)


@pytest.mark.thorough("before")
@pytest.mark.parametrize("decode", DECODES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_milp_agrees(kind: str, decode: str) -> None:
    rng = np.random.default_rng(11)
    for case in range(6):
        profile = random_instance(rng, kind, most=18) if case < 3 else mixed_instance(rng, kind, most=12)
        first, second = (best_fusion(profile, method=method, decode=decode) for method in ("auto", "milp"))
        assert second.iteration_s == pytest.approx(first.iteration_s, rel=1e-6)
        assert second.bound_s == pytest.approx(first.iteration_s, rel=1e-6)


def test_the_known_instance_has_its_optimum() -> None:
    best = best_fusion(known_instance())
    assert best.iteration_s == pytest.approx(4.2615e-3)
    assert best.groups == ((0, 1), (2, 2), (3, 4), (5, 5), (6, 6))


def test_algorithm_1_misses_the_optimum_of_the_known_instance() -> None:
    best = best_fusion(known_instance(), method="algorithm1")
    assert best.iteration_s == pytest.approx(4.4215e-3)
    assert best.bound_s is None
    assert best.details["search_finished"]


def test_algorithm_1_is_exact_for_affine_costs_unless_one_group_is_best() -> None:
    rng = np.random.default_rng(3)
    for _ in range(share(400)):
        profile = random_instance(rng, "affine")
        best, searched = best_fusion(profile), best_fusion(profile, method="algorithm1")
        if "instead" in searched.details or len(best.groups) == 1:  # as printed it never scores one group
            continue
        assert searched.iteration_s == pytest.approx(best.iteration_s, rel=1e-9)


def test_for_a_single_gradient_a_baseline_stands_in_for_algorithm_1() -> None:
    profile = random_instance(np.random.default_rng(0), "affine", most=1)
    found = best_fusion(profile, method="algorithm1")
    assert found.fusion == Fusion((1,), ("compressed",))
    assert "instead" in found.details


def test_a_capped_search_reports_a_bound_below_the_optimum() -> None:
    rng = np.random.default_rng(5)
    capped, coarse = 0, Parameters(grid_bins=(2,), most_labels=1, most_extensions=20)
    for _ in range(100):
        profile = random_instance(rng, "points")
        costs, optimum_s = Costs.of(profile), brute_force_s(profile) - profile.forward_s
        start, end_s = _layer_wise(costs)
        found = solve_joint(costs, start, end_s, Deadline(SolveOptions()), coarse)
        found_s = timeline(costs, found.fusion).end_s
        assert found.bound_end_s <= optimum_s * (1 + 1e-9)
        assert found_s >= optimum_s * (1 - 1e-9)
        capped += found.bound_end_s < found_s * (1 - 1e-9)
    assert capped > 3


def _layer_wise(costs: Costs) -> tuple[Fusion, float]:
    fusion = layer_wise(costs).fusion
    return fusion, timeline(costs, fusion).end_s


@pytest.mark.parametrize("looks", range(9))
def test_a_search_that_ends_at_any_moment_has_a_fusion_and_a_true_bound(looks: int) -> None:
    rng = np.random.default_rng(looks)
    for kind in KINDS:
        profile = random_instance(rng, kind, least=6)
        costs, optimum_s = Costs.of(profile), brute_force_s(profile) - profile.forward_s
        start, end_s = _layer_wise(costs)
        found = [solve_joint(costs, start, end_s, After(looks), DEFAULTS)]
        if kind == "affine":
            found.append(solve_affine(costs, start, end_s, After(looks)))
        for each in found:
            assert each.bound_end_s <= optimum_s * (1 + 1e-9)
            assert optimum_s <= timeline(costs, each.fusion).end_s * (1 + 1e-9)


def test_a_model_that_cannot_be_solved_in_time_is_not_encoded() -> None:
    profile = random_instance(np.random.default_rng(1), "points", most=300, least=300)
    best = best_fusion(profile, SolveOptions(time_limit_s=0.01), method="milp")
    assert best.details == {"columns": 0}
    assert best.bound_s is None


@pytest.mark.parametrize(("duration", "size"), [(1e-7, 1.0), (1e-4, 1e6), (1e6, 1.0), (1.0, 1e5)])
def test_the_milp_proves_nothing_false_whatever_the_units(duration: float, size: float) -> None:
    rng = np.random.default_rng(17)
    for kind in KINDS:
        profile = scaled_instance(random_instance(rng, kind, most=12, least=4), duration, size)
        best = best_fusion(profile, SolveOptions(threads=1), method="milp")
        assert best.iteration_s == pytest.approx(brute_force_s(profile), rel=1e-6)
        assert best.bound_s is not None
        assert best.bound_s <= brute_force_s(profile) * (1 + 1e-9)


def test_without_fixed_costs_layer_wise_is_best() -> None:
    rng = np.random.default_rng(9)
    for _ in range(50):
        profile = random_instance(rng, "proportional")
        best = best_fusion(profile)
        assert best.iteration_s == pytest.approx(brute_force_s(profile), rel=1e-9)


@pytest.mark.parametrize("method", ["affine", "pareto", "milp"])
def test_what_costs_nothing_adds_nothing_to_the_step(method: str) -> None:
    profile = random_instance(np.random.default_rng(2), "free")
    best = best_fusion(profile, method=method)
    assert best.iteration_s == pytest.approx(profile.compute_s)


@pytest.mark.parametrize(
    ("method", "message"),
    [("afine", "did you mean 'affine'"), ("affine", "needs affine"), ("selective", "needs the mode plain")],
)
def test_a_method_that_does_not_suit_is_refused(method: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        best_fusion(known_instance(), method=method)


def _count_nodes(profile: FusionProfile) -> int:
    best = best_fusion(profile, method="algorithm1")
    return int(best.details["nodes"])


def test_algorithm_1_visits_fewer_nodes_than_brute_force() -> None:
    profile = random_instance(np.random.default_rng(21), "affine", most=14, least=14)
    assert 14 <= _count_nodes(profile) < 2**14


@pytest.mark.parametrize("method", ["milp", "algorithm1"])
def test_what_a_method_finds_before_its_end_is_offered(method: str) -> None:
    offers: list[tuple[float, Plan]] = []
    options = SolveOptions(threads=1, on_plan=lambda cost_s, make: offers.append((cost_s, make())))
    best = solve(Problem(random_instance(np.random.default_rng(0), "thresholded", 14, 12), method), options)
    assert len(offers) > 2  # more than the baseline that it starts from, and one
    for cost_s, plan in offers:
        assert plan.schedule is not None
        report = check(plan.schedule)
        assert report.valid
        assert report.makespan_s <= cost_s * (1 + 1e-6)
    assert min(plan.solution.objective for _, plan in offers) == pytest.approx(best.solution.objective)
