"""Steps of all sorts of layers, in plans made by chance: equal to eager in every bit, within the plan's peak.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional
from torch_steps import keep_all, left_by_eager, left_by_plan, random_plan

from gapless.torch.capture.graph import capture
from gapless.torch.capture.timing import profile

Layers = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Read(nn.Module):
    """A layer with a loss of its own."""

    def __init__(self, layer: nn.Module, read: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.layer, self.read = layer, read

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.read(self.layer, *given)


def squares(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
    return layer(given).float().pow(2).mean()


def attention() -> Layers:
    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        return layer(given, given, given)[0].pow(2).mean()

    return Read(nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True), read), (torch.randn(2, 7, 16),)


def flash_attention() -> Layers:
    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        parts = layer(given).view(2, 7, 3, 4, 4).permute(2, 0, 3, 1, 4).unbind(0)
        return functional.scaled_dot_product_attention(*parts, is_causal=True).pow(2).mean()

    return Read(nn.Linear(16, 48), read), (torch.randn(2, 7, 16),)


def encoder() -> Layers:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    return Read(nn.TransformerEncoder(layer, 2), squares), (torch.randn(2, 7, 16),)


def convolutions() -> Layers:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, groups=8),
        nn.Hardswish(), nn.Upsample(scale_factor=2), nn.Dropout2d(0.3), nn.BatchNorm2d(8), nn.LeakyReLU(),
    )  # fmt: skip
    return Read(layers, squares), (torch.randn(2, 3, 16, 16),)


def channels_last() -> Layers:
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3),
        nn.ReLU(),
    ).to(memory_format=torch.channels_last)  # fmt: skip
    return Read(layers, squares), (torch.randn(2, 3, 20, 20).to(memory_format=torch.channels_last),)


def half_precision() -> Layers:
    layers = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.LayerNorm(32), nn.Linear(32, 4))
    return Read(layers.bfloat16(), squares), (torch.randn(9, 16).bfloat16(),)


def transposed_dropout() -> Layers:
    """Dropout of a tensor that lies otherwise than its gradient."""

    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        dropped = functional.dropout(layer(given).t(), 0.4)
        return (dropped.contiguous() * dropped.shape[0]).pow(2).mean()

    return Read(nn.Linear(16, 12), read), (torch.randn(9, 16),)


def spectral_norm() -> Layers:
    """A buffer that is read and written in the forward pass."""
    return Read(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), squares), (torch.randn(4, 8),)


def noise() -> Layers:
    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        return (layer(given) + torch.randn_like(given)).pow(2).mean()

    layers = nn.Sequential(nn.Linear(8, 8), nn.RReLU(), nn.Linear(8, 8), nn.AlphaDropout(0.2))
    return Read(layers, read), (torch.randn(4, 8),)


def recurrent() -> Layers:
    """oneDNN's LSTM, whose gradient reads what it keeps by itself."""

    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        return layer(given)[0].pow(2).mean()

    return Read(nn.LSTM(8, 16, 2, dropout=0.1, bidirectional=True), read), (torch.randn(5, 3, 8),)


def transposed_norm() -> Layers:
    """Gradients that lie otherwise than what they are gradients of."""
    layers = nn.Sequential(nn.Conv1d(8, 16, 3), nn.BatchNorm1d(16), nn.Hardtanh(0, 6), nn.BatchNorm1d(16), nn.ELU())

    def read(layer: nn.Module, given: torch.Tensor) -> torch.Tensor:
        return (layer(given).transpose(1, 2).contiguous() * torch.arange(16)).tanh().pow(2).mean()

    return Read(layers, read), (torch.randn(4, 8, 20),)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.thorough(but=("attention", "noise", "recurrent"))
@pytest.mark.parametrize(
    "made",
    [
        attention, flash_attention, encoder, convolutions, channels_last, half_precision, transposed_dropout,
        spectral_norm, noise, recurrent, transposed_norm,
    ],
)  # fmt: skip
def test_layers_equal_eager_in_any_plan(made: Callable[[], Layers]) -> None:
    torch.manual_seed(1)
    model, given = made()
    expected = left_by_eager(model, lambda its: its(*given))
    step = profile(capture(model, given), repeats=1)
    for planned in (keep_all(step), *(random_plan(step, seed) for seed in range(5))):
        found = left_by_plan(model, planned, *given)
        assert found.differs_from(expected) == []
        assert found.peak_bytes <= planned.peak_bytes
