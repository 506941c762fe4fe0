"""The analytic model of data-parallel training: the published numbers, its limits, and its what-ifs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gapless.errors import InputError
from gapless.profiles.gradients.communication import FlatNetwork
from gapless.profiles.gradients.compressors import compressor_names, named_compressor
from gapless.profiles.gradients.cost_functions import FREE
from gapless.profiles.gradients.crossover import crossover_bytes_per_s
from gapless.profiles.gradients.ddp_model import (
    DdpModel,
    bandwidth_table,
    batch_table,
    compute_table,
    ddp_model,
    ratio_table,
    tradeoff_table,
)
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
    saved = [100 * row["time_saved"] for row in batch_table(RESNET101, POWERSGD, (16 / 64, 32 / 64, 1))]
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
    rows = ratio_table(RESNET101, (16 / 64, 32 / 64, 1), (10 * GBPS,))
    assert [row["required_ratio"] for row in rows] == [pytest.approx(3.67, abs=0.01), pytest.approx(1.83, abs=0.01), 1]
    assert all(0.8 < row["scaling"] < 1 for row in rows)


def test_single_bucket_needs_no_compression() -> None:
    assert replace(RESNET101, gradient_bytes=1e6).required_ratio() == 1.0


def test_no_ratio_is_enough_where_latency_alone_is_too_long() -> None:
    slow = replace(RESNET101, network=replace(NETWORK, alpha_s=1e-3))
    assert slow.required_ratio() == math.inf
    (row,) = ratio_table(slow, (1,), (10 * GBPS,))
    assert row["required_ratio"] == math.inf
    assert 0 < row["scaling"] < 0.3


def test_more_bandwidth_helps_synchronous_sgd_more() -> None:
    """Figure 4.12: PowerSGD is soon bound by compute."""
    rows = bandwidth_table(RESNET50, POWERSGD, [gbps * GBPS for gbps in (1, 3, 5, 7, 9, 10, 20, 30)])
    saved = [row["time_saved"] for row in rows]
    assert saved == sorted(saved, reverse=True)
    assert saved[0] > 0.8
    assert saved[4] > 0 > saved[5]


def test_faster_compute_makes_compression_pay() -> None:
    """Figure 4.13: at 10 Gb/s synchronous SGD becomes bound by communication."""
    rows = compute_table(RESNET50, POWERSGD, (1, 2, 3, 4))
    assert rows[0]["time_saved"] < 0 < rows[1]["time_saved"] < rows[2]["time_saved"] < rows[3]["time_saved"]
    assert rows[2]["uncompressed_s"] == rows[3]["uncompressed_s"]
    ideal_s = RESNET50.compressed_s(POWERSGD) / 2
    assert ideal_s < rows[1]["compressed_s"] < 1.02 * ideal_s


def test_cheaper_encoding_helps_even_at_three_times_the_bytes_it_saves() -> None:
    """Figure 4.14."""
    rows = tradeoff_table(RESNET101, POWERSGD, (1, 2, 3, 4), (1, 2, 3))
    assert len(rows) == 12
    assert [row["ratio"] for row in rows[:4]] == [100, 50, pytest.approx(100 / 3), 50]
    base = next(row for row in rows if row["speed"] == row["penalty"] == 1)
    assert all(row["compressed_s"] < base["compressed_s"] for row in rows if row["speed"] > 1)


def test_trade_off_never_sends_more_than_the_raw_gradient() -> None:
    rows = tradeoff_table(RESNET101, named_compressor("fp16"), (1, 4), (1,))
    assert [row["ratio"] for row in rows] == [2, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"gradient_bytes": 0}, "gradient_bytes: must be finite and > 0, got 0"),
        ({"backward_s": -1}, "backward_s: must be finite and > 0, got -1"),
        ({"bucket_bytes": math.nan}, "bucket_bytes: must be finite and > 0, got nan"),
        ({"slowdown": 0.9}, "slowdown: must be finite and >= 1, got 0.9"),
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
