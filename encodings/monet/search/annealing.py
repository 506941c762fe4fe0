"""Simulated annealing over keep-sets: where the schedules come from."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from gapless.encodings.monet.parameters import Cooling, Moves
from gapless.encodings.monet.search.keepset import Keeper, KeepSet, Move, State

__all__ = ["STEPS", "Annealing"]

STEPS = 20
"""Steps at one temperature, and between two looks at what else there is."""


class Annealing:
    """Rounds of annealing on one graph and budget; remembers the best keep-set that fits.

    `unit_s`: the time that temperatures and the price of overflow are relative to. On a large graph temperatures are
    lower.
    """

    def __init__(self, keeper: Keeper, unit_s: float, seed: int, cooling: Cooling, moves: Moves) -> None:
        self.keeper, self._cooling, self._moves = keeper, cooling, moves
        self._price = unit_s / (cooling.overflow_share * keeper.budget_bytes)
        self._random = random.Random(seed)
        graph = keeper.graph
        self._heat_s = unit_s / cooling.excess(len(graph.forward) * len(graph.backward))
        self._nodes = [k for k, node in enumerate(graph.forward) if node.creator is None and k != graph.loss]
        self._travellers = keeper.travellers
        self._choosers = [(k, len(node.variants)) for k, node in enumerate(graph.backward) if len(node.variants) > 1]
        self.states = 0
        self.least: State | None = None
        self.best: State | None = None

    @property
    def least_overflow_bytes(self) -> float:
        """By how much the keep-set passes the budget that does so by least: 0 once one fits."""
        return math.inf if self.least is None else self.least.outcome.overflow_bytes

    def look_at(self, keep: KeepSet) -> State:
        """Evaluate a keep-set, and remember it if it is the best that fits."""
        return self._noted(self.keeper.state(keep))

    def price_s(self, state: State) -> float:
        """Cost, with a price on what passes the budget, which is higher as long as nothing fits."""
        price = self._price * (self._cooling.urgency if self.best is None else 1.0)
        return state.outcome.cost_s + price * state.outcome.overflow_bytes

    def round(self, start: KeepSet, steps: int, stop: Callable[[], bool], hot: float | None = None) -> State:
        """Anneal from `start` in so many steps, cooling down from `hot`, or until `stop()`; returns where it ended."""
        cold, hot = self._cooling.cold, hot or self._cooling.hot
        current = self.look_at(start)
        for done in range(0, steps, STEPS):
            if stop():
                break
            current = self._steps(current, self._heat_s * hot * (cold / hot) ** (done / steps))
        return current

    def _steps(self, current: State, temperature_s: float) -> State:
        """A few steps at one temperature. A move that changes nothing counts as no state."""
        for _ in range(STEPS):
            other = self.keeper.moved(current, self._move())
            if other is current:
                continue
            worse_s = self.price_s(self._noted(other)) - self.price_s(current)
            if worse_s < 0 or self._random.random() < math.exp(-worse_s / temperature_s):
                current = other
        return current

    def _noted(self, state: State) -> State:
        self.states += 1
        if self.least is None or state.outcome.overflow_bytes < self.least.outcome.overflow_bytes:
            self.least = state
        fits = state.outcome.overflow_bytes <= 0
        if fits and (self.best is None or state.outcome.cost_s < self.best.outcome.cost_s):
            self.best = state
        return state

    def _move(self) -> Move:
        """One to three random changes."""
        kept: list[int] = []
        dropped: list[int] = []
        variants: list[tuple[int, int]] = []
        leads: list[tuple[int, int]] = []
        offloaded: list[int] = []
        keep = self._moves.keep
        drop = keep + self._moves.drop
        lead = drop + self._moves.lead
        for _ in range(self._random.randint(1, 3)):
            if self._travellers and self._random.random() < self._moves.offload:
                offloaded.append(self._random.choice(self._travellers))
                continue
            kind = self._random.random()
            if kind < keep or (kind >= lead and not self._choosers):
                kept.append(self._random.choice(self._nodes))
            elif kind < drop:
                dropped.append(self._random.choice(self._nodes))
            elif kind < lead:
                leads.append(
                    (self._random.choice(self._nodes), int(self._random.expovariate(1 / self._moves.mean_lead)))
                )
            else:
                number, count = self._random.choice(self._choosers)
                variants.append((number, self._random.randrange(count)))
        return Move(tuple(kept), tuple(dropped), tuple(variants), tuple(leads), tuple(offloaded))
