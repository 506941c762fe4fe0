"""A small DLRM: numbers through one stack, pairwise products with the embeddings, all of it through another."""

from __future__ import annotations

from gapless.torch.library import torch

__all__ = ["Dlrm"]

_WIDTH = 16


class Dlrm(torch.nn.Module):  # type: ignore[misc,unused-ignore]
    """A score an example, from so many numbers and an embedding from each table."""

    def __init__(self, numbers: int, tables: int, dimension: int) -> None:
        super().__init__()
        vectors, nn = tables + 1, torch.nn
        self.bottom = nn.Sequential(nn.Linear(numbers, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, dimension), nn.ReLU())
        self.top = nn.Sequential(
            nn.Linear(dimension + vectors * (vectors - 1) // 2, _WIDTH), nn.ReLU(), nn.Linear(_WIDTH, 1)
        )
        self.first, self.second = torch.tril_indices(vectors, vectors, -1)

    def forward(self, numbers: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """`numbers`: (examples, numbers); `pooled`: (examples, tables, dimension). Returns (examples,)."""
        dense = self.bottom(numbers)
        vectors = torch.cat([dense[:, None], pooled], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.first, self.second]
        scores: torch.Tensor = self.top(torch.cat([dense, products], dim=1))[:, 0]
        return scores
