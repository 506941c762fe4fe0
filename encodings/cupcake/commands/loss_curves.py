"""Loss against seconds of the strategies that trained, and how long each took to a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.comparison import Measured

__all__ = ["Curve", "TimesToLoss", "curve_of", "times_to_loss"]

_WINDOW = 4
"""Steps that a loss is the mean over: each of a rank's batches once."""


@dataclass(frozen=True)
class Curve:
    """A strategy's training. `seconds[k]`: when step k is through. `losses[k]`: the mean of it and the three before.

    `reached_s`: when the loss in question is first reached, None where it isn't; `steps`: how many steps that takes.
    """

    name: str
    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    reached_s: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class TimesToLoss:
    """How long each strategy took to a loss; `of`: whose it is, in words."""

    loss: float
    of: str
    curves: tuple[Curve, ...]

    @property
    def text(self) -> str:
        """A line for each."""
        lines = [f"{f'to a loss of {self.loss:.4g}':<24} {'steps':>6} {'time':>10} {'at the end':>11}   ({self.of})"]
        for curve in self.curves:
            steps = "-" if curve.steps is None else str(curve.steps)
            time = "not reached" if curve.reached_s is None else format_seconds(curve.reached_s)
            lines.append(f"{curve.name:<24} {steps:>6} {time:>11} {curve.losses[-1]:>10.4g}")
        return "\n".join(lines)


def curve_of(name: str, losses: Sequence[float], steps_s: Sequence[float], target: float | None = None) -> Curve:
    """Of losses and times of single steps; means are over as many steps as there have been, at most four."""
    seconds = tuple(accumulate(steps_s))
    means = tuple(
        sum(losses[max(0, step + 1 - _WINDOW) : step + 1]) / min(_WINDOW, step + 1) for step in range(len(losses))
    )
    # The first means are of fewer batches, so none of them says that all batches are that good.
    counted = range(min(_WINDOW, len(means)) - 1, len(means))
    at = None if target is None else next((step for step in counted if means[step] <= target), None)
    return Curve(name, seconds, means, None if at is None else seconds[at], None if at is None else at + 1)


def times_to_loss(measured: Sequence[Measured], loss: float | None) -> TimesToLoss:
    """How long all took to a loss; None stands for the greatest that one of them ends with, which all have reached."""
    of = "as asked for"
    if loss is None:
        ends = {each.name: curve_of(each.name, each.losses, each.train_s).losses[-1] for each in measured}
        last = max(ends, key=lambda name: ends[name])
        loss, of = ends[last], f"{last} ends with it"
    return TimesToLoss(loss, of, tuple(curve_of(each.name, each.losses, each.train_s, loss) for each in measured))
