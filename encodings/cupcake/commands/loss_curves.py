"""Loss against seconds of the strategies that trained, and how long each took to a loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from gapless.units import format_seconds

if TYPE_CHECKING:
    from gapless.torch.ddp.comparison import Measured

__all__ = ["Curve", "TimesToLoss", "curve_of", "times_to_loss"]


@dataclass(frozen=True)
class Curve:
    """A strategy's training. `seconds[k]`: when step k is through. `losses[k]`: the mean over each batch once, up to k.

    `reached_s`: when the loss in question is first reached, None where it isn't; `steps`: how many steps that takes.
    `held_out`: losses on what nobody trains on, `looked_s` seconds after the start, and the `accuracy` there, empty
    where targets aren't to be guessed.
    """

    name: str
    seconds: tuple[float, ...]
    losses: tuple[float, ...]
    reached_s: float | None = None
    steps: int | None = None
    looked_s: tuple[float, ...] = ()
    held_out: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()


@dataclass(frozen=True)
class TimesToLoss:
    """How long each strategy took to a loss; `of`: whose it is, in words."""

    loss: float
    of: str
    curves: tuple[Curve, ...]

    @property
    def text(self) -> str:
        """A line for each."""
        titles = f"{'steps':>6} {'time':>11} {'at the end':>10} {'held out':>9} {'accuracy':>8}"
        lines = [f"{f'to a loss of {self.loss:.4g}':<24} {titles}   ({self.of})"]
        for curve in self.curves:
            steps = "-" if curve.steps is None else str(curve.steps)
            time = "not reached" if curve.reached_s is None else format_seconds(curve.reached_s)
            held_out = f"{curve.held_out[-1]:.4g}" if curve.held_out else "-"
            accuracy = f"{100 * curve.accuracy[-1]:.1f} %" if curve.accuracy else "-"
            found = f"{curve.losses[-1]:>10.4g} {held_out:>9} {accuracy:>8}"
            lines.append(f"{curve.name:<24} {steps:>6} {time:>11} {found}")
        return "\n".join(lines)


def curve_of(
    name: str, losses: Sequence[float], steps_s: Sequence[float], target: float | None = None, batches: int = 4
) -> Curve:
    """Of losses and times of single steps; means are over as many steps as there have been, at most the `batches`."""
    seconds = tuple(accumulate(steps_s))
    means = tuple(
        sum(losses[max(0, step + 1 - batches) : step + 1]) / min(batches, step + 1) for step in range(len(losses))
    )
    # The first means are of fewer batches, so none of them says that all batches are that good.
    counted = range(min(batches, len(means)) - 1, len(means))
    at = None if target is None else next((step for step in counted if means[step] <= target), None)
    return Curve(name, seconds, means, None if at is None else seconds[at], None if at is None else at + 1)


def times_to_loss(measured: Sequence[Measured], loss: float | None, batches: int = 4) -> TimesToLoss:
    """How long all took to a loss; None stands for the greatest that one of them ends with, which all have reached.

    `batches`: of each rank, in turns.
    """
    of = "as asked for"
    if loss is None:
        ends = {each.name: _curve(each, None, batches).losses[-1] for each in measured}
        last = max(ends, key=lambda name: ends[name])
        loss, of = ends[last], f"{last} ends with it"
    return TimesToLoss(loss, of, tuple(_curve(each, loss, batches) for each in measured))


def _curve(found: Measured, target: float | None, batches: int) -> Curve:
    curve = curve_of(found.name, found.losses, found.train_s, target, batches)
    looked_s = tuple(curve.seconds[step - 1] for step in found.looked)
    return replace(curve, looked_s=looked_s, held_out=found.held_out, accuracy=found.accuracy)
