"""Directed trees: an ALLREDUCE on links unlike in both directions, each chunk up one tree and down another.

Where links aren't alike in both directions, a tree up to a root loads other links than a tree down from it, and both
are packed together. Three steps make the trees. A linear program says where roots are to be, and what part of all
chunks each link carries up and down (`sum_roots.py`). Trees are grown so that links carry these parts, and then so that
they have about as much to do, in few chunks. A second program shares all chunks out over these trees, for each number
of chunks: the time of the busiest link or port, and the mean depth of a chunk, are least together. It takes few of the
trees, so that the same ones take turns. Chunks are put in a turn that loads links evenly at any time, and a list
schedule keeps to that.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.taccl.bounds.bounds import Bounds
from gapless.encodings.taccl.candidate import Candidate, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.trees.spanning_trees import even_turn
from gapless.encodings.taccl.flow.trees.sum_roots import RootShares, with_roots
from gapless.encodings.taccl.ordering.list_scheduling import (
    RULES,
    Order,
    Rule,
    better_orders,
    list_schedule,
    path_times,
)
from gapless.encodings.taccl.ordering.sends import Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import single_sends, times_of
from gapless.encodings.taccl.parameters import Trees as TreeParameters
from gapless.encodings.taccl.repair.trees import Load, Trees
from gapless.encodings.taccl.symmetry.rotations import lanes_of
from gapless.model import Model
from gapless.options import Deadline, SolveOptions
from gapless.solvers.registry import solve_model

__all__ = ["plan_on_directed_trees"]

_GROWN = (2, 4)
"""Of the numbers of chunks, those in which trees are grown."""
_BY_SHARES = (16.0, 64.0, 64.0, 64.0)
"""Of the part of its share that a link has carried, pass by pass."""
_BY_LOAD = (64.0, 64.0)
"""Of what a clock has to do, in the passes after these."""
_LEAST_SHARE = 1e-3
"""A link of which a program makes no use has this share of the chunks."""
_LEAST_USE = 1e-6
"""A tree with less of the chunks isn't used."""
_PACES = (0.5, 1.0)
"""How soon chunks are due, as shares of the time that their turn gives them."""
_MOST_TRIED = 4
"""Numbers of chunks and roots, those first that promise most, whose first orders are made."""
_DEFAULTS = TreeParameters()


@dataclass(frozen=True)
class _Tree:
    """A tree of phase `phase` from its root on, in the direction in which the phase spreads; links next to it first."""

    phase: int
    root: int
    links: tuple[int, ...]


@dataclass(frozen=True)
class _Packed:
    """A problem with its roots, and the trees of each phase. `end_s`: about when a plan along them is over."""

    problem: Chunked
    trees: list[Trees]
    load: Load
    end_s: float

    @property
    def busiest_s(self) -> float:
        """What the busiest clock has to do."""
        return self.load.evenness[0]

    def sends(self) -> Sends:
        """All sends, up and down."""
        return sends_of(self.problem, [trees.routing() for trees in self.trees])


def plan_on_directed_trees(
    problems: Sequence[Chunked],
    roots: Iterable[RootShares],
    options: SolveOptions,
    bounds: Bounds,
    limit_s: float = math.inf,
    parameters: TreeParameters = _DEFAULTS,
) -> Candidate | None:
    """The best plan along such trees for one question, cut into more and more chunks; its bound is the question's.

    It is for an ALLREDUCE of all ranks. `roots`: of the program for phases at once, some of its optima. Only what
    promises less than `limit_s` is put in order; None where there is none, and where the time is up.
    """
    deadline, chance = Deadline(options), random.Random(options.seed)
    packed = [one for shares in roots for one in _packings(problems, shares, chance, deadline, parameters)]
    promising = sorted((one for one in packed if one.end_s < limit_s), key=lambda one: one.end_s)[:_MOST_TRIED]
    begun = [(_first_order(one), one) for one in promising if not deadline.over]
    best: tuple[Order, _Packed] | None = None
    for order, one in sorted(begun, key=lambda each: each[0].makespan_s)[: parameters.numbers]:
        for better in [order, *_perturbed(order, options.seed, parameters.rows // parameters.numbers, deadline)]:
            if best is None or better.makespan_s < best[0].makespan_s:
                best = better, one
    if best is None:
        return None
    order, chosen = best
    solved = chosen.problem
    times = times_of(order)
    schedule = to_schedule(solved.logical.topology, solved.collective, solved.chunk_bytes, chosen.sends(), times)
    name = f"up and down, {order.name}"
    return Candidate(solved, checked(schedule), "trees", name, bounds.asked_s, bounds.any_chunking)


def _packings(
    problems: Sequence[Chunked],
    shares: RootShares,
    chance: random.Random,
    deadline: Deadline,
    parameters: TreeParameters,
) -> Iterator[_Packed]:
    """Trees for each number of chunks, as long as more of them promise less."""
    few = [problem for problem in problems if problem.chunks in _GROWN] or list(problems[:1])
    trees, last_s = list[_Tree](), math.inf
    for problem in few:
        work = problem.collective.chunk_count * problem.collective.rank_count * problem.link_count
        if deadline.over or work * len(_BY_SHARES + _BY_LOAD) > parameters.looks:
            break
        trees += _grown(with_roots(problem, shares.share), shares.carried, chance)
    trees = list({(tree.phase, tree.root, frozenset(tree.links)): tree for tree in trees}.values())
    for problem in problems if trees else ():
        packed = None if deadline.over else _shared_out(problem, trees, deadline)
        if packed is None or packed.end_s > last_s:
            return
        last_s = packed.end_s
        yield packed


def _grown(problem: Chunked, carried: Floats, chance: random.Random) -> Iterator[_Tree]:
    """The trees of all passes: by the shares of links, phase by phase, then by what clocks have to do."""
    load, chunks, grown = Load(problem), range(problem.collective.chunk_count), list[Trees]()
    for number, (phase, share) in enumerate(zip(problem.phases, carried, strict=True)):
        trees = Trees.of(phase.problem, Load.by_link(phase.problem, 1 / np.maximum(share, _LEAST_SHARE)))
        for trees.load.power in _BY_SHARES:
            for chunk in chance.sample(chunks, len(chunks)):
                trees.grow_anew(chunk)
            yield from _found(trees, number)
        grown.append(Trees.of(phase.problem, load, trees.into))
    for load.power in _BY_LOAD:
        for chunk in chance.sample(chunks, len(chunks)):
            for trees in grown:
                trees.grow_anew(chunk)
        for number, trees in enumerate(grown):
            yield from _found(trees, number)


def _found(trees: Trees, phase: int) -> Iterator[_Tree]:
    routing = trees.routing()
    for chunk, root in enumerate(trees.roots):
        yield _Tree(phase, root, tuple(routing.link[routing.chunk == chunk].tolist()))


def _shared_out(problem: Chunked, trees: list[_Tree], deadline: Deadline) -> _Packed | None:
    """Trees for all chunks, their roots as the program has them; None where that isn't solved in time."""
    depth_s = [_depth_s(problem, tree) for tree in trees]
    share = _shares(problem, trees, np.array(depth_s), deadline)
    if share is None:
        return None
    by_root = np.zeros(problem.collective.rank_count)
    for tree, part in zip(trees, share.tolist(), strict=True):
        by_root[tree.root] += part / 2
    rooted, packed = with_roots(problem, by_root / by_root.sum()), list[Trees]()
    load = Load(rooted)
    for number, phase in enumerate(rooted.phases):
        target = phase.problem.logical.topology.link_target.tolist()
        into = [dict[int, int]() for _ in phase.problem.owners]
        for root in set(phase.problem.owners.tolist()):
            own = [k for k, tree in enumerate(trees) if (tree.phase, tree.root) == (number, root)]
            chunks = np.flatnonzero(phase.problem.owners == root).tolist()
            for chunk, place in zip(chunks, _in_turn(share[own], len(chunks)), strict=True):
                into[chunk] = {target[link]: link for link in trees[own[place]].links}
        packed.append(Trees.of(phase.problem, load, into))
    return _Packed(rooted, packed, load, load.evenness[0] + float(share @ depth_s))


def _depth_s(problem: Chunked, tree: _Tree) -> float:
    """How long a chunk takes along the longest path of a tree."""
    topology = problem.logical.topology
    near, far = (topology.link_source, topology.link_target)[:: 1 if tree.phase else -1]
    at_s = {tree.root: 0.0}
    for link in tree.links:
        at_s[int(far[link])] = at_s[int(near[link])] + float(problem.duration_s[link])
    return max(at_s.values())


def _shares(problem: Chunked, trees: list[_Tree], depth_s: Floats, deadline: Deadline) -> Floats | None:
    """What part of all chunks each tree has: as many go up to each root as go down from it."""
    topology, ranks = problem.logical.topology, problem.collective.rank_count
    model, unit_s = Model("taccl_directed_trees"), problem.collective.chunk_count * float(problem.occupancy_s.mean())
    share, root = model.continuous("share", len(trees), upper=1.0), model.continuous("root", ranks, upper=1.0)
    time = int(model.continuous("time"))
    model.add("all_chunks_have_a_root", (1.0, root), lower=1.0, upper=1.0)
    rows = np.concatenate([[tree.phase * ranks + tree.root for tree in trees], np.arange(2 * ranks)])
    columns = np.concatenate([share, root, root])
    values = np.concatenate([np.ones(len(trees)), -np.ones(2 * ranks)])
    model.add_sparse("as_many_up_as_down", 2 * ranks, rows, columns, values, lower=0.0, upper=0.0)
    lanes = lanes_of(topology)
    held = [(lane, k, link) for k, tree in enumerate(trees) for link in tree.links for lane in lanes[link]]
    lane, column, link = (np.array(each) for each in zip(*held, strict=True))
    used, row = np.unique(lane, return_inverse=True)
    busy = -problem.occupancy_s[link] * problem.collective.chunk_count / unit_s
    rows, columns = np.concatenate([row, np.arange(len(used))]), np.concatenate([share[column], [time] * len(used)])
    values = np.concatenate([busy, np.ones(len(used))])
    model.add_sparse("time_covers_lane", len(used), rows, columns, values, lower=0.0)
    model.minimize((1.0, [time]), (depth_s / unit_s, share))
    solution = solve_model(model, deadline.stage())
    return None if solution.values is None else np.maximum(solution.values[share], 0.0)


def _in_turn(share: Floats, count: int) -> Iterator[int]:
    """Which of some trees each of `count` chunks takes: the one that is farthest behind its share."""
    share = np.where(share > _LEAST_USE, share, 0.0) + 1e-12
    given = np.zeros(len(share))
    for place in range(count):
        chosen = int(np.argmax((place + 1) * share / share.sum() - given))
        given[chosen] += 1
        yield chosen


def _first_order(packed: _Packed) -> Order:
    """The best of some orders: the longest path first, or chunks in turn, from either end of time."""
    sends = packed.sends()
    table, turn = single_sends(packed.problem, sends), _turn(packed)
    until_s, _ = path_times(table.duration_s.tolist(), table.needs)
    made = [list_schedule(table, RULES[0])]
    for pace in _PACES:
        due_s = pace * packed.busiest_s * turn[sends.chunk] + until_s
        made.append(list_schedule(table, Rule("as given"), due_s))
        made.append(list_schedule(table, Rule("as given", backwards=True), due_s + table.duration_s))
    return min(made, key=lambda order: order.makespan_s)


def _turn(packed: _Packed) -> Floats:
    """By chunk, the part of all that is before it, in a turn that loads all clocks evenly."""
    load = packed.load
    load_s = np.zeros((packed.problem.collective.chunk_count, len(load.load_s)))
    for trees in packed.trees:
        for chunk, tree in enumerate(trees.into):
            for link in tree.values():
                load_s[chunk, load.groups[link]] += load.occupancy_s[link]
    turn = np.empty(len(load_s))
    turn[even_turn(load_s)] = np.arange(len(load_s)) / len(load_s)
    return turn


def _perturbed(order: Order, seed: int, most_rows: int, deadline: Deadline) -> Iterator[Order]:
    """Ever better orders near one."""
    left = most_rows

    def is_enough(_: float) -> bool:
        nonlocal left
        left -= len(order.table)
        return left < 0 or deadline.over

    return better_orders(order, seed, math.ceil(most_rows / len(order.table)), is_enough)
