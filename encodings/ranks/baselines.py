"""What people do: one mode throughout, the rules of Accordion and AdaQS, a few epochs spared, chance."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Mask
from gapless.encodings.ranks.parameters import Parameters
from gapless.encodings.ranks.problem import Problem
from gapless.model.knapsack import Choice, Items, Relaxation, front
from gapless.profiles.compression.control import critical_epochs
from gapless.profiles.compressors.method import FLOAT_BYTES

__all__ = [
    "RULES", "Baseline", "BaselineRow", "all_baselines", "baseline_rows", "best_at",
    "hand_written_epochs", "regret",
]  # fmt: skip

Ints = NDArray[np.int64]

_FEW_ITEMS = 1000
"""Of more, costs that are rounded up to a common unit leave more than Dantzig's rounding does."""


@dataclass(frozen=True)
class Baseline:
    """A rule's modes, int64, shape (E, L); what a rank sends in them, and what they spoil."""

    name: str
    modes: Ints
    sent_bytes: int
    error: float


def all_baselines(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> list[Baseline]:
    """The rules: those with a budget of data keep it, the others send what they send."""
    trace = problem.trace
    shape = (trace.epoch_count, trace.layer_count)
    found = {f"constant {trace.modes[mode]}": np.full(shape, mode) for mode in problem.by_cost}
    rules = {name: rule for name, rule in RULES.items() if rule is not _constant}
    found |= {name: rule(problem, data_bytes, parameters, seed) for name, rule in rules.items()}
    return [
        Baseline(name, problem.canonical(modes), problem.sent_bytes(modes), problem.spoiled(modes))
        for name, modes in found.items()
    ]


def regret(problem: Problem, baselines: list[Baseline], most_work: int) -> dict[str, float]:
    """By how much more each spoils than the best choice over epochs and layers at the same data, as a share of that.

    inf where that spoils nothing. The choice is exact where `most_work` allows, else the one of `best_at`, so
    that a true regret may be higher.
    """
    at = best_at(problem.items(range(problem.trace.epoch_count)), most_work)
    found = {}
    for each in baselines:
        choice = at(each.sent_bytes)
        least = each.error if choice is None else min(choice.error, each.error)
        found[each.name] = (each.error / least - 1 if least else np.inf) if each.error > least else 0.0
    return found


class BaselineRow(TypedDict):
    """A rule beside a plan, in plain values; `regret`: None where the best choice spoils nothing."""

    name: str
    sent_floats: float
    error: float
    regret: float | None


def baseline_rows(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> list[BaselineRow]:
    """All rules, with their regret."""
    rules = all_baselines(problem, data_bytes, parameters, seed)
    lost = regret(problem, rules, parameters.regret_work)
    return [
        {"name": each.name, "sent_floats": each.sent_bytes / FLOAT_BYTES, "error": each.error,
         "regret": None if math.isinf(lost[each.name]) else lost[each.name]}
        for each in rules
    ]  # fmt: skip


def best_at(items: Items, most_work: int) -> Callable[[float], Choice | None]:
    """The best choice within any budget: the dynamic programme's; of more items than that does exactly, Dantzig's."""
    known = front(items, most_work)
    return known.at if known.is_exact or len(items) <= _FEW_ITEMS else Relaxation(items).at


# -- the rules ---------------------------------------------------------------------------------------------------------


def _constant(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """The mode that sends most of those that the budget allows throughout."""
    sent = problem.cost.sum(axis=(0, 1))
    return np.full(
        problem.cost.shape[:2], max(problem.by_cost, key=lambda mode: (sent[mode] <= data_bytes, sent[mode]))
    )


def accordion(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """Accordion (Algorithm 1): a layer has the mode that sends most while its phase is critical, else that with least.

    Every `detection_epochs` epochs a phase is critical where the norm of the epoch's gradient has changed by a share of
    `detection_threshold` since the last look; it is after a decay of the learning rate, and before two looks.
    """
    trace, (high, low) = problem.trace, (problem.by_cost[0], problem.by_cost[-1])
    return np.where(critical_epochs(trace.norm, trace.learning_rate, parameters.detection), low, high)


def _reversed(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """Accordion with its two modes swapped: what the paper says can't be made up for later."""
    high, low = problem.by_cost[0], problem.by_cost[-1]
    return np.where(accordion(problem, data_bytes, parameters, seed) == low, high, low)


def hand_written_epochs(learning_rate: Floats, first: int, after_decay: int) -> Mask:
    """The epochs of a hand-written schedule that count as critical: the first ones, and some after each decay."""
    critical = np.arange(len(learning_rate)) < first
    for epoch in np.flatnonzero(learning_rate[1:] < learning_rate[:-1]) + 1:
        critical[epoch : epoch + after_decay] = True
    return critical


def _hand_written(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """The mode that sends most in the first epochs and after decays, else the one that sends least."""
    rates = problem.trace.learning_rate
    critical = hand_written_epochs(rates, parameters.hand_first_epochs, parameters.hand_decay_epochs)
    column = np.where(critical, problem.by_cost[-1], problem.by_cost[0])
    return np.repeat(column[:, None], problem.trace.layer_count, axis=1)


def _hand_written_reversed(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """The same with both modes swapped."""
    high, low = problem.by_cost[0], problem.by_cost[-1]
    return np.where(_hand_written(problem, data_bytes, parameters, seed) == low, high, low)


def adaqs(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """AdaQS: from the mode that sends least on, the next one whenever a layer's ratio of mean to deviation has fallen
    by a share of `deviation_drop`.
    """
    trace, order = problem.trace, np.array(problem.by_cost)
    place, reference = np.zeros(trace.layer_count, dtype=np.int64), trace.deviation_ratio[0].copy()
    modes = np.full((trace.epoch_count, trace.layer_count), order[0])
    for epoch in range(1, trace.epoch_count):
        now = trace.deviation_ratio[epoch - 1]
        fell = now <= (1 - parameters.deviation_drop) * reference
        place = np.minimum(place + fell, len(order) - 1)
        reference = np.where(fell, now, reference)
        modes[epoch] = order[place]
    return modes


def _first_epochs(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """The mode that sends most in as many of the first epochs as the budget allows, then the one that sends least."""
    return _spared(problem, data_bytes, range(problem.trace.epoch_count))


def _last_epochs(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """The same with the last epochs."""
    return _spared(problem, data_bytes, range(problem.trace.epoch_count - 1, -1, -1))


def _spared(problem: Problem, data_bytes: int, epochs: range) -> Ints:
    high, low = problem.by_cost[0], problem.by_cost[-1]
    modes = np.full(problem.cost.shape[:2], high)
    left = data_bytes - problem.sent_bytes(modes)
    more = (problem.cost[:, :, low] - problem.cost[:, :, high]).sum(axis=1)
    for epoch in epochs:
        left -= int(more[epoch])
        if left < 0:
            break
        modes[epoch] = low
    return modes


def _random(problem: Problem, data_bytes: int, parameters: Parameters, seed: int) -> Ints:
    """Layers and epochs in a random order, each in a random one of the modes that the budget still allows."""
    generator, (epochs, layers, count) = np.random.default_rng(seed), problem.cost.shape
    modes = np.full((epochs, layers), problem.by_cost[0])
    left = data_bytes - problem.sent_bytes(modes)
    for item in generator.permutation(epochs * layers).tolist():
        epoch, layer = divmod(item, layers)
        mode = int(generator.integers(count))
        more = int(problem.cost[epoch, layer, mode] - problem.cost[epoch, layer, modes[epoch, layer]])
        if more <= left:
            modes[epoch, layer], left = mode, left - more
    return modes


RULES: dict[str, Callable[[Problem, int, Parameters, int], Ints]] = {
    "accordion": accordion,
    "adaqs": adaqs,
    "constant": _constant,
    "first-epochs": _first_epochs,
    "hand-written": _hand_written,
    "hand-written-reversed": _hand_written_reversed,
    "last-epochs": _last_epochs,
    "random": _random,
    "reversed": _reversed,
}
"""By name: what makes modes of the problem, the bytes that may be sent, the parameters and a seed."""
