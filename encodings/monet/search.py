"""Simulated annealing over keep-sets: where the schedules come from."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from planwright.encodings.monet.keepset import Keeper, KeepSet, Outcome

__all__ = ["COLD", "HOT", "WARM", "Annealing", "Found"]

_OVERFLOW_SHARE = 0.05
"""Passing the budget by this share of it costs as much as a whole forward pass."""
HOT, WARM, COLD = 0.01, 0.003, 0.0002
"""Temperatures as shares of the forward pass: where a round starts, afresh or from a good plan, and where it ends."""
_KEEP, _DROP = 0.4, 0.65
"""Of the moves, the first 40 % change what is kept, up to 65 % what is dropped, and the rest a variant."""


@dataclass(frozen=True)
class Found:
    """A keep-set and what it comes to."""

    keep: KeepSet
    outcome: Outcome


class Annealing:
    """Rounds of annealing on one graph and budget; remembers the best keep-set that fits.

    `unit_s`: the time that temperatures and the price of overflow are relative to.
    """

    def __init__(self, keeper: Keeper, unit_s: float, seed: int) -> None:
        self._keeper = keeper
        self._unit_s = unit_s
        self._price = unit_s / (_OVERFLOW_SHARE * keeper.budget_bytes)
        self._random = np.random.default_rng(seed)
        graph = keeper.graph
        self._nodes = np.array(
            [k for k, node in enumerate(graph.forward) if node.creator is None and k != graph.loss], dtype=np.int64
        )
        self._choosers = np.array(
            [k for k, node in enumerate(graph.backward) if len(node.variants) > 1], dtype=np.int64
        )
        self._variants = [len(node.variants) for node in graph.backward]
        self.states = 0
        self.least_overflow_bytes = math.inf
        self.best: Found | None = None

    def look_at(self, keep: KeepSet) -> Found:
        """Evaluate a keep-set, and remember it if it is the best that fits."""
        found = Found(*self._keeper.assess(keep))
        self.states += 1
        self.least_overflow_bytes = min(self.least_overflow_bytes, found.outcome.overflow_bytes)
        fits = found.outcome.overflow_bytes <= 0
        if fits and (self.best is None or found.outcome.cost_s < self.best.outcome.cost_s):
            self.best = found
        return found

    def price_s(self, found: Found) -> float:
        """Cost, with a price on what passes the budget."""
        return found.outcome.cost_s + self._price * found.outcome.overflow_bytes

    def round(self, start: KeepSet, duration_s: float, stop: Callable[[], bool], hot: float = HOT) -> Found:
        """Anneal from `start` for `duration_s`, cooling down from `hot`, or until `stop()`; returns where it ended."""
        begin_s = time.monotonic()
        current = self.look_at(start)
        share = 0.0
        while share < 1.0 and duration_s > 0 and not stop():
            temperature_s = self._unit_s * hot * (COLD / hot) ** share
            for _ in range(20):
                other = self.look_at(self._moved(current.keep))
                worse_s = self.price_s(other) - self.price_s(current)
                if worse_s < 0 or self._random.random() < math.exp(-worse_s / temperature_s):
                    current = other
            share = (time.monotonic() - begin_s) / duration_s
        return current

    def _moved(self, keep: KeepSet) -> KeepSet:
        """One to three random changes."""
        kept, dropped, variant = keep.kept.copy(), keep.dropped.copy(), keep.variant.copy()
        for _ in range(1 + int(self._random.integers(3))):
            kind = self._random.random()
            if kind < _KEEP or (kind >= _DROP and not len(self._choosers)):
                node = self._nodes[self._random.integers(len(self._nodes))]
                kept[node] = not kept[node]
            elif kind < _DROP:
                node = self._nodes[self._random.integers(len(self._nodes))]
                dropped[node] = not dropped[node]
            else:
                chooser = int(self._choosers[self._random.integers(len(self._choosers))])
                variant[chooser] = self._random.integers(self._variants[chooser])
        return KeepSet(kept, dropped, variant)
