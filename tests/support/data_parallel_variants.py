"""Planned models under DistributedDataParallel as people set it up, beside eager's, in processes. Imports torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from gapless.io.formats.ddp_buckets import DdpBuckets
from gapless.torch import planned
from gapless.torch.ddp import distribute

__all__ = ["IN_EAGERS_PLACES", "SETUPS", "WIDTH", "Setup", "Trained", "of_whole_batch", "train_all", "trained"]

STEPS, WIDTH, LAYERS, BATCH = 3, 256, 6, 64


class Deep(nn.Module):
    """A deep network; with `skips`, a layer that no call uses."""

    def __init__(self, skips: bool = False, layers: int = LAYERS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(
            *(layer for _ in range(layers) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH), nn.GELU()))
        )
        self.unused = nn.Linear(WIDTH, WIDTH) if skips else None

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.layers(given)
        return output


@dataclass(frozen=True)
class Setup:
    """How a model is wrapped. `micro_batches`: of a step, of which only the last synchronises; `hook`: of DDP."""

    options: dict[str, bool] = field(default_factory=dict)
    micro_batches: int = 1
    skips: bool = False
    layers: int = LAYERS
    bucket_cap_mb: float = 0.25
    hook: Callable[[DistributedDataParallel], None] | None = None
    modes: tuple[str, ...] = ()


def _fp16(ddp: DistributedDataParallel) -> None:
    ddp.register_comm_hook(None, fp16_compress_hook)


def _power_sgd(ddp: DistributedDataParallel) -> None:
    state = PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1)
    ddp.register_comm_hook(state, powerSGD_hook)


SETUPS = {
    "plain": Setup(),
    "a bucket a parameter": Setup(bucket_cap_mb=1e-5),
    "no_sync": Setup(micro_batches=3),
    "find_unused_parameters": Setup({"find_unused_parameters": True}, skips=True),
    "gradient_as_bucket_view": Setup({"gradient_as_bucket_view": True}),
    "static_graph": Setup({"static_graph": True}, skips=True),
    "fp16 hook": Setup(hook=_fp16),
    "PowerSGD hook": Setup(hook=_power_sgd, layers=3, bucket_cap_mb=25),  # one bucket: over gloo it mixes up several
    "fused buckets": Setup(modes=("plain", "topk:0.1", "fp16")),
}

IN_EAGERS_PLACES = ("a bucket a parameter", "find_unused_parameters")
"""Where gradients lie in buckets as eager's do, so that sums over four ranks add up in the same order."""


@dataclass(frozen=True)
class Trained:
    """`seen`: in the last step, a parameter's name where its gradient was there, and "sent" where a bucket was."""

    losses: list[float]
    weights: dict[str, torch.Tensor]
    seen: list[str]


def trained(model: nn.Module, setup: Setup, rank: int) -> Trained:
    """Train a model in DDP as a set-up says; the batch of a step is a rank's own."""
    wrapped, seen = _wrapped(model, setup), []
    for label, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, label=label: seen.append(label))
    if setup == SETUPS["plain"]:

        def send(group, bucket):  # type: ignore[no-untyped-def]  # DDP takes its own types alone, no texts
            seen.append("sent")
            return allreduce_hook(group, bucket)

        wrapped.register_comm_hook(None, send)
    optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for step in range(STEPS):
        optimiser.zero_grad()
        for part in range(setup.micro_batches):
            seen.clear()
            is_last = part + 1 == setup.micro_batches
            with nullcontext() if is_last else wrapped.no_sync():
                given = batch(step * setup.micro_batches + part, rank)
                loss = (wrapped(given) - given).pow(2).mean() / setup.micro_batches
                loss.backward()
            losses.append(loss.item())
        optimiser.step()
    return Trained(losses, {name: value.clone() for name, value in model.state_dict().items()}, list(seen))


def _wrapped(model: nn.Module, setup: Setup) -> DistributedDataParallel:
    if setup.modes:
        return distribute(model, fused(model, setup.modes), **setup.options)
    ddp = DistributedDataParallel(model, bucket_cap_mb=setup.bucket_cap_mb, **setup.options)
    if setup.hook is not None:
        setup.hook(ddp)
    return ddp


def fused(model: nn.Module, modes: tuple[str, ...]) -> DdpBuckets:
    """A fusion plan: the parameters in the order of their gradients, in as many buckets as there are modes."""
    parameters = dict(reversed(list(model.named_parameters())))
    count, each = len(parameters), -(-len(parameters) // len(modes))
    groups = tuple((first, min(first + each, count) - 1) for first in range(0, count, each))
    sizes = tuple(value.nbytes for value in parameters.values())
    return DdpBuckets("deep", tuple(parameters), sizes, groups, modes)


def batch(number: int, rank: int) -> torch.Tensor:
    """The batch of a rank."""
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(100 * number + rank))


def of_whole_batch(ranks: int) -> dict[str, torch.Tensor]:
    """The weights that one process has, eager, when it trains with the batches of all ranks as one."""
    model = Deep()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        optimiser.zero_grad()
        given = torch.cat([batch(step, rank) for rank in range(ranks)])
        (model(given) - given).pow(2).mean().backward()
        optimiser.step()
    return dict(model.state_dict())


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """Of each set-up: eager's training, and the planned model's."""
    found = {}
    for name, setup in SETUPS.items():
        eager = Deep(setup.skips, setup.layers)
        follows = planned(copy.deepcopy(eager), "0.9x", report=lambda _: None)
        found[name] = trained(eager, setup, rank), trained(follows, setup, rank)
    return found
