"""Training in DDP in two processes, as tests of plans in PyTorch need it. Imports torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from gapless.io.formats.ddp_buckets import read_ddp_buckets
from gapless.torch.ddp.buckets import actual_buckets, distribute
from gapless.torch.ddp.hook import HookState
from gapless.torch.ddp.measuring import measure_gradients, measure_hook

RANKS, ITERATIONS, STEP_SIZE = 2, 4, 0.05


class OutOfOrder(nn.Module):
    """Layers of unequal sizes, used in another order than they are registered in."""

    def __init__(self) -> None:
        super().__init__()
        self.third = nn.Linear(17, 13)
        self.first = nn.Linear(6, 29)
        self.second = nn.Linear(29, 17)
        self.scale = nn.Parameter(torch.ones(13))
        self.last = nn.Linear(13, 3, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.second(torch.relu(self.first(inputs))))
        return self.last(torch.tanh(self.third(hidden)) * self.scale)


READY_ORDER = (
    "last.weight", "scale", "third.bias", "third.weight", "second.bias", "second.weight", "first.bias", "first.weight",
)  # fmt: skip


def fresh_model() -> OutOfOrder:
    """The same weights in every process."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return OutOfOrder()


def batch(rank: int, iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets of one rank in one iteration."""
    generator = torch.Generator().manual_seed(100 * iteration + rank)
    return torch.randn(5, 6, generator=generator), torch.randn(5, 3, generator=generator)


def gradients_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the gradients, by name."""
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def step(model: nn.Module, gradients: dict[str, torch.Tensor]) -> None:
    """One step of gradient descent."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter -= STEP_SIZE * gradients[name]


@dataclass(frozen=True)
class Variant:
    """How to train: the fraction that top-k keeps of all buckets (None: as `modes` say, empty: DDP's own all-reduce),
    and DDP's options.
    """

    kept: float | None
    options: dict[str, Any]
    modes: tuple[str, ...] = ()


VARIANTS = {
    "plain": Variant(None, {}),
    "whole": Variant(1.0, {}),
    "sparse": Variant(0.1, {}),
    "sparse-views": Variant(0.1, {"gradient_as_bucket_view": True}),
    "static": Variant(1.0, {"static_graph": True}),
    "mixed": Variant(None, {}, ("powersgd:1", "plain", "topk:0.1")),
}


def train(variant: Variant, buckets: str) -> list[dict[str, Any]]:
    """For each iteration: the buckets and the averaged gradients."""
    rank = torch.distributed.get_rank()
    model = fresh_model()
    state = None if variant.kept is None else HookState(f"topk:{variant.kept}")
    ddp = distribute(model, replace(read_ddp_buckets(buckets), modes=variant.modes), state, **variant.options)
    seen = []
    for iteration in range(ITERATIONS):
        inputs, targets = batch(rank, iteration)
        ddp.zero_grad(set_to_none=True)
        output = ddp(inputs)
        used = actual_buckets(ddp)
        nn.functional.mse_loss(output, targets).backward()
        gradients = gradients_of(model)
        seen.append({"buckets": used, "gradients": gradients})
        step(model, gradients)
    return seen


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """All that the tests look at of one rank, with the `buckets.json` in a folder."""
    found: dict[str, Any] = {name: train(variant, str(folder / "buckets.json")) for name, variant in VARIANTS.items()}
    inputs, targets = batch(rank, 0)
    found["gradients"] = measure_gradients(
        fresh_model(), lambda model: nn.functional.mse_loss(model(inputs), targets), steps=3, warm_up=1
    )
    shapes = found["gradients"].shapes
    found["sent"] = {mode: measure_hook(mode, shapes, repeats=2) for mode in ("plain", "topk", "powersgd:1")}
    return found
