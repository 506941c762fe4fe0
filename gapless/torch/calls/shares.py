"""Which plan each block's call follows, so that all stay within one budget together.

Blocks run one after the other, and backwards in the opposite order. While one runs, those before it hold what they
keep, and those after it hold the gradients of their parameters.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gapless.torch.calls.choices import BlockPlan

__all__ = ["BlockCall", "least_peak", "least_time", "peak_of"]

_MOST_LABELS = 1000
"""Of the partial choices after each call, so many are kept at most; with fewer, the choice is exact."""


@dataclass(frozen=True)
class BlockCall:
    """A call of a block, and the plans that it may follow.

    `stays_bytes`: of the gradients of its parameters, what stays after its backward pass; `are_sharded`: that is a
    shard of them. `after_bytes`: what stays of later blocks'.
    """

    title: str
    choices: Sequence[BlockPlan]
    stays_bytes: int
    are_sharded: bool
    after_bytes: int

    def peak_bytes(self, choice: BlockPlan) -> int:
        """What is held at most while it runs, beside what earlier calls keep."""
        reduced = choice.end_bytes + self.stays_bytes if self.are_sharded else 0
        return max(choice.forward_bytes, max(choice.backward_bytes, reduced) + self.after_bytes)


@dataclass(frozen=True)
class _Label:
    kept_bytes: int
    cost: float
    number: int = -1
    before: _Label | None = None


def least_time(calls: Sequence[BlockCall], budget_bytes: int) -> list[int] | None:
    """For each call the number of the plan that it follows, so that all take the least time; None where none fit."""
    return _least(calls, budget_bytes, lambda call, choice, label: label.cost + choice.duration_s)


def least_peak(calls: Sequence[BlockCall]) -> int:
    """The least bytes within which there is a choice."""

    def peak(call: BlockCall, choice: BlockPlan, label: _Label) -> float:
        return max(label.cost, label.kept_bytes + call.peak_bytes(choice))

    numbers = _least(calls, 2**62, peak)
    assert numbers is not None
    return peak_of(calls, numbers)


def peak_of(calls: Sequence[BlockCall], numbers: Sequence[int]) -> int:
    """What a choice holds at most."""
    kept_bytes = peak_bytes = 0
    for call, number in zip(calls, numbers, strict=True):
        peak_bytes = max(peak_bytes, kept_bytes + call.peak_bytes(call.choices[number]))
        kept_bytes += call.choices[number].kept_bytes
    return peak_bytes


def _least(
    calls: Sequence[BlockCall], budget_bytes: int, cost: Callable[[BlockCall, BlockPlan, _Label], float]
) -> list[int] | None:
    labels = [_Label(0, 0.0)]
    for call in calls:
        grown = [
            _Label(label.kept_bytes + choice.kept_bytes, cost(call, choice, label), number, label)
            for label in labels
            for number, choice in enumerate(call.choices)
            if label.kept_bytes + call.peak_bytes(choice) <= budget_bytes
        ]
        labels = _best(grown)
    last = min(labels, key=operator.attrgetter("cost"), default=None)
    if last is None:
        return None
    numbers = []
    while last.before is not None:
        numbers.append(last.number)
        last = last.before
    return numbers[::-1]


def _best(labels: list[_Label]) -> list[_Label]:
    """Those than which no other keeps less and costs less; of too many, the cheapest of each range of kept bytes."""
    kept: list[_Label] = []
    for label in sorted(labels, key=lambda each: (each.kept_bytes, each.cost)):
        if not kept or label.cost < kept[-1].cost:
            kept.append(label)
    if len(kept) <= _MOST_LABELS:
        return kept
    least, span = kept[0].kept_bytes, kept[-1].kept_bytes - kept[0].kept_bytes + 1
    ranges = {(label.kept_bytes - least) * (_MOST_LABELS - 1) // span: label for label in kept}  # later ones cost less
    return [kept[0], *(label for label in ranges.values() if label is not kept[0])]
