"""Loaded trees: an ALLGATHER or REDUCESCATTER along trees that load links and what they share alike.

Matchings take what is free at the moment, and where ranks or nodes share ports, a port that serves a slow link keeps
fast ones waiting. Trees are grown one by one, from each chunk's owner, along the paths whose clocks have least to do,
and grown anew in some passes, in which the busiest clock counts for more and more. Chunks are then put in turn: each is
due when its place among its owner's says, and a list schedule keeps to that. It takes tenths of a second.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.taccl.bounds.bounds import Bounds
from gapless.encodings.taccl.candidate import Candidate, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.list_scheduling import (
    RULES,
    Order,
    Rule,
    better_orders,
    list_schedule,
    path_times,
)
from gapless.encodings.taccl.ordering.sends import Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import SendTable, single_sends, times_of
from gapless.encodings.taccl.parameters import Trees as TreeParameters
from gapless.encodings.taccl.repair.trees import Load, Trees
from gapless.options import Deadline, SolveOptions

__all__ = ["may_load_trees", "plan_on_loaded_trees"]

_POWERS = (4.0, 8.0, 16.0, 32.0, 64.0)
"""Of what a clock has to do, pass by pass."""
_PACES = (0.25, 0.5)
"""How soon chunks are due, as shares of the time that their turn gives them."""
_DEFAULTS = TreeParameters()


@dataclass(frozen=True)
class _Packed:
    """`busiest_s`: how long the trees take of the busiest clock; `longest_s`: how long one chunk takes at least."""

    problem: Chunked
    trees: Trees
    busiest_s: float
    longest_s: float

    @property
    def end_s(self) -> float:
        """About when a plan along them is over."""
        return self.busiest_s + self.longest_s


def may_load_trees(problem: Chunked) -> bool:
    """Whether it is an ALLGATHER or REDUCESCATTER in which every chunk may take every link."""
    return problem.sketch is None and problem.is_free and problem.collective.name in ("allgather", "reducescatter")


def plan_on_loaded_trees(
    problems: Iterable[Chunked],
    options: SolveOptions,
    bounds: Bounds,
    limit_s: float = math.inf,
    parameters: TreeParameters = _DEFAULTS,
) -> Candidate | None:
    """The best plan along such trees for one question, cut into more and more chunks; its bound is the question's.

    Only numbers of chunks are put in order for which loads and the longest path promise less than `limit_s`; None where
    there is none, and where the time is up.
    """
    deadline, chance = Deadline(options), random.Random(options.seed)
    packed: list[_Packed] = []
    for problem in problems:
        work = problem.collective.chunk_count * problem.collective.rank_count * problem.link_count
        if deadline.over or work * len(_POWERS) > parameters.looks:
            break
        packed.append(_pack(problem, chance))
        if len(packed) > 1 and packed[-1].end_s > packed[-2].end_s:
            break
    promising = [one for one in sorted(packed, key=lambda one: one.end_s) if one.end_s < limit_s]
    best: tuple[Order, Sends, _Packed] | None = None
    for one in promising[: parameters.numbers]:
        sends = sends_of(one.problem, [one.trees.routing()])
        for order in _orders(one, sends, options.seed, parameters.rows // parameters.numbers, deadline):
            if best is None or order.makespan_s < best[0].makespan_s:
                best = order, sends, one
    if best is None:
        return None
    order, sends, chosen = best
    solved = chosen.problem
    schedule = to_schedule(solved.logical.topology, solved.collective, solved.chunk_bytes, sends, times_of(order))
    return Candidate(solved, checked(schedule), "trees", f"by load, {order.name}", bounds.asked_s, bounds.any_chunking)


def _pack(problem: Chunked, chance: random.Random) -> _Packed:
    """A tree for each chunk; of some passes, the one in which the busiest clock has least to do."""
    phase, load = problem.phases[0].problem, Load(problem)
    trees, owners = Trees.of(phase, load), phase.owners
    best, best_s = trees.into, math.inf
    for load.power in _POWERS:
        for chunk in chance.sample(range(len(owners)), len(owners)):
            trees.grow_anew(chunk)
        if load.evenness[0] < best_s:
            best, best_s = [dict(tree) for tree in trees.into], load.evenness[0]
    kept = Trees.of(phase, Load(problem), best)
    return _Packed(problem, kept, best_s, load.longest_s)


def _orders(packed: _Packed, sends: Sends, seed: int, most_rows: int, deadline: Deadline) -> Iterator[Order]:
    """Chunks in turn, or the longest path first, and the best of these perturbed."""
    table = single_sends(packed.problem, sends)
    made = [list_schedule(table, RULES[0])]
    is_backwards = packed.problem.phases[0].backwards
    for pace in _PACES:
        if not deadline.over:
            due_s = _due_s(packed, sends, table, pace, is_backwards)
            made.append(list_schedule(table, Rule("as given", is_backwards), due_s))
    yield from made
    best = min(made, key=lambda order: order.makespan_s)
    patience = max(most_rows // max(len(table), 1) - len(made), 0)
    left = patience

    def is_enough(_: float) -> bool:
        nonlocal left
        left -= 1
        return left < 0 or deadline.over

    yield from better_orders(best, seed, patience, is_enough)


def _due_s(packed: _Packed, sends: Sends, table: SendTable, pace: float, is_backwards: bool) -> Floats:
    """When each send is due: by its chunk's turn among those of its owner, and by the path before it.

    Backwards in time where sums are collected, ends are counted from the end of the plan on, below 0.
    """
    owners, count = packed.trees.roots, dict[int, int]()
    turn = np.zeros(len(owners))
    for chunk, owner in enumerate(owners):
        count[owner] = count.get(owner, -1) + 1
        turn[chunk] = count[owner]
    begin_s = pace * packed.busiest_s * turn[sends.chunk] / (1 + max(count.values()))
    until_s, onward_s = path_times(table.duration_s.tolist(), table.needs)
    if is_backwards:
        return np.asarray(-(begin_s + onward_s - table.duration_s))
    return np.asarray(begin_s + until_s)
