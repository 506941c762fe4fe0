"""The dense parts of four recommendation models, small, with the layers of Table 5.2.

Each scores examples from their numbers, an embedding from each table, and the rows they look up. DeepFM has no batch
norms here: their means would be of each trainer's examples, not of the batch's. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from gapless.io.record import check_known
from gapless.torch.library import torch

__all__ = ["Inputs", "Shape", "dense_part"]

_WIDTH = 16
_CROSS_LAYERS = 2


@dataclass(frozen=True)
class Shape:
    """What a model is for: `numbers` of an example, `tables`, the values of a row, the `rows` of all tables."""

    numbers: int
    tables: int
    dimension: int
    rows: int


@dataclass(frozen=True)
class Inputs:
    """Of n examples: `numbers` (n, numbers), `pooled` (n, tables, dimension), and each lookup's row and example.

    `rows`, `examples`: int64, one for each lookup; rows are counted over all tables.
    """

    numbers: torch.Tensor
    pooled: torch.Tensor
    rows: torch.Tensor
    examples: torch.Tensor


class _Model(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """Scores (n,) from `Inputs`."""

    def __call__(self, inputs: Inputs) -> torch.Tensor:
        scores: torch.Tensor = super().__call__(inputs)
        return scores


class _Dlrm(_Model):
    """Numbers go through one stack, pairwise products with the embeddings through another."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        vectors = shape.tables + 1
        self.bottom = _stack(shape.numbers, _WIDTH, shape.dimension, last=torch.nn.ReLU)
        self.top = _stack(shape.dimension + vectors * (vectors - 1) // 2, _WIDTH, 1)
        self.first, self.second = torch.tril_indices(vectors, vectors, -1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        dense = self.bottom(inputs.numbers)
        vectors = torch.cat([dense[:, None], inputs.pooled], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.first, self.second]
        return self.top(torch.cat([dense, products], dim=1))[:, 0]


class _WideAndDeep(_Model):
    """A stack on the numbers; one linear layer on its output and the embeddings."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.deep = _stack(shape.numbers, _WIDTH, _WIDTH, last=torch.nn.ReLU)
        self.wide = torch.nn.Linear(_WIDTH + shape.tables * shape.dimension, 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        return self.wide(torch.cat([self.deep(inputs.numbers), inputs.pooled.flatten(1)], dim=1))[:, 0]


class _DeepAndCross(_Model):
    """A stack on the numbers; cross layers on its output and the embeddings, x0 (x w) + b + x; a stack on those."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        values = shape.dimension * (shape.tables + 1)
        self.bottom = _stack(shape.numbers, _WIDTH, shape.dimension, last=torch.nn.ReLU)
        self.cross = torch.nn.ModuleList([torch.nn.Linear(values, 1, bias=False) for _ in range(_CROSS_LAYERS)])
        self.biases = torch.nn.Parameter(torch.zeros(_CROSS_LAYERS, values))
        self.top = _stack(values, _WIDTH, 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        first = torch.cat([self.bottom(inputs.numbers), inputs.pooled.flatten(1)], dim=1)
        crossed = first
        for layer, bias in zip(self.cross, self.biases, strict=True):
            crossed = first * layer(crossed) + bias + crossed
        return self.top(crossed)[:, 0]


class _DeepFm(_Model):
    """A weight for each row, products of all pairs of embeddings, and a stack on the embeddings; numbers aren't used.

    The rows' weights are dense parameters of every trainer and synchronised whole, as in Table 5.2.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear = torch.nn.Parameter(torch.zeros(shape.rows, 1))
        self.bias = torch.nn.Parameter(torch.zeros(1))
        self.deep = _stack(shape.tables * shape.dimension, _WIDTH, 1)

    def forward(self, inputs: Inputs) -> torch.Tensor:
        weights = torch.nn.functional.embedding(inputs.rows, self.linear)[:, 0]
        first = weights.new_zeros(len(inputs.pooled)).index_add(0, inputs.examples, weights)
        squared_sum, sum_of_squares = inputs.pooled.sum(dim=1).square(), inputs.pooled.square().sum(dim=1)
        second = (squared_sum - sum_of_squares).sum(dim=1) / 2
        return self.bias + first + second + self.deep(inputs.pooled.flatten(1))[:, 0]


_MODELS: dict[str, Callable[[Shape], _Model]] = {
    "dlrm": _Dlrm,
    "wide-and-deep": _WideAndDeep,
    "deep-and-cross": _DeepAndCross,
    "deepfm": _DeepFm,
}


def dense_part(model: str, shape: Shape) -> _Model:
    """A model with drawn parameters. Raises `InputError` for a name that there isn't."""
    check_known("model", model, _MODELS)
    return _MODELS[model](shape)


def _stack(*widths: int, last: Callable[[], torch.nn.Module] | None = None) -> torch.nn.Sequential:
    """Fully connected layers with ReLU between them, and `last` behind."""
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(widths):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1], *([last()] if last else []))
