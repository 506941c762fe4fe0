"""What a trainer needs of a batch: rows, and where its examples look them up. Needs the extra `torch`."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.torch.library import torch

__all__ = ["Lookup"]


@dataclass(frozen=True)
class Lookup:
    """What a trainer needs of a batch.

    `rows`: a leaf tensor of the distinct rows that its examples use. `index`: int64 (own examples, tables), the place
    of each lookup in `rows`; of bags (n,), one after another, with `lengths`: int64 (own
    examples, tables). `batch_examples`: of all trainers, by which a sum of losses is divided to make the step that of
    the whole batch.
    """

    rows: torch.Tensor
    index: torch.Tensor
    batch_examples: int
    lengths: torch.Tensor | None = None

    def pooled(self) -> torch.Tensor:
        """The sum of each bag's rows, zeros for an empty one; (own examples, tables, dimension)."""
        if self.lengths is None:
            return torch.nn.functional.embedding(self.index, self.rows)
        offsets = torch.zeros(self.lengths.numel() + 1, dtype=torch.int64)
        torch.cumsum(self.lengths.reshape(-1), dim=0, out=offsets[1:])
        summed = torch.nn.functional.embedding_bag(self.index, self.rows, offsets, mode="sum", include_last_offset=True)
        return summed.reshape(*self.lengths.shape, -1)
