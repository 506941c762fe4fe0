"""Transformers from shapes: what follows from a shape by hand comes out."""

from __future__ import annotations

import numpy as np
import pytest

from gapless.errors import InputError
from gapless.profiles.devices import BANDWIDTH_EFFICIENCY, HALF_EFFICIENCY, Device, named_device
from gapless.profiles.pipelines.compression import CompressionMode
from gapless.profiles.pipelines.named import NAMED, Transformer, find_pipeline_profile, transformer_profile

TINY = Transformer("tiny", layers=3, hidden=64, sequence=32, vocabulary=100, micro_batch=2, tensor_parallel=2, heads=4)


@pytest.mark.parametrize(("name", "layers", "billions"), [("gpt-2.5b", 52, 2.5), ("gpt-8.3b", 72, 8.3)])
def test_the_named_models_have_the_parameters_of_their_names(name: str, layers: int, billions: float) -> None:
    profile = NAMED[name]()
    assert profile.layer_count == layers + 2
    counted = int(profile.parameter_bytes.sum()) - profile.embedding_bytes  # the shared embedding once
    assert counted / 2e9 == pytest.approx(billions, rel=0.04)  # 52 layers are 2.4 billion
    np.testing.assert_array_equal(profile.state_bytes, 8 * profile.parameter_bytes)


def test_a_hop_of_the_8_3b_model_is_8192_x_3072_and_rank_16_sends_0_716_percent() -> None:
    """Optimus-CC, section 9.6: the rank of compressed backpropagation."""
    shape = NAMED["gpt-8.3b"]().boundary_shape
    assert shape == (8192, 3072)
    errors = np.zeros(1)
    assert 100 * CompressionMode("rank 16", 1.0, 16, 0.0, 0.0, errors, errors).hop_ratio(shape) == pytest.approx(
        0.716, abs=5e-4
    )


def test_a_layer_runs_at_the_share_of_the_peak_that_the_efficiency_names() -> None:
    """Forward and backward of a layer are 72 B S H^2 + 12 B S^2 H operations."""
    for name, hidden, least, most in (("gpt-2.5b", 1920, 0.349, 0.35), ("gpt-8.3b", 3072, 0.409, 0.411)):
        profile, tokens = NAMED[name](), 8 * 1024
        layer_s = profile.forward_s[1] + profile.backward_s[1] + profile.weight_s[1]
        operations = 72 * tokens * hidden**2 + 12 * tokens * 1024 * hidden
        assert least < operations / layer_s / (8 * named_device("a100").half_flops_per_s) < most


def test_times_and_bytes_of_a_layer_by_hand() -> None:
    device = Device("toy", 1.0, 1e6, 1, launch_s=0.0, idle_w=0, busy_w=1, half_flops_per_s=1e9)
    profile = transformer_profile(TINY, device)
    boundary, tokens = 2 * 32 * 64, 2 * 32
    stash = boundary * (10 * 2 + 24) + 5 * 4 * 32 * 2 * 32
    assert profile.stash_bytes.tolist() == [2 * boundary, stash, stash, stash, 8 * boundary + 4 * tokens * 100]
    assert profile.boundary_bytes.tolist() == [2 * boundary] * 4 + [0]
    assert profile.parameter_bytes[1] == 2 * (12 * 64**2 + 13 * 64)
    assert profile.embedding_bytes == 2 * 100 * 64
    traffic_s = 2 * stash / (BANDWIDTH_EFFICIENCY * 1e6 * 2)
    rate = HALF_EFFICIENCY * 1e9 * 2
    assert profile.forward_s[1] == pytest.approx((24 * tokens * 64**2 + 4 * tokens * 32 * 64) / rate + traffic_s)
    assert profile.backward_s[1] == pytest.approx((24 * tokens * 64**2 + 8 * tokens * 32 * 64) / rate + traffic_s)
    assert profile.weight_s[1] == pytest.approx(24 * tokens * 64**2 / rate)
    assert profile.backward_s[0] == 0.0


def test_what_makes_no_transformer_is_refused() -> None:
    with pytest.raises(InputError, match="transformer 'x': hidden must be >= 1, got 0"):
        Transformer("x", 1, 0, 1, 1, 1, 1, 1)
    with pytest.raises(InputError, match="device: must be one of p100, v100, a100, h100, got 'tpu'"):
        transformer_profile(TINY, "tpu")
    unknown = Device("old", 1.0, 1.0, 1, launch_s=0.0, idle_w=0, busy_w=1)
    with pytest.raises(InputError, match=r"device 'old': half_flops_per_s must be > 0, got 0\.0"):
        transformer_profile(TINY, unknown)


def test_a_shape_may_be_typed_and_has_the_papers_settings_otherwise() -> None:
    typed, named = find_pipeline_profile("gpt:layers=72,hidden=3072", 4, 1), NAMED["gpt-8.3b"]()
    for title in ("forward_s", "backward_s", "stash_bytes", "boundary_bytes"):
        np.testing.assert_array_equal(getattr(typed, title), getattr(named, title))
    half = find_pipeline_profile("gpt:layers=72,hidden=3072,tensor_parallel=4", 4, 1)
    assert half.forward_s[1] == pytest.approx(2 * named.forward_s[1], rel=0.2), "half as many devices"


@pytest.mark.parametrize("text", ["gpt:", "gpt:layers=3", "gpt:layers=3,hidden=0", "gpt:layers=3,hidden=64,name=5"])
def test_what_is_no_shape_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(InputError, match="profile: gpt needs layers and hidden, and takes sequence, vocabulary"):
        find_pipeline_profile(text, 2, 1)


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(InputError, match=r"a shape such as gpt:layers=24,hidden=1024 .* did you mean 'llama-8b'"):
        find_pipeline_profile("llama8b", 2, 1)
