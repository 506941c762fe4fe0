"""`torch.compile(model, backend="gapless")` with eager's kernels: eager's bits within a budget.

Without torch these tests are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.torch import Compiler
from gapless.torch.devices import measure_peak
from gapless.torch.run.events import planned_calls

CPU = torch.device("cpu")
RUNS = {"calls": 0}


@torch.library.custom_op("gapless_tests::counted", mutates_args=())
def counted(given: torch.Tensor) -> torch.Tensor:
    """Counts how often it runs, which no plan may see."""
    RUNS["calls"] += 1
    return given.cos()


counted.register_fake(torch.empty_like)
counted.register_autograd(
    lambda ctx, gradient: -gradient * ctx.saved_tensors[0].sin(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Counting(nn.Module):
    """A layer around the operator that counts."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(32, 128), nn.Linear(128, 32)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(counted(self.first(given).sigmoid()).square())


def net() -> nn.Module:
    """Batch norm, activations in place, dropout before and after products."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 8, 3, padding=1)]
    for activation in (nn.ReLU(inplace=True), nn.GELU(), nn.Sigmoid()):
        layers += [nn.BatchNorm2d(8), activation, nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*layers, nn.Dropout(0.2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 4))


def images(rows: int = 8) -> torch.Tensor:
    return torch.randn(rows, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def compiled(model: nn.Module, budget: str) -> tuple[Callable[..., torch.Tensor], Compiler]:
    torch.compiler.reset()
    compiler = Compiler(budget, inductor=False, gap=0.3, report=lambda _: None)
    return torch.compile(model, backend=compiler), compiler


def found(model: nn.Module, call: Callable[..., torch.Tensor], given: torch.Tensor) -> list[torch.Tensor]:
    """Output, gradients, buffers, and what is drawn next."""
    buffers = [buffer.clone() for buffer in model.buffers()]
    model.zero_grad(set_to_none=True)
    torch.manual_seed(1)
    output = call(given)
    output.square().sum().backward()
    after = [*(p.grad for p in model.parameters() if p.grad is not None), *(b.clone() for b in model.buffers())]
    with torch.no_grad():
        for buffer, value in zip(model.buffers(), buffers, strict=True):
            buffer.copy_(value)
    return [output.detach(), *after, torch.rand(1)]


def assert_same(one: list[torch.Tensor], other: list[torch.Tensor]) -> None:
    assert len(one) == len(other)
    assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_gradients_buffers_and_dropout_have_eagers_bits_and_the_peak_keeps_to_the_plan() -> None:
    model = net()
    expected = found(model, model, images())
    call, compiler = compiled(model, "0.75x")
    assert_same(found(model, call, images()), expected)
    (plan,) = compiler.plans
    again = [event.operator.name for event in planned_calls(plan) if not event.is_first]
    assert again
    model.zero_grad(set_to_none=True)
    peak_bytes, _ = measure_peak(lambda: call(images()).square().sum().backward(), CPU)
    assert peak_bytes <= plan.peak_bytes + 4096  # the loss outside


@pytest.mark.thorough
def test_batch_norm_that_runs_again_leaves_its_statistics_alone() -> None:
    model = net()
    expected = found(model, model, images())
    again = set[str]()
    for budget in ("0.9x", "0.8x", "0.7x", "0.6x", "0.5x"):
        call, compiler = compiled(model, budget)
        assert_same(found(model, call, images()), expected)
        again |= {event.operator.name for event in planned_calls(compiler.plans[0]) if not event.is_first}
    assert any("batch_norm" in name for name in again)


@pytest.mark.thorough
def test_a_share_that_is_too_little_takes_the_least_and_says_so() -> None:
    lines: list[str] = []
    torch.compiler.reset()
    compiler = Compiler("0.01x", inductor=False, report=lines.append)
    torch.compile(net(), backend=compiler)(images()).sum().backward()
    assert lines[0].endswith("the least that was found")


def test_dropout_that_is_computed_again_drops_the_same() -> None:
    torch.manual_seed(0)
    blocks = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.Dropout(0.3), nn.Sigmoid())]
    model = nn.Sequential(*blocks, nn.Linear(32, 2))
    given = torch.randn(256, 32)
    expected = found(model, model, given)
    call, compiler = compiled(model, "0.8x")
    assert_same(found(model, call, given), expected)
    again = [event.operator.name for event in planned_calls(compiler.plans[0]) if not event.is_first]
    assert any("dropout" in name for name in again)


@pytest.mark.thorough
def test_a_last_batch_of_another_size_and_accumulation_have_eagers_bits() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 4))
    call, compiler = compiled(model, "0.8x")
    for rows in (32, 24, 16):
        given = torch.randn(rows, 16)
        assert_same(found(model, call, given), found(model, model, given))
    assert len(compiler.plans) == 2  # the second is for any size


def test_an_operator_that_may_have_effects_runs_once() -> None:
    torch.manual_seed(0)
    model, given = Counting(), torch.randn(256, 32)
    expected = found(model, model, given)
    call, compiler = compiled(model, "0.9x")
    RUNS["calls"] = 0
    assert_same(found(model, call, given), expected)
    again = [event.operator.name for event in planned_calls(compiler.plans[0]) if not event.is_first]
    assert RUNS["calls"] == 1
    assert again  # other operators run twice


def test_too_small_a_budget_says_the_least() -> None:
    call, _ = compiled(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), "1")
    with pytest.raises(Exception, match="every plan needs at least"):
        call(torch.randn(4, 2))


def test_an_unknown_option_names_the_closest() -> None:
    if "gapless" not in entry_points(group="torch_dynamo_backends").names:
        pytest.skip("installed before there was a backend; pip install -e . again")
    torch.compiler.reset()
    with pytest.raises(Exception, match="did you mean 'budget'"):
        torch.compile(nn.Linear(2, 2), backend="gapless", options={"budgte": "0.5x"})(torch.randn(2, 2))
