"""Descent: how rows, with what the optimiser keeps for each, are updated by their gradients."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.profiles.traces.trace_question import state_values
from gapless.torch.embeddings.optimizers import stepped
from gapless.torch.library import Tensor

__all__ = ["Descent"]


@dataclass
class Descent:
    """How rows are updated. `step_size` may be changed between batches."""

    optimizer: str
    step_size: float
    dimension: int

    @property
    def width(self) -> int:
        """Values of a row and its state."""
        return self.dimension + state_values(self.optimizer, self.dimension)

    def step(self, rows: Tensor, gradient: Tensor, batch: int) -> Tensor:
        """Rows and their state after a step."""
        return stepped(self.optimizer, rows, gradient, self.step_size, batch + 1)
