"""Ops are traced as eager runs them: the same ops, the same bits, and no more memory.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch_models import cases
from torch_steps import keep_all, left_by_eager, left_by_plan

from gapless.errors import InputError
from gapless.torch.capture.graph import capture
from gapless.torch.capture.joint import trace_joint

IMAGE, LINE, VOLUME = (2, 3, 8, 8), (2, 3, 8), (2, 3, 4, 4, 4)


def resized(mode: str, **options: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda given: functional.interpolate(given, scale_factor=1.7, mode=mode, **options)


def sampled(mode: str, padding: str) -> Callable[[torch.Tensor], torch.Tensor]:
    def sample(given: torch.Tensor) -> torch.Tensor:
        places = given.detach()[:, :2].permute(0, 2, 3, 1)
        return functional.grid_sample(given, places, mode=mode, padding_mode=padding, align_corners=False)

    return sample


OPS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], tuple[int, ...]]] = {
    "linear": (resized("linear"), LINE),
    "bilinear": (resized("bilinear"), IMAGE),
    "bilinear, corners": (resized("bilinear", align_corners=True), IMAGE),
    "bilinear, antialiased": (resized("bilinear", antialias=True), IMAGE),
    "bicubic": (resized("bicubic"), IMAGE),
    "bicubic, antialiased": (resized("bicubic", antialias=True), IMAGE),
    "trilinear": (resized("trilinear"), VOLUME),
    "nearest, 1 dimension": (resized("nearest"), LINE),
    "nearest": (resized("nearest"), IMAGE),
    "nearest, 3 dimensions": (resized("nearest"), VOLUME),
    "nearest-exact": (resized("nearest-exact"), IMAGE),
    "nearest-exact, 3 dimensions": (resized("nearest-exact"), VOLUME),
    "area": (resized("area"), IMAGE),
    "grid, bilinear": (sampled("bilinear", "zeros"), IMAGE),
    "grid, bicubic": (sampled("bicubic", "border"), IMAGE),
    "grid, nearest": (sampled("nearest", "reflection"), IMAGE),
    "adaptive average": (lambda given: functional.adaptive_avg_pool2d(given, 3), IMAGE),
    "adaptive average of all": (lambda given: functional.adaptive_avg_pool2d(given, 1), IMAGE),
    "adaptive maximum": (lambda given: functional.adaptive_max_pool2d(given, 3), IMAGE),
    "hardshrink": (functional.hardshrink, IMAGE),
    "softshrink": (functional.softshrink, IMAGE),
    "matmul of three dimensions": (lambda given: given @ given[0].transpose(-1, -2), (2, 6, 5)),
    "multi margin": (lambda given: functional.multi_margin_loss(given, given.detach().argmin(1)), (6, 5)),
    "reflected": (lambda given: functional.pad(given, (2, 1, 2, 1), mode="reflect"), IMAGE),
    "transform of windows": (
        lambda given: torch.view_as_real(torch.stft(given, 16, window=torch.ones(16), return_complex=True)), (64,),
    ),
}  # fmt: skip
UNCOMMON = frozenset({"aten.slice_scatter", "aten.select_scatter", "aten.copy", "aten.diagonal_scatter"})
"""What takes the place of writing into a part of a tensor."""


class Applied(nn.Module):
    """A function of a parameter, with a loss."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor], shape: tuple[int, ...]) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.randn(shape)), function

    def forward(self, factor: torch.Tensor) -> torch.Tensor:
        return self.function(self.weight * factor).pow(2).mean()


class Recorded(TorchDispatchMode):
    """The names of the ops that run, without the underscore of those in place."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(bare(func))
        return func(*args, **(kwargs or {}))


def bare(function: Any) -> str:
    return str(function).rpartition(".")[0].rstrip("_")


@pytest.mark.thorough(
    but=("linear]", "nearest-exact]", "grid, bilinear", "average]", "softshrink", "reflected", "transform")
)
@pytest.mark.parametrize("name", OPS)
def test_op_is_traced_as_eager_runs_it(name: str) -> None:
    torch.manual_seed(3)
    model, given = Applied(*OPS[name]), torch.full((), 1.5)
    with Recorded() as eager:
        model(given).backward()
    model.zero_grad()
    graph = trace_joint(model, (given,)).module.graph
    targets = [node.target for node in graph.nodes if node.op == "call_function"]
    traced = {bare(target) for target in targets if isinstance(target, torch._ops.OpOverload)}  # noqa: SLF001
    assert traced - UNCOMMON <= eager.names
    expected = left_by_eager(model, lambda its: its(given))
    found = left_by_plan(model, keep_all(capture(model, (given,))), given)
    assert found.differs_from(expected) == []
    weight_bytes = max(weight.nbytes for weight in model.parameters())  # its gradient comes before the input's
    assert found.peak_bytes <= expected.peak_bytes + weight_bytes


@pytest.mark.thorough(but=("1-RNN",))
@pytest.mark.parametrize("kind", ["RNN", "GRU"])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_layers_equal_eager(kind: str, directions: int) -> None:
    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = getattr(nn, kind)(4, 5, num_layers=2, batch_first=True, bidirectional=directions == 2)

        def forward(self, given: torch.Tensor) -> torch.Tensor:
            return self.layer(given)[0].pow(2).mean()

    model, given = Layer(), torch.randn(3, 6, 4)
    found = left_by_plan(model, keep_all(capture(model, (given,))), given)
    assert found.differs_from(left_by_eager(model, lambda its: its(given))) == []


def test_tracing_leaves_pytorch_as_it_was() -> None:
    op = torch.ops.aten.upsample_bilinear2d.vec
    before = dict(op.py_kernels)
    assert before  # what tracing would take otherwise
    trace_joint(Applied(*OPS["bilinear"]), (torch.ones(()),))
    assert op.py_kernels == before


def test_network_that_upsamples_takes_no_more_memory_than_eager() -> None:
    model, arguments = cases()["fcn"]
    expected = left_by_eager(model, lambda its: its(*arguments))
    step = capture(model, arguments)
    assert "aten.upsample_bilinear2d.default" in {node.op for node in step.graph.forward}
    found = left_by_plan(model, keep_all(step), *arguments)
    assert found.differs_from(expected) == []
    weight_bytes = max(weight.nbytes for weight in model.parameters())  # its gradient comes before the input's
    assert found.peak_bytes <= expected.peak_bytes + weight_bytes


# -- what can't be kept whole ------------------------------------------------------------------------------------------


def test_ops_that_check_their_result_are_islands() -> None:
    lines: list[str] = []
    inverse = Applied(lambda given: torch.linalg.inv(given @ given.t()), (4, 4))
    capture(inverse, (torch.ones(()),), report=lines.append)
    assert lines[0].startswith("torch.linalg.inv runs as an eager island: an op of the model checks its result")


def test_sparse_gradients_are_refused() -> None:
    layer = nn.Embedding(7, 3, sparse=True)
    with pytest.raises(InputError, match=r"makes a sparse tensor.*sparse=False"):
        capture(layer, (torch.tensor([1, 2]),), lambda found: found.pow(2).mean())
