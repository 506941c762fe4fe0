"""Training of planned models under DistributedDataParallel, in processes. Imports torch."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from gapless.torch import planned

__all__ = ["train"]

STEPS, WIDTH, LAYERS = 3, 512, 6


def deep() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.GELU())))


def train(rank: int, folder: Path) -> dict[str, Any]:
    """Losses and weights of eager's model and the planned one, and when gradients were there and buckets sent."""
    found: dict[str, Any] = {}
    eager = deep()
    for name, model in (
        ("eager", eager),
        ("planned", planned(copy.deepcopy(eager), "0.9x", report=lambda _: None)),
    ):
        wrapped = DistributedDataParallel(model, bucket_cap_mb=1)
        seen: list[str] = []
        for label, parameter in model.named_parameters():
            parameter.register_post_accumulate_grad_hook(lambda _, label=label, seen=seen: seen.append(label))

        def send(group, bucket, seen=seen):  # type: ignore[no-untyped-def]  # DDP takes its own types alone, no texts
            seen.append("sent")
            return allreduce_hook(group, bucket)

        wrapped.register_comm_hook(None, send)
        optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        for number in range(STEPS):
            optimiser.zero_grad()
            given = torch.randn(512, WIDTH, generator=torch.Generator().manual_seed(10 * number + rank))
            loss = (wrapped(given) - given).pow(2).mean()
            seen.clear()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        found[name] = losses, dict(model.state_dict()), list(seen)
    return found
