"""Models whose blocks follow plans under FSDP2, beside eager's, in processes. Imports torch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from gapless.options import SolveOptions
from gapless.torch import planned, planned_blocks

__all__ = ["ANY", "SETUPS", "WIDTH", "Block", "Setup", "Stack", "Trained", "of_whole_batch", "train_all", "trained"]

STEPS, WIDTH, WORDS, LAYERS = 3, 32, 50, 3
ANY = SolveOptions(gap=1.0)
"""Any plan will do."""


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.grow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH)
        self.shrink = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = given + self.shrink(nn.functional.gelu(self.grow(self.norm(given))))
        return output


class Stack(nn.Module):
    """Words in, scores of words out; blocks between."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.head = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.layers = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.embed(words)
        for layer in self.layers:
            hidden = layer(hidden)
        output: torch.Tensor = self.head(hidden)
        return output


@dataclass(frozen=True)
class Setup:
    """How a model is sharded. `is_late`: plans come after `fully_shard`; `is_whole`: the model is one part, with one
    plan; `budget`: of plans.
    """

    reshards: bool = True
    is_mixed: bool = False
    is_late: bool = False
    is_whole: bool = False
    micro_batches: int = 1
    budget: str = "0.7x"


SETUPS = {
    "plain": Setup(),
    "kept unsharded": Setup(reshards=False),
    "mixed precision": Setup(is_mixed=True, budget="0.8x"),
    "planned after": Setup(is_late=True),
    "accumulation": Setup(micro_batches=2),
    "one part": Setup(is_whole=True, is_late=True),
}


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    weights: dict[str, torch.Tensor]


def trained(model: Stack, setup: Setup, rank: int, ranks: int, is_planned: bool, cache: Path | None = None) -> Trained:
    """Train a model as a set-up says; the batch of a step is a rank's own."""
    if is_planned and not setup.is_late:
        _plan(model, setup, cache)
    mixed = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    policy = mixed if setup.is_mixed else MixedPrecisionPolicy()
    options: dict[str, Any] = {"mesh": init_device_mesh("cpu", (ranks,)), "reshard_after_forward": setup.reshards}
    for layer in () if setup.is_whole else model.layers:
        fully_shard(layer, mp_policy=policy, **options)
    fully_shard(model, mp_policy=policy, **options)
    if is_planned and setup.is_late:
        _plan(model, setup, cache)
    optimiser, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
    for step in range(STEPS):
        optimiser.zero_grad()
        for part in range(setup.micro_batches):
            loss = _loss(model, batch(step * setup.micro_batches + part, rank)) / setup.micro_batches
            loss.backward()
            losses.append(loss.item())
        optimiser.step()
    return Trained(losses, {name: parameter.full_tensor() for name, parameter in model.named_parameters()})


def _plan(model: Stack, setup: Setup, cache: Path | None) -> None:
    if setup.is_whole:
        planned(model, setup.budget, cache=cache, options=ANY, report=lambda _: None)
    else:
        planned_blocks(model, list(model.layers), setup.budget, cache=cache, options=ANY, report=lambda _: None)


def _loss(model: nn.Module, words: torch.Tensor) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch speaks of outputs that are views
        scores = model(words)
    return nn.functional.cross_entropy(scores.flatten(0, 1).float(), words.flatten())


def batch(number: int, rank: int) -> torch.Tensor:
    """The batch of a rank."""
    return torch.randint(WORDS, (8, 32), generator=torch.Generator().manual_seed(100 * number + rank))


def of_whole_batch(ranks: int) -> dict[str, torch.Tensor]:
    """The weights that one process has, eager, when it trains with the batches of all ranks as one."""
    model = Stack()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(STEPS):
        optimiser.zero_grad()
        _loss(model, torch.cat([batch(step, rank) for rank in range(ranks)])).backward()
        optimiser.step()
    return dict(model.named_parameters())


def train_all(rank: int, folder: Path) -> dict[str, Any]:
    """Of each set-up: eager's training, and the one with plans."""
    ranks = torch.distributed.get_world_size()
    return {
        name: tuple(
            trained(Stack(), setup, rank, ranks, is_planned, folder / f"plans{rank}") for is_planned in (False, True)
        )
        for name, setup in SETUPS.items()
    }
