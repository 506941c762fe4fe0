"""What the methods of sharding share: what presolve left, the best plan and bound so far, prices, the time.

A method is a `ShardingMethod` in one of the lists of `gapless.encodings.sharding.solve`. Its `run` takes a
`ShardingSearch` and yields `Found`, each as soon as it is there:

- It works on `search.left`, a `Reduced`. A plan is a choice for each node there, int64, shape (nodes,), counted from 0
  in each node. The search evaluates it exactly, and drops what is forbidden or above the limit, so that a method may
  guess; `search.choices` and `search.cost` are the best so far, None before there is one.
- A bound is a whole number that no plan of the instance costs less than, `left.offset` included. A method rounds so
  that this is true: `whole_bound` makes one of a floating-point number and its error.
- Work is counted by fields of `search.parameters`, and ends `run`; the clock only cuts it short. It asks
  `search.is_over` between steps of a tenth of a second at most, and gives backends `search.deadline.stage(seconds)`.
- What may help others stays in the search: `prices` of a byte at each time point, float, shape (points,), with the
  messages that they were found with (`tuning`); `dearness`, float, shape (choices,), by how much each choice seems to
  be above the cheapest of its node; and `excess`, float, shape (choices,): with a choice, no plan costs less than
  `excess_bound + excess[choice]`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gapless.options import Progress

if TYPE_CHECKING:
    from gapless.encodings.sharding.parameters import Parameters
    from gapless.encodings.sharding.presolve.reduced import Reduced, Step
    from gapless.options import Deadline, SolveOptions

__all__ = ["Found", "ShardingMethod", "ShardingSearch", "least_sum", "whole_bound"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """What a method found: choices, a bound, or that no plan is allowed (`is_infeasible`); `by`: its name."""

    by: str
    choices: Ints | None = None
    bound: int | None = None
    is_infeasible: bool = False


@dataclass
class ShardingSearch:
    """What the methods share; see above. `on_plan(cost, choices)`: is called with each better plan. `steps`: how much
    presolve left, step by step.
    """

    left: Reduced
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    on_plan: Callable[[int, Ints], None]
    steps: Sequence[Step] = ()
    choices: Ints | None = None
    cost: int | None = None
    found_by: str = ""
    bound: int | None = None
    bound_by: str = ""
    is_infeasible: bool = False
    prices: Floats | None = None
    dearness: Floats | None = None
    tuning: object = None
    excess: Floats | None = None
    excess_bound: float = -math.inf
    is_closed_beside: Callable[[], bool] = bool
    noted: list[Found] = field(default_factory=list)

    @property
    def elapsed_s(self) -> float:
        """Seconds of the whole solve, presolve included."""
        return time.monotonic() - self.deadline.clock.start_s

    @property
    def is_over(self) -> bool:
        """Whether the time is up, or the best plan is proven within the gap, or that there is none; here, or by what
        proves beside this.
        """
        return self.is_infeasible or self.is_proven or self.is_closed_beside() or self.deadline.over

    @property
    def is_proven(self) -> bool:
        """Whether cost and bound are as near as the options ask for."""
        return self.is_near(self.cost, self.bound)

    def is_near(self, cost: int | None, bound: int | None) -> bool:
        """Whether a cost and a bound are as near as the options ask for."""
        return cost is not None and bound is not None and cost - bound <= self.options.gap * abs(cost)

    def offer(self, found: Found) -> None:
        """Keep what is better than what is known, and note it."""
        self.noted.append(found)
        limit = self.left.factors.instance.usage_limit
        is_news = found.is_infeasible and self.cost is None
        self.is_infeasible |= is_news
        if found.choices is not None:
            known = self.left.evaluate(found.choices)
            is_allowed = not known.forbidden and known.peak <= limit
            if is_allowed and (self.cost is None or known.cost < self.cost):
                self.choices, self.cost, self.found_by, is_news = found.choices.copy(), known.cost, found.by, True
                self.on_plan(known.cost, self.choices)
        if found.bound is not None and (self.bound is None or found.bound > self.bound):
            self.bound, self.bound_by, is_news = found.bound, found.by, True
        if is_news and self.options.on_progress is not None:
            news = Progress(self.elapsed_s, self.cost, self.bound, found.by, unit="cost")
            self.options.on_progress(news)


@dataclass(frozen=True)
class ShardingMethod:
    """A method by name. `suits`: what presolve may have left for it to be worth trying."""

    name: str
    run: Callable[[ShardingSearch], Iterator[Found]]
    suits: Callable[[Reduced, Parameters], bool] = lambda left, parameters: True

    def supports(self, problem: tuple[Reduced, Parameters]) -> bool:
        """Whether it is worth trying."""
        return self.suits(*problem)


def least_sum(left: Reduced) -> int:
    """The least costs of all nodes and tables together: the cheapest bound, in whole numbers."""
    nodes = (left.costs[start:end] for start, end in zip(left.starts[:-1], left.starts[1:], strict=True))
    tables = (left.tables[start:end] for start, end in zip(left.table_starts[:-1], left.table_starts[1:], strict=True))
    return left.offset + sum(int(row.min()) for row in nodes) + sum(int(row.min()) for row in tables)


def whole_bound(value: float, error: float) -> int | None:
    """The least whole number that is at least `value - error`; None where that is no number."""
    return math.ceil(value - error) if math.isfinite(value - error) else None
