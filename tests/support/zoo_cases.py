"""What a model of the zoo is: a module, the arguments of a call, and a loss of what the call returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

__all__ = ["Case", "its_loss", "own_loss"]


def own_loss(made: torch.Tensor) -> torch.Tensor:
    """Of a model that returns its loss."""
    return made


def its_loss(made: Any) -> torch.Tensor:
    """Of a model that returns its loss among other things."""
    return made.loss


@dataclass(frozen=True)
class Case:
    """`loss`: a scalar of what `model(*arguments, **named)` returns."""

    model: torch.nn.Module
    arguments: tuple[Any, ...]
    loss: Callable[[Any], torch.Tensor]
    named: dict[str, Any] = field(default_factory=dict)

    @property
    def is_inside(self) -> bool:
        """Whether the model computes its loss, so that a plan knows all memory."""
        return self.loss in (own_loss, its_loss)
