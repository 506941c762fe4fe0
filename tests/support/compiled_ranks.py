"""Training of compiled models in processes: under DistributedDataParallel, and in shards. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from gapless.torch import Compiler

__all__ = ["WIDTH", "block", "deep", "train"]

STEPS, WIDTH, LAYERS, ROWS = 3, 64, 4, 32


def block() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH))


def deep() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(block() for _ in range(LAYERS)))


def train(rank: int, folder: Path) -> dict[str, Any]:
    """Losses and weights of eager's model and of compiled ones, and what each plan takes."""
    return {
        name: _trained(wrapped, model, rank)
        for name, (wrapped, model) in {
            "eager": _parallel(deep()),
            "inside": _compiled_inside(deep()),
            "outside": _compiled_outside(deep()),
            "eager shards": _sharded(deep(), None),
            "compiled shards": _sharded(deep(), "0.8x"),
        }.items()
    }


def _compiler(budget: str) -> Compiler:
    return Compiler(budget, inductor=False, report=lambda _: None)


def _parallel(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    return DistributedDataParallel(model), model


def _compiled_inside(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    return DistributedDataParallel(torch.compile(model, backend=_compiler("0.8x"))), model


def _compiled_outside(model: nn.Module) -> tuple[nn.Module, nn.Module]:
    return torch.compile(DistributedDataParallel(model), backend=_compiler("0.8x")), model


def _sharded(model: nn.Module, budget: str | None) -> tuple[nn.Module, nn.Module]:
    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    for part in model:
        if budget is not None:
            part.compile(backend=_compiler(budget))
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh), model


def _trained(wrapped: nn.Module, model: nn.Module, rank: int) -> tuple[list[float], dict[str, torch.Tensor]]:
    torch.compiler.reset()
    optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
    for number in range(STEPS):
        optimiser.zero_grad()
        torch.manual_seed(10 * number + rank)
        given = torch.randn(ROWS, WIDTH)
        loss = (wrapped(given) - given).pow(2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    whole = {name: value.full_tensor() if hasattr(value, "full_tensor") else value for name, value in _weights(model)}
    return losses, {name: value.detach().clone() for name, value in whole.items()}


def _weights(model: nn.Module) -> list[tuple[str, Any]]:
    return list(model.state_dict().items())
