"""An exact answer: the relaxation rules out most choices, a MILP finds the best of what is left, branching proves it.

The MILP's word counts for nothing but its plan. Branches are closed by bounds in whole numbers (`bounds.dual`), so that
`optimal` rests on no solver's accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop
from itertools import count

import numpy as np

from gapless.encodings.sharding.bounds.model import built
from gapless.encodings.sharding.bounds.pairs import pairs_of
from gapless.encodings.sharding.bounds.relaxation import Relaxed, relaxed, size_of
from gapless.encodings.sharding.methods import Found, ShardingSearch
from gapless.encodings.sharding.parameters import DEFAULTS, Parameters
from gapless.encodings.sharding.presolve.factors import Ints
from gapless.encodings.sharding.presolve.reduced import Narrowing, Reduced, narrowed
from gapless.options import Deadline
from gapless.solution import Status
from gapless.solvers.registry import solve_model

__all__ = ["METHOD", "Closing", "closed", "is_worth", "relaxation"]

METHOD = "relaxation"

_ROUNDS = 6
"""Of relaxation and MILP, each with a better plan than the one before."""
_NOTHING = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, repr=False)
class Closing:
    """How far it is. `bound`: no plan costs less. `cost`: of the best plan, None while there is none; `choices`: those
    of the instance's nodes, int64, where this plan is new, else None. `left`: what cheaper plans are within, None where
    there is none, so that the plan is optimal.
    """

    bound: int
    cost: int | None
    choices: Ints | None
    left: Reduced | None

    @property
    def is_optimal(self) -> bool:
        """Whether no plan is cheaper."""
        return self.cost is not None and self.bound >= self.cost


def closed(
    reduced: Reduced, below: int | None, deadline: Deadline, parameters: Parameters = DEFAULTS
) -> Iterator[Closing]:
    """Each step towards an optimum: better bounds, and better plans than one of cost `below`.

    Ends early where an instance is larger than the parameters allow, and when the deadline is over.
    """
    work = _Work(below, deadline, parameters)
    left: Reduced | None = reduced
    for _ in range(_ROUNDS):
        if left is None or not is_worth(left, parameters) or deadline.over:
            break
        found = relaxed(left, work.below, deadline)
        work.bound, left = max(work.bound, found.bound), work.rounded(found)
        yield work.state(left)
        before = work.below
        if left is None or size_of(left) > parameters.milp_columns or work.is_milp_done:
            break
        work.milp(left)
        yield work.state(left)
        if work.below == before:
            break
    if left is not None and size_of(left) <= parameters.milp_columns and work.below is not None and not deadline.over:
        for bound in work.branch(left):
            work.bound = max(work.bound, bound)
            yield work.state(left)


def is_worth(left: Reduced, parameters: Parameters) -> bool:
    """Whether the relaxation is of a size that is solved: a vertex, where memory decides nothing, takes less time."""
    most = parameters.relaxation_columns if len(left.points.room) else parameters.vertex_columns
    return size_of(left) <= most


def relaxation(search: ShardingSearch) -> Iterator[Found]:
    """Each better bound and plan, up to the optimum where the parameters allow that."""
    for step in closed(search.left, search.cost, search.deadline, search.parameters):
        if step.choices is not None:
            yield Found(METHOD, search.left.contract(step.choices))
        yield Found(METHOD, bound=step.bound)
        if search.is_over:
            return


class _Work:
    """The best plan and bound so far, and what is done to better them."""

    def __init__(self, below: int | None, deadline: Deadline, parameters: Parameters) -> None:
        self.below, self.bound = below, 0
        self._parameters, self._deadline = parameters, deadline
        self._choices: Ints | None = None
        self.is_milp_done = False

    def state(self, left: Reduced | None) -> Closing:
        """How far it is; a plan is handed out once."""
        choices, self._choices = self._choices, None
        if left is None and self.below is not None:
            self.bound = self.below
        bound = self.bound if self.below is None else min(self.bound, self.below)
        return Closing(bound, self.below, choices, None if self.below is not None and bound >= self.below else left)

    def offer(self, reduced: Reduced, choices: Ints) -> None:
        """Keep a plan if it is one, and better."""
        found = reduced.evaluate(choices)
        is_plan = not found.forbidden and found.peak <= reduced.factors.instance.usage_limit
        if is_plan and (self.below is None or found.cost < self.below):
            self.below, self._choices = found.cost, reduced.expand(choices)

    def rounded(self, found: Relaxed) -> Reduced | None:
        """Offer the plan that a relaxation is nearest to, and the one that is left where that is a single one. Returns
        what is left beside them.
        """
        self.offer(found.reduced, found.nearest)
        if found.left is None or found.left.node_count:
            return found.left
        self.offer(found.left, _NOTHING)
        return None

    def milp(self, left: Reduced) -> None:
        """Offer the best plan that a MILP finds."""
        model = built(left, pairs_of(left), self.below)
        options = replace(
            self._deadline.stage(), step_limit=self._parameters.milp_steps, threads=1, on_progress=None, gap=0.0,
            on_point=lambda _, values: self.offer(left, model.taken(left, values)),
        )  # fmt: skip
        found = solve_model(model.model, options)
        self.is_milp_done = found.status is Status.OPTIMAL  # it says so, which proves nothing
        if found.values is not None:
            self.offer(left, model.taken(left, found.values))

    def branch(self, root: Reduced) -> Iterator[int]:
        """Branch until nothing cheaper is left, the least bound first; yields the bound on the whole each time."""
        tickets = count()
        leaves = [(found.bound, next(tickets), found) for found in self._looked(root)]
        for _ in range(self._parameters.branches):
            leaves = [leaf for leaf in leaves if self.below is None or leaf[0] < self.below]
            heapify(leaves)
            yield leaves[0][0] if leaves else self.bound_without_leaves
            if not leaves or self._deadline.over:
                return
            _, _, found = heappop(leaves)
            parent = found.bound
            for part in _halves(found):
                half = narrowed(found.reduced, part)
                if half is not None:
                    leaves += [(max(parent, each.bound), next(tickets), each) for each in self._looked(half)]

    @property
    def bound_without_leaves(self) -> int:
        """What is proven where nothing cheaper than the best plan is left."""
        return self.bound if self.below is None else self.below

    def _looked(self, reduced: Reduced) -> list[Relaxed]:
        """The relaxation of an instance, unless nothing is left of it; plans by the way are offered."""
        if not reduced.node_count:
            self.offer(reduced, _NOTHING)
            return []
        found = relaxed(reduced, self.below, self._deadline)
        return [] if self.rounded(found) is None else [found]


def _halves(found: Relaxed) -> list[Narrowing]:
    """Two parts of what cheaper plans can have: choices of one node that pay more for memory than its mean, and others.

    The relaxation beats every plan where it mixes choices of much and of little memory: the node that it mixes most is
    taken. Where none is mixed so, it is the node that is split most.
    """
    reduced, allowed = found.reduced, found.narrowing.choices
    owner = np.repeat(np.arange(reduced.node_count), reduced.sizes)
    shares = np.where(allowed, np.maximum(found.shares, 1e-9), 0.0)
    shares /= np.bincount(owner, shares)[owner]
    mean = np.bincount(owner, shares * found.charges)
    spread = np.bincount(owner, shares * (found.charges - mean[owner]) ** 2)
    node = int(spread.argmax())
    own = np.flatnonzero(allowed & (owner == node))
    is_first = found.charges[own] > mean[node]
    if not spread[node] > 0 or is_first.all() or not is_first.any():
        counts = np.bincount(owner, allowed)
        node = int(np.where(counts > 1, 1.0 - np.maximum.reduceat(shares, reduced.starts[:-1]), -1.0).argmax())
        own = np.flatnonzero(allowed & (owner == node))
        is_first = own == own[shares[own].argmax()]
    found_parts = []
    for part in (own[is_first], own[~is_first]):
        choices = allowed & (owner != node)
        choices[part] = True
        found_parts.append(replace(found.narrowing, choices=choices))
    return found_parts
