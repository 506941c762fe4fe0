"""Optimisers of embedding rows, which change the rows that a batch uses and no others.

The same steps as `torch.optim.SGD`, `Adagrad` and `SparseAdam` take on sparse gradients; row-wise Adagrad keeps one sum
for a row, of the means of its squared gradients, as FBGEMM does. A row and its state stand side by side, so that they
move together. Needs the extra `torch`.
"""

from __future__ import annotations

import math

from gapless.io.record import check_known
from gapless.profiles.traces.trace_question import OPTIMIZERS, state_values
from gapless.torch.library import torch

__all__ = ["stepped", "with_state"]

_ADAGRAD_EPSILON, _ADAM_EPSILON = 1e-10, 1e-8
_MOMENTS = 0.9, 0.999


def with_state(optimizer: str, weights: torch.Tensor) -> torch.Tensor:
    """Rows (n, dimension) and, right of them, the state they begin with. Raises `InputError` for an unknown name."""
    return torch.cat([weights, weights.new_zeros((len(weights), state_values(optimizer, weights.shape[1])))], dim=1)


def stepped(
    optimizer: str, rows: torch.Tensor, gradient: torch.Tensor, step_size: float, step: int
) -> torch.Tensor:  # fmt: skip
    """The rows and their state after a step; `step`: how many batches there were with this one, from 1.

    Every operation rounds alone, wherever a row lies: one that is fused may round otherwise at the end of a vector
    register.
    """
    check_known("optimizer", optimizer, OPTIMIZERS)
    dimension = gradient.shape[1]
    weights, state = rows[:, :dimension], rows[:, dimension:]
    if optimizer == "sgd":
        return weights - gradient * step_size
    squares = gradient * gradient
    if optimizer == "adam":
        mean, square = state[:, :dimension], state[:, dimension:]
        mean = mean + (gradient - mean) * (1 - _MOMENTS[0])
        square = square + (squares - square) * (1 - _MOMENTS[1])
        unbiased = math.sqrt(1 - _MOMENTS[1] ** step) / (1 - _MOMENTS[0] ** step)
        weights = weights - mean / (square.sqrt() + _ADAM_EPSILON) * (step_size * unbiased)
        return torch.cat([weights, mean, square], dim=1)
    total = state + (squares if optimizer == "adagrad" else squares.mean(dim=1, keepdim=True))
    return torch.cat([weights - gradient / (total.sqrt() + _ADAGRAD_EPSILON) * step_size, total], dim=1)
