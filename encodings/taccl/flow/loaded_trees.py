"""Loaded trees: an ALLGATHER or REDUCESCATTER, or an ALLREDUCE on links unlike in both directions, along trees.

Matchings take what is free at the moment, and where ranks or nodes share ports, a port that serves a slow link keeps
fast ones waiting. So trees are grown one by one that load links and what they share alike, from each chunk's owner,
along the paths whose clocks have least to do, and grown anew in some passes, in which the busiest clock counts for more
and more. Of an ALLREDUCE there is a tree up to the root of each sum, and another one down from it, on the same links;
these are grown first so that each link carries about as much in each phase as in the linear program of the roots
(`sum_roots.py`), whose optimum some packing reaches. Chunks are then put in turn: each is due when its place among its
owner's says, or of sums, in a turn that loads links evenly at any time; and a list schedule keeps to that. It takes
tenths of a second.
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
from gapless.encodings.taccl.chunked import Chunked, Phase
from gapless.encodings.taccl.flow.spanning_trees import even_turn
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

_POWERS: tuple[float, ...] = (4.0, 8.0, 16.0, 32.0, 64.0)
"""Of what a clock has to do, pass by pass."""
_BY_SHARES = (16.0, 64.0, 64.0, 64.0)
"""Of the part of its share that a link has carried, pass by pass."""
_LEAST_SHARE = 1e-3
"""A link of which a program makes no use has this share of the chunks."""
_LEAST_GAIN, _PATIENCE = 1e-3, 2
"""Passes of an ALLREDUCE, in which the busiest clock hasn't less to do by this share, after which there are no more."""
_PACES = (0.25, 0.5)
"""How soon chunks are due, as shares of the time that their turn gives them."""
_DEFAULTS = TreeParameters()


@dataclass(frozen=True)
class _Packed:
    """The trees of each phase. `busiest_s`: how long they take of the busiest clock; `longest_s`: how long one chunk
    takes at least.
    """

    problem: Chunked
    trees: list[Trees]
    load: Load
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
    carried: Floats | None = None,
) -> Candidate | None:
    """The best plan along such trees for one question, cut into more and more chunks; its bound is the question's.

    Of an ALLREDUCE, the problems have the roots of a program, and `carried` is what it says of links (`RootShares`).
    Only numbers of chunks are put in order for which loads and the longest path promise less than `limit_s`; None where
    there is none, and where the time is up.
    """
    deadline, chance = Deadline(options), random.Random(options.seed)
    packed: list[_Packed] = []
    for problem in problems:
        work = problem.collective.chunk_count * problem.collective.rank_count * problem.link_count
        if deadline.over or work * len(_POWERS) > parameters.looks:
            break
        packed.append(_pack(problem, chance, carried))
        if len(packed) > 1 and packed[-1].end_s > packed[-2].end_s:
            break
    promising = [one for one in sorted(packed, key=lambda one: one.end_s) if one.end_s < limit_s]
    best: tuple[Order, Sends, _Packed] | None = None
    for one in promising[: parameters.numbers]:
        sends = sends_of(one.problem, [trees.routing() for trees in one.trees])
        for order in _orders(one, sends, options.seed, parameters.rows // parameters.numbers, deadline):
            if best is None or order.makespan_s < best[0].makespan_s:
                best = order, sends, one
    if best is None:
        return None
    order, sends, chosen = best
    solved = chosen.problem
    schedule = to_schedule(solved.logical.topology, solved.collective, solved.chunk_bytes, sends, times_of(order))
    return Candidate(solved, checked(schedule), "trees", f"by load, {order.name}", bounds.asked_s, bounds.any_chunking)


def _pack(problem: Chunked, chance: random.Random, carried: Floats | None) -> _Packed:
    """A tree for each chunk and phase; of some passes, the one in which the busiest clock has least to do."""
    load, phases, chunks = Load(problem), problem.phases, problem.collective.chunk_count
    if carried is None:
        grown, powers, best_s = [_trees(phase, load) for phase in phases], _POWERS, math.inf
    else:
        begun = [_by_shares(phase, share, chance) for phase, share in zip(phases, carried, strict=True)]
        grown = [_trees(phase, load, into) for phase, into in zip(phases, begun, strict=True)]
        powers, best_s = _POWERS[-1:] * len(_POWERS), load.evenness[0]
    best, without = _copies(grown), 0
    for load.power in powers:
        for place in chance.sample(range(len(phases) * chunks), len(phases) * chunks):
            grown[place // chunks].grow_anew(place % chunks)
        busiest_s = load.evenness[0]
        without = 0 if busiest_s < (1 - _LEAST_GAIN) * best_s else without + 1
        if busiest_s < best_s or (carried is not None and busiest_s <= best_s):  # later ones are shallower
            best, best_s = _copies(grown), busiest_s
        if carried is not None and without == _PATIENCE:
            break
    load = Load(problem)
    kept = [_trees(phase, load, into) for phase, into in zip(phases, best, strict=True)]
    longest_s = sum(Load(phase.problem).longest_s for phase in phases)
    return _Packed(problem, kept, load, best_s, longest_s)


def _by_shares(phase: Phase, carried: Floats, chance: random.Random) -> list[dict[int, int]]:
    """Trees of a phase of which each link carries about its share of all chunks."""
    problem = phase.problem
    chunks = problem.collective.chunk_count
    trees = _trees(phase, Load.by_link(problem, 1 / np.maximum(carried, _LEAST_SHARE)))
    for trees.load.power in _BY_SHARES:
        for chunk in chance.sample(range(chunks), chunks):
            trees.grow_anew(chunk)
    return trees.into


def _copies(grown: list[Trees]) -> list[list[dict[int, int]]]:
    return [[dict(tree) for tree in trees.into] for trees in grown]


def _trees(phase: Phase, load: Load, into: list[dict[int, int]] | None = None) -> Trees:
    """Trees of a phase, from the owners of its chunks to all that want them; none are grown where they aren't given."""
    spread = phase.problem
    owners = spread.owners.tolist()
    wanted = [{*ranks} - {owner} for ranks, owner in zip(spread.collective.destinations, owners, strict=True)]
    return Trees(spread, owners, wanted, into or [{} for _ in owners], load)


def _orders(packed: _Packed, sends: Sends, seed: int, most_rows: int, deadline: Deadline) -> Iterator[Order]:
    """Chunks in turn, or the longest path first, and the best of these perturbed."""
    table = single_sends(packed.problem, sends)
    made = [list_schedule(table, RULES[0])]
    phases = packed.problem.phases
    directions = (False, True) if len(phases) > 1 else (phases[0].backwards,)
    turn = _turn(packed)
    for pace in _PACES:
        for is_backwards in directions:
            if not deadline.over:
                due_s = _due_s(pace * packed.busiest_s * turn[sends.chunk], table, is_backwards, len(phases) > 1)
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


def _turn(packed: _Packed) -> Floats:
    """By chunk, the part of all that is before it: of the chunks of its owner, or of all sums in even turn."""
    if len(packed.trees) > 1:
        order = even_turn(_loads_s(packed))
        turn = np.empty(len(order))
        turn[order] = np.arange(len(order))
        return np.asarray(turn / len(order))
    count, found = dict[int, int](), list[int]()
    for owner in packed.trees[0].roots:
        count[owner] = count.get(owner, -1) + 1
        found.append(count[owner])
    return np.array(found) / (1 + max(count.values()))


def _loads_s(packed: _Packed) -> Floats:
    """What each chunk takes of each clock, float, shape (chunks, clocks)."""
    load = packed.load
    load_s = np.zeros((packed.problem.collective.chunk_count, len(load.load_s)))
    for trees in packed.trees:
        for chunk, tree in enumerate(trees.into):
            for link in tree.values():
                load_s[chunk, load.groups[link]] += load.occupancy_s[link]
    return load_s


def _due_s(begin_s: Floats, table: SendTable, is_backwards: bool, has_two_phases: bool) -> Floats:
    """When each send is due: once its chunk begins, and by the path before it.

    Backwards in time where sums are collected, ends are counted from the end of the plan on, below 0.
    """
    until_s, onward_s = path_times(table.duration_s.tolist(), table.needs)
    if is_backwards and not has_two_phases:
        return np.asarray(-(begin_s + onward_s - table.duration_s))
    return np.asarray(begin_s + until_s + table.duration_s * is_backwards)
