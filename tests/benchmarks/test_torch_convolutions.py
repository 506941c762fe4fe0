"""The least budget of captured convolutional networks, with the gradients of a convolution in one operator and in two.

`pytest tests/benchmarks/test_torch_convolutions.py --tables FOLDER` plans a small VGG (seven convolutions, batch 8, 96
pixels), UNet and ResNet-50 as in `test_torch_run.py`, and bisects to 1 % for the least budget with a plan, 20 s
(`--limit-s`) for each budget. Memory is what the operators' own allocations are; times don't enter.

What is asserted: no plan is below what is proven, and the small VGG needs less with two operators than it can with one.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from result_tables import ResultTables

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional
from torch_models import Case, ResNet, UNet

import gapless
from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.profiles.training.graph import TrainingGraph
from gapless.torch.capture import capture, profile
from gapless.torch.rewrite import rewrites

LIMIT_S = 20.0
MIB = 2**20
Limit = Callable[[float], float]


class Vgg(nn.Module):
    """VGG on few channels: no batch norm, so that a convolution's gradient is what takes most."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after, count in ((3, 16, 2), (16, 32, 2), (32, 64, 3)):
            for place in range(count):
                layers += [nn.Conv2d(after if place else before, after, 3, padding=1), nn.ReLU()]
            layers.append(nn.MaxPool2d(2))
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(64, 10)

    def forward(self, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(self.head(self.layers(image).mean((2, 3))), label)


def made(name: str) -> Case:
    torch.manual_seed(0)
    if name == "vgg":
        return Vgg(), (torch.randn(8, 3, 96, 96), torch.randint(10, (8,)))
    if name == "unet":
        return UNet(), (torch.randn(4, 3, 96, 96), torch.randint(4, (4, 96, 96)))
    return ResNet(), (torch.randn(8, 3, 96, 96), torch.randint(1000, (8,)))


def least_bytes(graph: TrainingGraph, limit_s: float) -> tuple[int, int]:
    """What every plan needs, proven, and the least budget that a plan was found for, to 1 %."""
    details = gapless.solve(Problem(graph, 1), SolveOptions(time_limit_s=2 * limit_s, threads=1, gap=0.0)).details
    low, high = details["least_budget_bound_bytes"], details["least_budget_found_bytes"]
    proven = low
    while high - low > 0.01 * high:
        middle = (low + high) // 2
        found = gapless.solve(Problem(graph, middle), SolveOptions(time_limit_s=limit_s, gap=1.0, threads=1))
        low, high = (low, int(found.report.peak_bytes[0])) if found.valid else (middle, high)
    return proven, high


@pytest.mark.usefixtures("keep_tables")
@pytest.mark.parametrize("name", ["vgg", "unet", "resnet"])
def test_gradients_in_two_operators_need_no_more_memory(
    tables: ResultTables, limit_s: Limit, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    model, arguments = made(name)
    apart = least_bytes(profile(capture(model, arguments), repeats=1).graph, limit_s(LIMIT_S))
    monkeypatch.setattr(rewrites, "split_convolutions", lambda *_: None)
    together = least_bytes(profile(capture(model, arguments), repeats=1).graph, limit_s(LIMIT_S))
    cells = [round(size_bytes / MIB, 1) for size_bytes in (*together, *apart)]
    title = "Least budgets (MiB) with the gradients of a convolution in one operator and in two"
    tables.table("torch_convolutions", title).add(
        name, model=name, proven_together=cells[0], found_together=cells[1], proven=cells[2], found=cells[3]
    )  # fmt: skip
    for proven, found in (together, apart):
        assert proven <= found
    if name == "vgg":
        assert apart[1] < 0.9 * together[0]
