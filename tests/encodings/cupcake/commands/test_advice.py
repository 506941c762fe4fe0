"""Advice: best plans against plain buckets, the crossover by bisection, and the answer that follows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st

from gapless.encodings.cupcake.commands.advice import Advice, advise, compression
from gapless.encodings.cupcake.commands.compared import Crossover, Option
from gapless.encodings.cupcake.methods.baselines import buckets
from gapless.encodings.cupcake.solve import best_fusion
from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.profiles.compressors.casts import NONE
from gapless.profiles.compressors.compressor import ERRORS
from gapless.profiles.compressors.grammar import compressor_names, named_compressor
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.cost_functions import FREE
from gapless.profiles.gradients.fusion import Costs
from gapless.profiles.gradients.modes import plain_mode
from gapless.profiles.gradients.named import load_fusion_profile, with_compressors
from gapless.profiles.gradients.profile import FusionProfile

GBPS = 1e9 / 8
NETWORK = FlatNetwork(ranks=64, bytes_per_s=10 * GBPS, alpha_s=1e-5)


def of(name: str, advice: Advice) -> Option:
    return next(option for option in advice.options if option.compressor.name == name)


PLAIN_ONLY = (plain_mode(FREE),)


def small_profile(sizes_mb: list[int], backward_ms: list[float]) -> FusionProfile:
    return FusionProfile(
        "small", 0.001, tuple(str(k) for k in range(len(sizes_mb))), 10**6 * np.array(sizes_mb, dtype=np.int64),
        1e-3 * np.array(backward_ms[: len(sizes_mb)]), PLAIN_ONLY,
    )  # fmt: skip


profiles = st.lists(st.integers(1, 40), min_size=1, max_size=6).flatmap(
    lambda sizes: st.builds(
        small_profile, st.just(sizes), st.lists(st.floats(0.1, 50), min_size=len(sizes), max_size=len(sizes))
    )
)
networks = st.builds(
    FlatNetwork, ranks=st.integers(2, 128), bytes_per_s=st.floats(1e7, 1e11), alpha_s=st.floats(0, 1e-4)
)
compressors = st.sampled_from([named_compressor(name) for name in compressor_names()])


@pytest.fixture(scope="module")
def advice() -> Advice:
    names = ("none", "fp16", "dgc", "powersgd", "terngrad")
    return advise(load_fusion_profile("resnet50"), NETWORK, [named_compressor(name) for name in names])


def test_options_come_by_class_of_error_and_the_fastest_of_it_first(advice: Advice) -> None:
    keys = [(list(ERRORS).index(option.compressor.error), option.iteration_s) for option in advice.options]
    assert keys == sorted(keys)
    assert {option.compressor.error for option in advice.options} == {"exact", "rounded", "unbiased", "feedback"}


def test_every_option_is_the_exact_solver_s_over_groups_and_modes(advice: Advice) -> None:
    for option in advice.options:
        offered = list(dict.fromkeys([NONE, option.compressor]))
        profile = with_compressors(load_fusion_profile("resnet50"), offered, NETWORK)
        found = best_fusion(profile)
        assert (option.iteration_s, option.groups) == (found.iteration_s, found.groups)
        assert option.bound_s == pytest.approx(option.iteration_s)


def test_plain_step_is_that_of_the_best_bucket_size(advice: Advice) -> None:
    plain = buckets(Costs.of(with_compressors(load_fusion_profile("resnet50"), [NONE], NETWORK)))
    assert advice.plain.iteration_s == plain.iteration_s
    assert of("none", advice).iteration_s <= plain.iteration_s


def test_scaling_and_saving_are_relative_to_one_worker_and_to_plain_buckets(advice: Advice) -> None:
    profile = load_fusion_profile("resnet50")
    assert advice.plain_scaling == pytest.approx(profile.compute_s / advice.plain.iteration_s)
    for option in advice.options:
        assert option.scaling == pytest.approx(profile.compute_s / option.iteration_s)
        assert 0 < option.scaling < 1
        assert option.time_saved == pytest.approx(1 - option.iteration_s / advice.plain.iteration_s)


def test_expensive_gathered_compressor_never_pays_on_many_ranks_and_its_plan_is_plain(advice: Advice) -> None:
    terngrad = of("terngrad", advice)
    assert terngrad.crossover == Crossover(0.0, 0.0, 0.0)
    assert terngrad.compressed == ()
    assert terngrad.iteration_s == pytest.approx(of("none", advice).iteration_s)
    assert advice.best_by_error["unbiased"] is None


def test_crossover_of_no_compression_is_not_asked_for(advice: Advice) -> None:
    assert of("none", advice).crossover is None


def test_crossovers_lie_in_their_range(advice: Advice) -> None:
    for option in advice.options:
        if option.crossover is not None:
            crossover = option.crossover
            assert crossover.low_bytes_per_s <= crossover.bytes_per_s <= crossover.high_bytes_per_s


def test_best_takes_the_least_time_to_a_loss_of_its_class_of_error(advice: Advice) -> None:
    assert advice.best is min(advice.options, key=lambda option: option.to_loss_s)
    for error, best in advice.best_by_error.items():
        rivals = [option for option in advice.options if option.compressor.error == error]
        assert best in (None, min(rivals, key=lambda option: option.to_loss_s))


def test_a_shorter_step_of_which_it_takes_many_more_is_not_the_best() -> None:
    """Random-k is all-reduced: at 64 ranks its steps are shorter than top-k's, of which it takes 2.5 times as many."""
    asked: dict[str, Any] = {"compressor": ["rand-k", "topk", "powersgd"], "bandwidth": GBPS, "ranks": 64}
    advice = compression("bert-base", **asked)
    drawn, best = of("rand-k", advice), advice.best
    assert best is not None
    assert drawn.iteration_s < best.iteration_s
    assert drawn.to_loss_s > best.to_loss_s
    assert advice.curve[0] is drawn
    steps = [option.steps or 0.0 for option in advice.curve]
    assert steps == sorted(steps, reverse=True)


def test_what_nobody_measured_is_never_the_best_and_has_a_warning() -> None:
    advice = compression("vgg16", compressor=["powersgd:3", "fp16"], ranks=16, bandwidth=10 * GBPS)
    assert of("powersgd:3", advice).iteration_s < of("fp16", advice).iteration_s
    assert advice.best is of("fp16", advice)
    assert advice.warnings == ("powersgd:3: never the best, since nobody measured how many steps it takes",)


def test_what_need_not_converge_is_never_the_best_and_has_a_warning() -> None:
    reckless = replace(named_compressor("rand-k"), name="reckless", error="unknown")
    advice = advise(load_fusion_profile("vgg16"), NETWORK, [reckless, named_compressor("fp16")])
    assert advice.best_by_error["unknown"] is of("reckless", advice)
    assert of("reckless", advice).iteration_s < of("fp16", advice).iteration_s
    assert advice.best is of("fp16", advice)
    assert advice.warnings == ("reckless: biased, and nothing is made up for; need not converge",)
    assert "warning: reckless: biased" in advice.text


def test_what_a_rank_gathers_is_limited_by_its_memory() -> None:
    asked: dict[str, Any] = {"compressor": ["dgc", "fp16"], "ranks": 8, "bandwidth": 5 * GBPS}
    whole = compression("vgg16", **asked)
    dgc = of("dgc", whole)
    largest = max(sum(whole.profile.size_bytes[slice(first, last + 1)]) for first, last in
                  (dgc.groups[number] for number in dgc.compressed))  # fmt: skip
    assert dgc.gathered_bytes == pytest.approx(8 * largest / 50)
    assert whole.best is dgc
    for decoded, copies in (("together", 8), ("one-by-one", 1)):
        needed = dgc.gathered_bytes + copies * largest
        limited = compression("vgg16", **asked, memory=needed - 1, decoded=decoded)
        assert (limited.best, limited.best_by_error["feedback"]) == (of("fp16", limited), None)
        assert limited.warnings[0].startswith("dgc: the largest group of its plan needs ")
        assert compression("vgg16", **asked, memory=needed + 1, decoded=decoded).best is not None


def test_signs_of_bert_at_64_ranks_do_not_fit_16_gb_all_at_once() -> None:
    asked: dict[str, Any] = {"compressor": ["signsgd"], "bandwidth": 10 * GBPS, "memory": 16e9}
    line = "signsgd: all gradients at once need 28.9 GB of buffers at 64 ranks, more than 16 GB; compress in groups"
    assert any(each.startswith(line) for each in compression("bert-base", ranks=64, **asked).warnings)
    for fits in ({"ranks": 32}, {"ranks": 64, "decoded": "one-by-one"}):
        assert not any("buffers" in each for each in compression("bert-base", **asked, **fits).warnings)


def test_errors_beyond_the_worst_that_is_accepted_are_left_out() -> None:
    network: dict[str, Any] = {"ranks": 8, "bandwidth": GBPS}
    advice = compression("vgg16", error="rounded", **network)
    assert {option.compressor.name for option in advice.options} == {"none", "fp16", "bf16"}
    with pytest.raises(InputError, match="error: leaves no compressor, none of those asked for is exact or better"):
        compression("vgg16", compressor=["dgc"], error="exact", **network)


NODES: tuple[dict[str, Any], ...] = ({}, {"ranks_per_node": 8, "inner_bandwidth": 150e9})


def test_two_levels_beat_one_ring_for_every_compressor() -> None:
    one, two = (
        compression("vgg16", compressor=["none", "dgc", "fp16"], ranks=64, bandwidth=10 * GBPS, **nodes)
        for nodes in NODES
    )
    assert two.plain.iteration_s < one.plain.iteration_s
    for option in two.options:
        assert option.iteration_s <= of(option.compressor.name, one).iteration_s
    assert of("dgc", two).gathered_bytes < of("dgc", one).gathered_bytes


def test_there_is_no_best_where_plain_buckets_are_fastest() -> None:
    fast = FlatNetwork(ranks=8, bytes_per_s=1e13)
    assert advise(load_fusion_profile("resnet50"), fast, [named_compressor("powersgd")]).best is None


def test_ring_of_one_rank_is_refused() -> None:
    with pytest.raises(InputError, match="ranks: must be >= 2 for there to be something to communicate, got 1"):
        advise(load_fusion_profile("resnet50"), FlatNetwork(1, 1e9), [NONE])


def test_step_without_any_computation_is_refused() -> None:
    idle = FusionProfile("idle", 0.0, ("a",), np.array([8], dtype=np.int64), np.array([0.0]), PLAIN_ONLY)
    with pytest.raises(InputError, match="profile 'idle': forward_s and backward_s must not all be 0"):
        advise(idle, NETWORK, [NONE])


def test_faster_device_raises_the_crossover() -> None:
    profile, powersgd = load_fusion_profile("resnet50"), named_compressor("powersgd")
    slow, fast = (of("powersgd", advise(profile, NETWORK, [powersgd], device)).crossover for device in ("v100", "a100"))
    assert slow is not None
    assert fast is not None
    assert slow.bytes_per_s < fast.bytes_per_s


def test_larger_batch_lowers_the_crossover() -> None:
    """More backward time hides more communication (Figure 4.7)."""
    base, crossovers = load_fusion_profile("resnet101"), []
    for factor in (0.5, 2.0):
        profile = replace(base, forward_s=factor * base.forward_s, backward_s=factor * base.backward_s)
        crossover = of("powersgd", advise(profile, NETWORK, [named_compressor("powersgd")])).crossover
        assert crossover is not None
        crossovers.append(crossover.bytes_per_s)
    assert crossovers == sorted(crossovers, reverse=True)


@examples(40)
@given(profiles, networks, compressors)
def test_compression_pays_below_its_crossover_and_not_above(
    profile: FusionProfile, network: FlatNetwork, compressor: object
) -> None:
    """All in buckets, on either side."""
    chosen = named_compressor(getattr(compressor, "name", ""))
    (option,) = advise(profile, network, [chosen]).options
    crossover = option.crossover
    if crossover is None or not 0 < crossover.bytes_per_s < math.inf:
        return
    for factor, pays in ((0.998, True), (1.002, False)):
        other = FlatNetwork(network.ranks, factor * crossover.bytes_per_s, network.alpha_s)
        compressed, plain = (
            buckets(Costs.of(with_compressors(profile, [each], other))).iteration_s for each in (chosen, NONE)
        )
        assert (compressed < plain * (1 - 1e-9)) == pays


def test_compressors_that_there_was_no_time_for_are_left_out_and_named() -> None:
    options, chosen = SolveOptions(), [named_compressor(name) for name in ("fp16", "dgc")]
    whole = advise(load_fusion_profile("vgg16"), NETWORK, chosen, options=options)
    assert ([option.compressor.name for option in whole.options], whole.left_out) == (["fp16", "dgc"], "")
    options.stop.set()
    cut = advise(load_fusion_profile("vgg16"), NETWORK, chosen, options=options)
    assert (cut.options, cut.left_out, cut.plain) == ((), "fp16, dgc", whole.plain)
    assert cut.text.endswith("best: no compression, plain buckets")
