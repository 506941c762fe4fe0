"""Convolutions' gradients in two operators: eager's bits, and an input that is free before its gradient is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional

import gapless
from gapless import SolveOptions
from gapless.encodings.monet import Problem
from gapless.torch.capture import capture, profile
from gapless.torch.kernels.functions import convolution_input_gradient
from gapless.torch.rewrite import rewrites
from gapless.torch.run import plan, run

aten = torch.ops.aten


@dataclass(frozen=True)
class Shape:
    axes: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    dilation: int = 1
    groups: int = 1
    is_transposed: bool = False
    extent: int = 12

    @property
    def options(self) -> tuple[object, ...]:
        steps = ([step] * self.axes for step in (self.stride, self.padding, self.dilation))
        return *steps, self.is_transposed, [0] * self.axes, self.groups

    def drawn(self, dtype: torch.dtype, layout: torch.memory_format) -> tuple[torch.Tensor, ...]:
        """Gradient of the output, input, and weight."""
        torch.manual_seed(0)
        planes = (self.inputs, self.outputs // self.groups)
        if not self.is_transposed:
            planes = (self.outputs, self.inputs // self.groups)
        weight = torch.randn(*planes, *[self.kernel] * self.axes).to(dtype)
        given = torch.randn(2, self.inputs, *[self.extent] * self.axes).to(dtype)
        if self.axes == 2:
            given = given.to(memory_format=layout)
        return torch.randn_like(aten.convolution(given, weight, None, *self.options)), given, weight


SHAPES = [
    Shape(2, 16, 32, 3, padding=1), Shape(2, 16, 16, 3, stride=2, padding=1, groups=16, extent=13),
    Shape(2, 16, 32, 1), Shape(2, 16, 32, 1, stride=2), Shape(2, 3, 16, 7, stride=2, padding=3),
    Shape(2, 8, 8, 3, padding=2, dilation=2), Shape(2, 16, 8, 2, stride=2, is_transposed=True),
    Shape(2, 16, 32, 3, padding=1, groups=4), Shape(1, 8, 8, 3, padding=1, extent=40),
    Shape(3, 4, 8, 3, padding=1, extent=6), Shape(2, 64, 64, 3, padding=1, extent=2), Shape(2, 1, 1, 3, extent=5),
]  # fmt: skip


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last], ids=["plain", "channels last"])
@pytest.mark.thorough("64", "bfloat")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_one_by_one_have_the_bits_of_all_at_once(
    shape: Shape, dtype: torch.dtype, layout: torch.memory_format
) -> None:
    drawn = gradient, given, weight = shape.drawn(dtype, layout)
    rest = ([shape.outputs], *shape.options)
    together = aten.convolution_backward(*drawn, *rest, [True, True, True])
    of_parameters = aten.convolution_backward(*drawn, *rest, [False, True, True])
    of_input, _, _ = aten.convolution_backward(*drawn, *rest, [True, False, False])
    found = [of_input, *of_parameters[1:]]
    if shape.groups == 1 or layout is torch.contiguous_format:
        found.append(convolution_input_gradient(gradient, list(given.shape), weight, *shape.options)[0])
    for one, expected in zip(found, (*together, together[0]), strict=False):
        assert torch.equal(one, expected)
        assert one.stride() == expected.stride()


class Images(nn.Module):
    """Convolutions and ReLUs as in VGG, on a few pixels."""

    def __init__(self, groups: int = 1) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([
            nn.Conv2d(4, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=groups), nn.Conv2d(8, 8, 3, padding=1)
        ])  # fmt: skip

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        for convolution in self.convolutions:
            image = functional.relu(convolution(image))
        return image.square().sum()


class Sum(nn.Module):
    def forward(self, found: torch.Tensor) -> torch.Tensor:
        return found.square().sum()


def variants(model: nn.Module, image: torch.Tensor) -> list[dict[str, tuple[int, ...]]]:
    """What each operator of a convolution's gradient needs of the forward pass, by its name."""
    graph = capture(model, (image,)).graph
    return [
        {variant.name: variant.needs for variant in node.variants}
        for node in graph.backward
        if "convolution" in node.op
    ]


def test_parameters_come_first_and_the_inputs_gradient_can_do_without_the_input() -> None:
    found = variants(Images(), torch.randn(2, 4, 8, 8))
    assert [set(names) for names in found] == 2 * [{""}, {"", "from the gradient"}] + [{""}]
    for of_parameters, of_input in zip(found[::2], found[1::2], strict=False):
        assert of_parameters[""] == of_input[""]
        assert len(of_input[""]) == 1
        assert of_input["from the gradient"] == ()


def test_groups_that_lie_with_channels_last_keep_the_input() -> None:
    image = torch.randn(2, 4, 8, 8).to(memory_format=torch.channels_last)
    found = variants(Images(groups=4).to(memory_format=torch.channels_last), image)
    assert [len(names) for names in found] == [1, 2, 1, 1, 1]


def test_frozen_weights_leave_one_operator_that_needs_nothing() -> None:
    model = Images()
    model.convolutions[1].requires_grad_(False)
    found = variants(model, torch.randn(2, 4, 8, 8))
    assert [set(names) for names in found] == [{""}, {"", "from the gradient"}, {"", "from the gradient"}, {""}]


def least_bytes(model: nn.Module, image: torch.Tensor) -> tuple[int, int]:
    """The least budget that is proven to be needed, and one for which a plan is found."""
    graph = profile(capture(model, (image,)), repeats=1).graph
    details = gapless.solve(Problem(graph, 1), SolveOptions(threads=1, gap=0.0)).details
    return details["least_budget_bound_bytes"], details["least_budget_found_bytes"]


@pytest.mark.thorough
def test_a_step_fits_where_it_is_proven_not_to_with_gradients_together(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), Sum()]
    model, image = nn.Sequential(*layers), torch.randn(4, 3, 48, 48)
    _, fits = least_bytes(model, image)
    monkeypatch.setattr(rewrites, "split_convolutions", lambda *_: None)
    needed, _ = least_bytes(model, image)
    assert fits < 0.9 * needed


@pytest.mark.parametrize(
    "make", [Images, lambda: nn.Sequential(nn.ConvTranspose2d(4, 6, 3, 2), nn.Conv2d(6, 4, 3), Sum())]
)
@pytest.mark.thorough("Images")
def test_steps_within_little_memory_have_eagers_bits(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model, image = make(), torch.randn(2, 4, 16, 16)
    step = profile(capture(model, (image,)), repeats=1)
    least = gapless.solve(Problem(step.graph, 1), SolveOptions(threads=1, gap=0.0)).details["least_budget_found_bytes"]
    planned = plan(step, Problem(step.graph, least), SolveOptions(threads=1, gap=0.0))
    train = run(planned, model, report=lambda _: None)
    train(image)
    assert train.difference is not None
    assert train.difference.is_equal
