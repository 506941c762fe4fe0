"""The analytic model of data-parallel training: the published numbers, and its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.compressors.grammar import compressor_names, named_compressor
from gapless.profiles.gradients.communication import FlatNetwork, TwoLevelNetwork
from gapless.profiles.gradients.cost_functions import FREE
from gapless.profiles.gradients.ddp_model import DdpModel, crossover_bytes_per_s, ddp_model
from gapless.profiles.gradients.modes import plain_mode
from gapless.profiles.gradients.profile import FusionProfile

GBPS = 1e9 / 8
NETWORK = FlatNetwork(ranks=64, bytes_per_s=10 * GBPS)
RESNET101 = DdpModel(gradient_bytes=170e6, backward_s=2 * 0.120391, network=NETWORK)  # batch 64
RESNET50 = DdpModel(gradient_bytes=97e6, backward_s=2 * 0.063533, network=NETWORK)
POWERSGD = named_compressor("powersgd")

models = st.builds(
    DdpModel,
    gradient_bytes=st.floats(1e6, 1e9),
    backward_s=st.floats(1e-3, 1),
    network=st.builds(
        FlatNetwork, ranks=st.integers(2, 256), bytes_per_s=st.floats(1e8, 1e11), alpha_s=st.floats(0, 1e-5)
    ),
)
compressors = st.sampled_from([named_compressor(name) for name in compressor_names()])


@pytest.mark.parametrize("alpha_s", [0.0, 1e-6, 1e-5])
def test_powersgd_pays_for_resnet101_on_64_ranks_up_to_between_8_and_8_6_gbps(alpha_s: float) -> None:
    """The text says 8.2 (Figure 4.10)."""
    model = replace(RESNET101, network=replace(NETWORK, alpha_s=alpha_s))
    assert 8.0 < model.crossover_bytes_per_s(POWERSGD) / GBPS < 8.6


def test_crossovers_are_8_29_and_9_17_gbps_without_latency() -> None:
    """The text says 8.2 for ResNet-101, and above 9 for ResNet-50 (Figure 4.12)."""
    assert RESNET101.crossover_bytes_per_s(POWERSGD) / GBPS == pytest.approx(8.29, abs=0.005)
    assert RESNET50.crossover_bytes_per_s(POWERSGD) / GBPS == pytest.approx(9.17, abs=0.005)


def test_time_saved_falls_with_the_batch_from_47_to_25_to_minus_11_5_percent() -> None:
    """The text says 42.5, 25.7 and -6.3 % (Figure 4.7)."""
    models = [RESNET101.at_batch(batch / 64) for batch in (16, 32, 64)]
    saved = [100 * (1 - model.compressed_s(POWERSGD) / model.uncompressed_s()) for model in models]
    np.testing.assert_allclose(saved, [47.1, 24.6, -11.5], atol=0.05)


def test_step_is_the_longer_of_slowed_backward_and_full_buckets_plus_the_last() -> None:
    model = DdpModel(60e6, 0.05, FlatNetwork(4, 1e9, 1e-5), bucket_bytes=25e6, slowdown=1.1)
    bucket_s, last_s = (2e-5 * 3 + 2 * size * 3 / (4 * 1e9) for size in (25e6, 10e6))
    assert model.bucket_count == 3
    assert model.uncompressed_s() == pytest.approx(2 * bucket_s + last_s)
    assert replace(model, backward_s=1.0).uncompressed_s() == pytest.approx(1.1 + last_s)


def test_last_bucket_is_full_where_sizes_divide() -> None:
    model = replace(RESNET101, gradient_bytes=50e6, bucket_bytes=25e6, backward_s=1e-9)
    assert model.bucket_count == 2
    assert model.uncompressed_s() == pytest.approx(2 * (2 * 25e6 * 63 / (64 * 10 * GBPS)))


def test_compressed_step_overlaps_nothing() -> None:
    """0.24 s backward, 45 ms for 97 MB of encode and decode, and an all-reduce of a hundredth."""
    expected_s = 2 * 0.120391 + 0.045 * 170 / 97 + 2 * 1.7e6 * 63 / (64 * 10 * GBPS)
    assert RESNET101.compressed_s(POWERSGD) == pytest.approx(expected_s)


def test_model_of_a_profile_takes_its_bytes_and_its_backward_time() -> None:
    profile = FusionProfile(
        "tiny", 1.0, ("a", "b"), np.array([3, 4], dtype=np.int64), np.array([0.25, 0.5]), (plain_mode(FREE),)
    )
    model = ddp_model(profile, NETWORK)
    assert (model.gradient_bytes, model.backward_s, model.network) == (7, 0.75, NETWORK)


@given(models, compressors)
def test_compression_pays_just_below_its_crossover_and_not_above(model: DdpModel, compressor: Any) -> None:
    crossover = model.crossover_bytes_per_s(compressor)
    if 0 < crossover < math.inf:
        for factor, pays in ((1 - 1e-4, True), (1 + 1e-4, False)):
            other = model.at_bandwidth(factor * crossover)
            assert (other.compressed_s(compressor) < other.uncompressed_s()) == pays


@given(models, compressors)
def test_no_step_is_faster_than_the_backward_pass(model: DdpModel, compressor: Any) -> None:
    assert model.uncompressed_s() >= model.slowdown * model.backward_s
    assert model.compressed_s(compressor) >= model.backward_s


@given(models)
@example(
    DdpModel(1e9, 0.001, FlatNetwork(ranks=253, bytes_per_s=100000001.0, alpha_s=0.0))
)  # 40 buckets but for rounding
def test_at_the_required_ratio_only_the_last_bucket_is_left_to_wait_for(model: DdpModel) -> None:
    ratio = model.required_ratio()
    assert ratio >= 1
    if 1 < ratio < math.inf:
        smaller = model.at_ratio(ratio)
        last_s = smaller.uncompressed_s() - model.slowdown * model.backward_s
        hidden_s = smaller.slowdown * smaller.backward_s / (smaller.bucket_count - 1)
        assert 0 <= last_s <= hidden_s * (1 + 1e-6)
        assert model.at_ratio(ratio / 1.01).uncompressed_s() > smaller.uncompressed_s()


def test_resnet101_needs_about_fourfold_compression_even_at_batch_16() -> None:
    """Figure 4.8, 10 Gb/s and 64 ranks."""
    ratios = [RESNET101.at_batch(batch / 64).required_ratio() for batch in (16, 32, 64)]
    assert ratios == [pytest.approx(3.67, abs=0.01), pytest.approx(1.83, abs=0.01), 1]


def test_single_bucket_needs_no_compression() -> None:
    assert replace(RESNET101, gradient_bytes=1e6).required_ratio() == 1.0


def test_no_ratio_is_enough_where_latency_alone_is_too_long() -> None:
    slow = replace(RESNET101, network=replace(NETWORK, alpha_s=1e-3))
    assert slow.required_ratio() == math.inf


def test_compression_beside_the_backward_pass_waits_for_its_last_bucket_only() -> None:
    """150 ms of backward, three buckets of 25, 25 and 10 MB, 100 times smaller, and 7 ms for 4 MiB of one of them."""
    model = DdpModel(60e6, 0.15, FlatNetwork(4, 1e9, 1e-5), contention=1.25)
    encoding_s = float(POWERSGD.cost(4)(25e6) * 2 + POWERSGD.cost(4)(10e6))
    last_s = 2e-5 * 3 + 2 * 10e4 * 3 / (4 * 1e9)
    assert model.beside_s(POWERSGD) == pytest.approx(1.25 * (0.15 + encoding_s) + last_s)


def test_a_hundredth_of_contention_is_enough_to_compress_after_the_backward_pass() -> None:
    """Figure 4.3: "compression schemes perform better when not overlapped"; without contention they wouldn't."""
    model = replace(RESNET50, network=replace(NETWORK, alpha_s=1e-5))
    assert model.beside_s(POWERSGD) < model.compressed_s(POWERSGD)
    assert replace(model, contention=1.01).beside_s(POWERSGD) > model.compressed_s(POWERSGD)


@given(models, compressors, st.floats(1, 2))
def test_contention_only_costs(model: DdpModel, compressor: Any, contention: float) -> None:
    assert replace(model, contention=contention).beside_s(compressor) >= model.beside_s(compressor)


@given(models, compressors)
def test_nodes_of_one_rank_change_nothing(model: DdpModel, compressor: Any) -> None:
    flat = model.network
    assert isinstance(flat, FlatNetwork)
    single = replace(model, network=TwoLevelNetwork(FlatNetwork(1, 1e9), flat))
    assert single.uncompressed_s() == pytest.approx(model.uncompressed_s())
    assert single.compressed_s(compressor) == pytest.approx(model.compressed_s(compressor))


def test_gathered_messages_of_signs_outgrow_the_gradient_at_as_many_ranks_as_they_are_smaller() -> None:
    """Figure 4.6: "memory requirement increasing linearly with number of machines"."""
    signs, bert = named_compressor("ef-signsgd"), DdpModel(418e6, 0.2, replace(NETWORK, ranks=32))
    assert bert.gathered_bytes(signs) == pytest.approx(418e6)
    assert replace(bert, network=NETWORK).gathered_bytes(signs) == pytest.approx(2 * 418e6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient_bytes": 0}, "gradient_bytes: must be finite and > 0, got 0"),
        ({"backward_s": -1}, "backward_s: must be finite and > 0, got -1"),
        ({"bucket_bytes": math.nan}, "bucket_bytes: must be finite and > 0, got nan"),
        ({"slowdown": 0.9}, "slowdown: must be finite and >= 1, got 0.9"),
        ({"contention": 0.5}, "contention: must be finite and >= 1, got 0.5"),
        ({"speed": 0.0}, "speed: must be finite and > 0, got 0.0"),
    ],
)
def test_impossible_model_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(RESNET101, **change)


@pytest.mark.parametrize(
    ("saved_s", "bandwidth"),
    [
        (lambda bandwidth: -1.0, 0.0),
        (lambda bandwidth: 1.0, math.inf),
        (lambda bandwidth: 5e8 - bandwidth, pytest.approx(5e8, rel=1e-6)),
        (lambda bandwidth: 1.0 if 1e6 < bandwidth < 5e8 else -1.0, pytest.approx(5e8, rel=1e-6)),
    ],
)
def test_crossover_is_the_highest_bandwidth_that_pays(saved_s: Any, bandwidth: float) -> None:
    assert crossover_bytes_per_s(saved_s) == bandwidth
