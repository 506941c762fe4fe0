"""Models whose steps have many operators, large or small, and the arguments of a call; each returns its loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional
from torch_models import Bert, Case, Gpt, ResNet, UNet

__all__ = ["MODELS", "made"]

WORDS = 1000


class Scan(nn.Module):
    """Two blocks as Mamba's, with their scan over time written out: some 4,000 small operators."""

    def __init__(self, width: int = 128, state: int = 8) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.blocks = nn.ModuleList([ScanBlock(width, state) for _ in range(2)])

    def forward(self, word: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = self.words(word)
        for block in self.blocks:
            found = found + block(found)
        return functional.cross_entropy(self.head(found).flatten(0, 1), target.flatten())


class ScanBlock(nn.Module):
    """A selective state space."""

    def __init__(self, width: int, state: int) -> None:
        super().__init__()
        self.norm, self.inner, self.outer = nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.Linear(width, width)
        self.along = nn.Conv1d(width, width, 4, padding=3, groups=width)
        self.mixed, self.span = nn.Linear(width, 2 * state), nn.Linear(width, width)
        self.decay, self.direct = nn.Parameter(torch.randn(width, state)), nn.Parameter(torch.ones(width))

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        found, gate = self.inner(self.norm(given)).chunk(2, -1)
        found = functional.silu(self.along(found.transpose(1, 2))[..., : found.shape[1]].transpose(1, 2))
        into, out = self.mixed(found).chunk(2, -1)
        span = functional.softplus(self.span(found)).unsqueeze(-1)
        kept, added = torch.exp(span * -self.decay.exp()), span * found.unsqueeze(-1) * into.unsqueeze(2)
        state, made = torch.zeros_like(added[:, 0]), []
        for time in range(found.shape[1]):
            state = kept[:, time] * state + added[:, time]
            made.append((state * out[:, time].unsqueeze(1)).sum(-1))
        return self.outer((torch.stack(made, 1) + found * self.direct) * functional.silu(gate))


class Recurrent(nn.Module):
    """Two layers of GRU cells, written out."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, width), nn.Linear(width, WORDS)
        self.cells = nn.ModuleList([nn.GRUCell(width, width) for _ in range(2)])

    def forward(self, word: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = list(self.words(word).unbind(1))
        for cell in self.cells:
            state, made = torch.zeros_like(found[0]), []
            for each in found:
                state = cell(each, state)
                made.append(state)
            found = made
        return functional.cross_entropy(self.head(torch.stack(found, 1)).flatten(0, 1), target.flatten())


class Dlrm(nn.Module):
    """Bags of embeddings, their products in pairs, and two perceptrons."""

    def __init__(self, tables: int = 8, rows: int = 2000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables)])
        self.bottom = nn.Sequential(nn.Linear(13, 256), nn.ReLU(), nn.Linear(256, width), nn.ReLU())
        inputs = width + (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(inputs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1))
        self.register_buffer("pairs", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        found = self.bottom(dense)
        parts = torch.stack([found, *(table(bag) for table, bag in zip(self.tables, sparse.unbind(1), strict=True))], 1)
        products = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        scores = self.top(torch.cat([found, products], 1)).squeeze(1)
        return functional.binary_cross_entropy_with_logits(scores, target)


def _words(rows: int, length: int) -> tuple[torch.Tensor, ...]:
    return torch.randint(WORDS, (rows, length)), torch.randint(WORDS, (rows, length))


MODELS: dict[str, Callable[[], Case]] = {
    "GPT, width 128": lambda: (Gpt(128, 4, 4, WORDS, 128), _words(8, 128)),
    "GPT, width 256": lambda: (Gpt(256, 4, 4, WORDS, 128), _words(8, 128)),
    "BERT, width 256": lambda: (Bert(256, 4, 4, WORDS, 128), _words(8, 128)),
    "UNet": lambda: (UNet(), (torch.randn(4, 3, 96, 96), torch.randint(4, (4, 96, 96)))),
    "ResNet-50": lambda: (ResNet(), (torch.randn(8, 3, 96, 96), torch.randint(1000, (8,)))),
    "scan": lambda: (Scan(), _words(4, 64)),
    "GRU cells": lambda: (Recurrent(), _words(32, 32)),
    "DLRM": lambda: (Dlrm(), (torch.randn(512, 13), torch.randint(2000, (512, 8, 20)), torch.rand(512).round())),
}


def made(name: str) -> Case:
    """A model in training, with its arguments."""
    torch.manual_seed(0)
    model, arguments = MODELS[name]()
    return model.train(), arguments
