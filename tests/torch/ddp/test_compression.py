"""Top-k and error feedback in PyTorch, and their costs. Without torch these tests are skipped."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch

from gapless.errors import InputError
from gapless.torch.ddp.compression import CompressionState, TopK, communication_cost, compression_cost


def decoded(compressor: TopK, gradient: torch.Tensor) -> torch.Tensor:
    total = torch.zeros_like(gradient)
    compressor.add_to(total, compressor.encode(gradient), factor=1.0)
    return total


def test_top_k_keeps_the_greatest_magnitudes() -> None:
    gradient = torch.tensor([0.5, -3.0, 0.1, 2.0, -0.2])
    assert decoded(TopK(0.4), gradient).tolist() == [0.0, -3.0, 0.0, 2.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("length", [1, 2, 7, 64])
def test_payload_has_a_place_and_a_value_for_each_kept_entry(dtype: torch.dtype, length: int) -> None:
    gradient = torch.randn(length, generator=torch.Generator().manual_seed(length)).to(dtype)
    for kept in (0.01, 0.5, 1.0):
        payload = TopK(kept).encode(gradient)
        assert payload.dtype is torch.uint8
        assert payload.numel() == max(1, round(kept * length)) * (4 + dtype.itemsize)
    assert torch.equal(decoded(TopK(1.0), gradient), gradient)


@pytest.mark.parametrize("kept", [0.0, -0.1, 1.1, float("nan")])
def test_fraction_kept_is_checked(kept: float) -> None:
    with pytest.raises(InputError, match="kept: must be a fraction above 0, at most 1, got"):
        TopK(kept)


def sent(state: CompressionState, parameters: tuple[int, ...], *gradient: float) -> list[float]:
    """What arrives of a gradient in a lone rank."""
    flat = torch.tensor(gradient)
    return state.mean(state.encode(parameters, flat).unsqueeze(0), flat).tolist()


def test_what_was_not_sent_is_added_to_the_next_gradient() -> None:
    state = CompressionState(TopK(0.5))
    assert sent(state, (1, 2), 4.0, 3.0) == [4.0, 0.0]
    assert sent(state, (1, 2), 4.0, 3.0) == [0.0, 6.0]
    assert sent(state, (1, 2), 0.0, 1.0) == [4.0, 0.0]


def test_without_error_feedback_it_is_lost() -> None:
    state = CompressionState(TopK(0.5), error_feedback=False)
    assert sent(state, (1, 2), 4.0, 3.0) == [4.0, 0.0]
    assert sent(state, (1, 2), 4.0, 3.0) == [4.0, 0.0]


def test_errors_of_rebuilt_buckets_are_dropped_and_others_kept() -> None:
    state = CompressionState(TopK(0.5))
    sent(state, (1, 2), 4.0, 3.0)
    sent(state, (3, 4), 4.0, 3.0)
    assert sent(state, (2, 1), 4.0, 3.5) == [4.0, 0.0]  # no error of 3 for parameter 2, in whatever place
    assert sent(state, (3, 4), 4.0, 3.0) == [0.0, 6.0]
    assert sent(state, (1, 2), 4.0, 3.0) == [4.0, 0.0]  # that of before the change doesn't come back


def test_a_step_that_overflows_leaves_no_error_that_is_not_a_number() -> None:
    state = CompressionState(TopK(0.5))
    sent(state, (1, 2), float("inf"), float("inf"))
    assert sent(state, (1, 2), 4.0, 3.0) == [4.0, 0.0]


def test_the_gradient_itself_is_not_changed() -> None:
    gradient = torch.tensor([4.0, 3.0])
    state = CompressionState(TopK(0.5))
    for _ in range(2):
        state.encode((1, 2), gradient)
    assert gradient.tolist() == [4.0, 3.0]


def test_mean_is_over_the_payloads() -> None:
    state = CompressionState(TopK(0.5))
    payloads = [TopK(0.5).encode(torch.tensor(gradient)) for gradient in ([4.0, 0.0], [0.0, 2.0], [5.0, 0.0])]
    assert state.mean(torch.stack(payloads), torch.zeros(2)).tolist() == [3.0, pytest.approx(2 / 3)]


def test_cost_has_a_point_for_each_size_and_never_falls() -> None:
    cost = compression_cost(TopK(0.1), [4, 4096, 1 << 18], ranks=3, repeats=2)
    assert [size for size, _ in cost.points] == [4, 4096, 1 << 18]
    times_s = [duration_s for _, duration_s in cost.points]
    assert times_s[0] > 0
    assert times_s == sorted(times_s)


@pytest.mark.parametrize(
    ("sizes", "settings", "message"),
    [
        ([6], {}, "size_bytes: must be whole entries of 4 bytes, at least one, got 6"),
        ([0], {}, "size_bytes: must be whole entries of 4 bytes, at least one, got 0"),
        ([8, 4], {"repeats": 1}, r"points\[1\]: bytes must rise"),
        ([], {}, "points: must hold at least one"),
        ([4], {"repeats": 0}, "repeats: must be at least 1, got 0"),
        ([4], {"ranks": 0}, "ranks: must be at least 1, got 0"),
        ([4], {"device": "meta"}, "device: must be cpu or cuda to be timed, got meta"),
    ],
)
def test_sizes_and_settings_are_checked(sizes: list[int], settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        compression_cost(TopK(0.1), sizes, **settings)


def test_communication_needs_a_process_group() -> None:
    with pytest.raises(InputError, match="communication_cost needs a process group"):
        communication_cost(None, [4])
