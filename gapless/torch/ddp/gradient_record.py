"""What is recorded of gradients by layer and epoch: what modes spoil, norms, ratios of mean to deviation."""

from __future__ import annotations

from typing import Any

from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.compressors import Bucket, PowerSgd, compressor_of
from gapless.torch.ddp.hook import returned
from gapless.torch.ddp.training import Variant
from gapless.torch.library import torch

__all__ = ["GradientRecord", "left_behind"]


class GradientRecord:
    """Columns of a `CompressionTrace` in the making: `error`, `norm` and `deviation_ratio`, lists by epoch and layer.

    Of each epoch, `samples` steps evenly apart are looked at; norms are of the sum of all steps' gradients, which are
    those that the optimiser is about to take.
    """

    def __init__(self, model: Any, variant: Variant, steps: int, samples: int) -> None:
        parameters = trainable(model)
        self._parameters = [parameters[name] for name in variant.parameters]
        self._modes, self._measured = variant.recorded, set(variant.measured)
        self._looks = {(2 * k + 1) * steps // (2 * min(samples, steps)) for k in range(min(samples, steps))}
        self._memory: list[dict[str, dict[str, Any]]] = [{} for _ in self._parameters]
        self._number = 0
        self._begin()
        self._columns: dict[str, list[Any]] = {"error": [], "norm": [], "deviation_ratio": []}

    def _begin(self) -> None:
        self._at, self._looked = 0, 0
        self._sums = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._errors = [[0.0] * len(self._modes) for _ in self._parameters]
        self._ratios = [0.0] * len(self._parameters)

    def step(self) -> None:
        """Look at the gradients of a step."""
        is_looked = self._at in self._looks
        for layer, parameter in enumerate(self._parameters):
            gradient = parameter.grad.detach()
            self._sums[layer] += gradient
            if is_looked:
                self._ratios[layer] += _deviation_ratio(gradient)
                for mode, error in enumerate(self._spoiled(gradient, layer)):
                    self._errors[layer][mode] += error
        self._at += 1
        self._looked += is_looked

    def end_epoch(self) -> None:
        """Add the epoch's rows."""
        self._columns["error"].append([[error / self._looked for error in row] for row in self._errors])
        self._columns["norm"].append([float(total.norm()) for total in self._sums])
        self._columns["deviation_ratio"].append([ratio / self._looked for ratio in self._ratios])
        self._begin()

    @property
    def data(self) -> dict[str, Any]:
        """All columns."""
        return self._columns

    def _spoiled(self, gradient: Any, layer: int) -> list[float]:
        """The squared error of each mode: of low ranks the tail of the singular values, unless it is to be measured."""
        found, tails = [], None
        for mode in self._modes:
            compressor = compressor_of(mode)
            if isinstance(compressor, PowerSgd) and mode not in self._measured:
                if not compressor.is_factored(tuple(gradient.shape)):
                    found.append(0.0)
                    continue
                tails = _tails(gradient) if tails is None else tails
                found.append(float(tails[compressor.rank]) if compressor.rank < len(tails) else 0.0)
            else:
                self._number += 1
                found.append(left_behind(mode, gradient, self._memory[layer].setdefault(mode, {}), self._number))
        return found


def left_behind(mode: str, gradient: Any, memory: dict[str, Any], step: int = 0) -> float:
    """The squared norm of what a worker alone would not have sent of a gradient in a mode; `memory`: of that mode."""
    bucket = Bucket(gradient.reshape(-1).clone(), [tuple(gradient.shape)], 0, 1, 0, step, memory)
    exchange = compressor_of(mode).exchange(bucket)
    message = next(exchange)
    while not message.is_last:
        message = exchange.send(_alone(message))
    mean = returned(exchange, _alone(message))
    return float((gradient.reshape(-1) - mean.reshape(-1)).double().square().sum())


def _alone(message: Any) -> Any:
    """What arrives where there is one rank."""
    payload = message.payload
    return payload if message.collective == "all_reduce" else payload.view(1, -1)


def _tails(gradient: Any) -> Any:
    """Of the gradient as a matrix: `[r]` is the squared error of its best approximation of rank r."""
    squares = torch.linalg.svdvals(gradient.reshape(gradient.shape[0], -1).double()).square()
    return squares.flip(0).cumsum(0).flip(0)


def _deviation_ratio(gradient: Any) -> float:
    """|mean| over standard deviation of the entries, 0 where they are all equal."""
    deviation = float(gradient.double().std(correction=0))
    return abs(float(gradient.double().mean())) / deviation if deviation else 0.0
