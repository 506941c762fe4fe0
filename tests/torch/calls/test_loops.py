"""Planned models in loops that swap, freeze, tie and step within: to eager's bits, or one line refuses.

Without torch these tests are skipped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="torch is not installed; pip install '.[torch]' in a checkout")

import torch
from torch import nn

from gapless.torch import planned, planned_blocks, unplanned


class Wide(nn.Module):
    """Convolutions whose gradients come in several segments, with their weights' before their inputs'."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(176, 176, 3, padding=1) for _ in range(2))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            given = nn.functional.gelu(layer(given)) + given
        return given.mean((2, 3))


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.Linear(6, 6))


def pair(make: Callable[[], nn.Module] = small) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    eager = make()
    return eager, planned(copy.deepcopy(eager), "1.0x", report=lambda _: None)


def same(one: nn.Module, other: nn.Module) -> bool:
    """Whether weights and gradients are."""
    pairs = list(zip(one.parameters(), other.parameters(), strict=True))
    gradients = [(a.grad, b.grad) for a, b in pairs]
    return all(torch.equal(*both) for both in pairs) and all(
        a is b if a is None or b is None else torch.equal(a, b) for a, b in gradients
    )


def step(model: nn.Module, given: torch.Tensor) -> None:
    model(given).pow(2).sum().backward()


def test_optimiser_that_steps_in_the_backward_pass_has_eagers_bits() -> None:
    eager, model = pair(Wide)
    given = torch.randn(2, 176, 4, 4)
    for its in (eager, model):
        optimisers = {each: torch.optim.SGD([each], lr=1e-3) for each in its.parameters()}

        def stepping(parameter: torch.Tensor, optimisers: dict[Any, Any] = optimisers) -> None:
            optimisers[parameter].step()
            optimisers[parameter].zero_grad()

        for parameter in its.parameters():
            parameter.register_post_accumulate_grad_hook(stepping)
        for _ in range(2):
            step(its, given)
    assert same(eager, model)
    (entry,) = model.forward._entries.values()  # noqa: SLF001
    assert len(entry.program.segments) > 1


def average(model: nn.Module) -> None:
    """Evaluate and step with averaged weights, and put the others back."""
    own = [each.detach().clone() for each in model.parameters()]
    for each in model.parameters():
        each.data.mul_(0.5)
    step(model, GIVEN)
    with torch.no_grad():
        model(GIVEN)
    for each, value in zip(model.parameters(), own, strict=True):
        each.data.copy_(value)


def tie(model: nn.Sequential) -> None:
    model[3].weight = model[2].weight


def freeze(model: nn.Sequential) -> None:
    model[2].requires_grad_(False)


def other_optimiser(model: nn.Module) -> None:
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        step(model, GIVEN)
        kind(model.parameters(), lr=0.1).step()


def load(model: nn.Module) -> None:
    model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()})


GIVEN = torch.randn(8, 6, generator=torch.Generator().manual_seed(3))
CHANGES = {average: 1, tie: 2, freeze: 2, other_optimiser: 1, load: 1}


@pytest.mark.thorough(but=("tie", "freeze", "average"))
@pytest.mark.parametrize(("change", "kinds"), CHANGES.items(), ids=lambda each: getattr(each, "__name__", ""))
def test_change_of_parameters_is_seen_at_the_next_call(change: Callable[[nn.Module], None], kinds: int) -> None:
    eager, model = pair()
    for its in (eager, model):
        step(its, GIVEN)
        change(its)
        its.zero_grad()
        step(its, GIVEN)
    assert same(eager, model)
    assert len(model.forward.plans) == kinds
    if change is freeze:
        assert model[2].weight.grad is None
        model[2].requires_grad_(True)
        step(model, GIVEN)
        assert len(model.forward.plans) == kinds  # the first serves again


def test_penalties_without_second_derivatives_have_eagers_bits() -> None:
    eager, model = pair()
    found = []
    for its in (eager, model):
        given = GIVEN.clone().requires_grad_()
        (slope,) = torch.autograd.grad(its(given).sum(), given)
        attacked = its((given + 0.1 * slope.sign()).detach().requires_grad_())
        (attacked.pow(2).sum() + attacked.abs().mean()).backward()
        found.append(slope)
    assert torch.equal(*found)
    assert same(eager, model)


def test_penalty_on_a_gradient_is_refused() -> None:
    _, model = pair()
    given = GIVEN.clone().requires_grad_()
    output = model(given).sum()
    with pytest.raises(RuntimeError, match=r"no gradients of its gradients \(create_graph=True\)"):
        torch.autograd.grad(output, given, create_graph=True)  # which autograd would take for a constant


def test_line_of_a_plan_says_what_it_does_not_hold() -> None:
    lines: list[str] = []
    planned(small(), "1.0x", report=lines.append)(GIVEN)
    assert lines[0].endswith("; 192 B of outputs included, and what a loss outside of the model makes of them not")


def in_blocks(model: nn.Module, budget: str, report: Callable[[str], None]) -> nn.Module:
    return planned_blocks(model, [model[0]], budget, report=report)


@pytest.mark.parametrize("plan", [planned, in_blocks])
def test_compiled_calls_of_a_planned_model_say_once_that_they_follow_no_plan(plan: Callable[..., nn.Module]) -> None:
    said: list[str] = []
    model = plan(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), budget="1.0x", report=said.append)
    torch.compiler.reset()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad():
        compiled(torch.randn(3, 6))
    assert not said
    for rows in (3, 4, 3):
        step(compiled, torch.randn(rows, 6))
    assert [line.partition(", and ")[0] for line in said] == ["torch.compile: a planned model is compiled"]
    assert unplanned(model) is model
