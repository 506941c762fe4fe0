"""Spanning trees: an ALLREDUCE along trees packed into the links, each chunk up one of them and down it again.

Phase by phase, with roots on all ranks alike, the outer ranks of a mesh or a line take twice as long to get everything
as to get what is not theirs, and links towards the middle stand still while sums are spread. A tree whose links all run
both ways loads them alike in both directions, wherever its root is. Chunks in different phases then share each link,
and trees packed evenly reach the bound: what all links between the parts of a partition carry must join these parts
(Nash-Williams, Tutte). Trees are grown one after the other along the links with least to do so far, and grown anew
while that evens the load. Then chunks are put in turn so that each link is used evenly often: after any number of them
every link has done about the same part of its work, so that none runs out of chunks that are ready. List scheduling
keeps them in turn, so that sums are spread while others come together.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.bounds.bounds import Bounds
from gapless.encodings.taccl.candidate import SAME, Candidate, checked
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.ordering.list_scheduling import (
    Order,
    Rule,
    Table,
    better_orders,
    list_schedule,
    path_times,
)
from gapless.encodings.taccl.ordering.sends import Sends, to_schedule
from gapless.encodings.taccl.parameters import Trees
from gapless.encodings.taccl.symmetry.rotations import lanes_of
from gapless.options import Deadline, SolveOptions

__all__ = ["doubled_chunks", "even_turn", "plan_on_trees"]

_DEFAULTS = Trees()
_POWERS = (4, 8, 16, 32)
"""Of what a link has to do, pass by pass: the higher, the more the busiest decides alone."""
_DEEP = 0.1
"""How much dearer each step away from the first rank makes a link: of trees with equal loads, shallow ones."""
_PACE = 0.5
"""How soon chunks are due, as a share of the time that their number gives them: links then choose among several."""
_TIGHT = 4
"""Of what a link has to do in all: the higher, the more the turn of the chunks goes by the busiest links."""
_RULES = tuple(Rule("as given", backwards, most) for most in (1, 2) for backwards in (False, True))


@dataclass(frozen=True)
class _Pairs:
    """Pairs of links that run against each other. `ends[p]`: the ranks of pair p; `links[p]`: from the first, and back.

    `loads[p]`: the clocks (links and resources) that a chunk over both of its links takes, each with seconds. `at[r]`:
    the pairs at rank r.
    """

    ends: list[tuple[int, int]]
    links: list[tuple[int, int]]
    loads: list[list[tuple[int, float]]]
    at: list[list[int]]
    clocks: int

    def is_connected(self) -> bool:
        """Whether the pairs join all ranks."""
        seen, front = {0}, [0]
        while front:
            rank = front.pop()
            new = {self.other(pair, rank) for pair in self.at[rank]} - seen
            seen |= new
            front += new
        return len(seen) == len(self.at)

    def link(self, pair: int, target: int) -> int:
        """The link of a pair that leads to one of its ranks."""
        there, back = self.links[pair]
        return there if self.ends[pair][1] == target else back

    def other(self, pair: int, rank: int) -> int:
        """The rank at the other end."""
        first, second = self.ends[pair]
        return second if rank == first else first


@dataclass(frozen=True)
class _Packed:
    """A tree for each chunk, as pairs in order from its root on, (pair, parent, child); `roots[c]`.

    `busiest_s`: how long the trees take of the busiest clock. `end_s`: that, and until the last chunk has come there
    and gone on: about when a plan along them is over.
    """

    problem: Chunked
    roots: list[int]
    trees: list[list[tuple[int, int, int]]]
    busiest_s: float
    end_s: float


def doubled_chunks(problem: Chunked, parameters: Trees = _DEFAULTS, with_middles: bool = False) -> Iterator[int]:
    """1, 2, 4, ...: numbers of chunks for a problem's ranks, as long as there is work to put their sends in order.

    `with_middles`: and 3, 6, 12, ... between them.
    """
    ranks, number = problem.collective.rank_count, 1
    while number == 1 or 2 * (ranks - 1) * ranks * number <= parameters.rows:
        yield number
        if with_middles and number > 1:
            yield number + number // 2
        number *= 2


def plan_on_trees(
    problems: Iterable[Chunked],
    options: SolveOptions,
    bounds: Bounds,
    limit_s: float = math.inf,
    parameters: Trees = _DEFAULTS,
) -> Candidate | None:
    """The best plan along packed trees for one question, cut into more and more chunks; its bound is the question's.

    It is for an ALLREDUCE of all ranks, more than two, in which every chunk may take every link.

    Only numbers of chunks are put in order for which loads and the longest tree promise an end not much behind
    `limit_s`; None where there is none, where links that run both ways don't join all ranks, and where the time is up.
    """
    deadline, chance = Deadline(options), random.Random(options.seed)
    packed: list[_Packed] = []
    for problem in problems:
        pairs = _pairs(problem)
        if not pairs.is_connected() or deadline.over:
            break
        passes = parameters.looks // (problem.collective.chunk_count * len(pairs.at) * problem.link_count)
        if not passes:
            break
        packed.append(_pack(problem, pairs, chance, passes))
        if len(packed) > 1 and packed[-1].end_s > packed[-2].end_s:
            break
    promising = [
        one for one in sorted(packed, key=lambda one: one.end_s) if one.end_s < parameters.hopeless_factor * limit_s
    ]
    best: tuple[Order, _Packed] | None = None
    rows = parameters.rows
    for one in promising[: parameters.numbers]:
        table = _table(one)
        for order in _orders(one, table, options.seed, rows // parameters.numbers, lambda: deadline.over):
            if best is None or order.makespan_s < best[0].makespan_s * (1 - SAME):
                best = order, one
    if best is None:
        return None
    order, chosen = best
    solved, (sends, _) = chosen.problem, _sends(chosen)
    schedule = to_schedule(solved.logical.topology, solved.collective, solved.chunk_bytes, sends, order)
    return Candidate(solved, checked(schedule), "trees", order.name, bounds.asked_s, bounds.any_chunking)


def _pairs(problem: Chunked) -> _Pairs:
    topology = problem.logical.topology
    between: dict[tuple[int, int], list[int]] = {}
    for link, ends in enumerate(zip(topology.link_source.tolist(), topology.link_target.tolist(), strict=True)):
        between.setdefault(ends, []).append(link)
    count, duration_s = len(topology.links), problem.duration_s.tolist()
    lanes = lanes_of(topology)
    pairs = _Pairs([], [], [], [[] for _ in range(topology.device_count)], count + len(topology.resources))
    for (one, other), links in between.items():
        for both in zip(links, between.get((other, one), ()), strict=False):
            if one > other:
                break
            load: dict[int, float] = {}
            for link in both:
                for clock in lanes[link]:
                    load[clock] = load.get(clock, 0.0) + duration_s[link]
            for rank in (one, other):
                pairs.at[rank].append(len(pairs.ends))
            pairs.ends.append((one, other))
            pairs.links.append(both)
            pairs.loads.append(list(load.items()))
    return pairs


def _pack(problem: Chunked, pairs: _Pairs, chance: random.Random, passes: int) -> _Packed:
    """A tree for each chunk, all grown anew in turn, in so many passes at most, while that evens the load."""
    load_s = [0.0] * pairs.clocks
    trees: list[list[int]] = [[] for _ in range(problem.collective.chunk_count)]
    best, best_s, without = trees, math.inf, 0
    for number in range(passes):
        for chunk in chance.sample(range(len(trees)), len(trees)):
            for pair in trees[chunk]:
                for clock, each_s in pairs.loads[pair]:
                    load_s[clock] -= each_s
            trees[chunk] = _grown(pairs, load_s, chance, _POWERS[min(number, len(_POWERS) - 1)])
        without = 0 if max(load_s) < best_s * (1 - 1e-3) else without + 1
        if max(load_s) < best_s:
            best, best_s = list(trees), max(load_s)
        if without >= len(_POWERS):
            break
    return _rooted(problem, pairs, _in_even_turn(pairs, best), best_s)


def _in_even_turn(pairs: _Pairs, trees: list[list[int]]) -> list[list[int]]:
    """The trees in a turn that loads all clocks evenly."""
    load_s = np.zeros((len(trees), pairs.clocks))
    for number, tree in enumerate(trees):
        for pair in tree:
            for clock, each_s in pairs.loads[pair]:
                load_s[number, clock] += each_s
    return [trees[number] for number in even_turn(load_s)]


def even_turn(load_s: Floats) -> list[int]:
    """The order in which, one by one, the next chunk brings all loads nearest to their shares so far.

    `load_s[c, k]`: what chunk c takes of clock k.
    """
    all_s = load_s.sum(axis=0)
    share, weight = load_s[:, all_s > 0] / all_s[all_s > 0], (all_s[all_s > 0] / all_s.max(initial=0.0)) ** _TIGHT
    so_far, left, order = np.zeros(len(weight)), np.arange(len(load_s)), list[int]()
    while len(left):
        at = (len(order) + 1) / len(load_s)
        place = int(((so_far + share[left] - at) ** 2 @ weight).argmin())
        order.append(int(left[place]))
        so_far += share[left[place]]
        left = np.delete(left, place)
    return order


def _grown(pairs: _Pairs, load_s: list[float], chance: random.Random, power: int) -> list[int]:
    """A spanning tree along the pairs with least to do, from any rank on; what it takes is added to `load_s`."""
    start = chance.randrange(len(pairs.at))
    depth, tree, open_pairs = {start: 0}, list[int](), list(pairs.at[start])
    most_s = max(load_s) or 1.0
    while len(depth) < len(pairs.at):
        best, least, still_open = -1, math.inf, []
        for pair in open_pairs:
            one, other = pairs.ends[pair]
            if one in depth and other in depth:
                continue
            still_open.append(pair)
            price = sum(
                ((load_s[clock] + each_s) / most_s) ** power - (load_s[clock] / most_s) ** power
                for clock, each_s in pairs.loads[pair]
            )
            deep = depth[one] if one in depth else depth[other]
            price *= (1 + _DEEP * deep) * (1 + 1e-9 * chance.random())
            if price < least:
                best, least = pair, price
        one, other = pairs.ends[best]
        old, new = (one, other) if one in depth else (other, one)
        depth[new] = depth[old] + 1
        tree.append(best)
        for clock, each_s in pairs.loads[best]:
            load_s[clock] += each_s
        open_pairs = [*still_open, *pairs.at[new]]
    return tree


def _rooted(problem: Chunked, pairs: _Pairs, trees: list[list[int]], busiest_s: float) -> _Packed:
    """The trees from their centres on, and how long a chunk takes up and down the longest of them."""
    duration_s = problem.duration_s.tolist()
    both_s = [sum(duration_s[link] for link in links) for links in pairs.links]
    roots, rooted, longest_s = list[int](), list[list[tuple[int, int, int]]](), 0.0
    for tree in trees:
        at: list[list[int]] = [[] for _ in pairs.at]
        for pair in tree:
            for rank in pairs.ends[pair]:
                at[rank].append(pair)
        root = _centre(pairs, at, both_s)
        steps = _steps(pairs, at, root)
        longest_s = max(longest_s, _length_s(pairs, root, steps, duration_s))
        roots.append(root)
        rooted.append(steps)
    return _Packed(problem, roots, rooted, busiest_s, busiest_s + longest_s - min(duration_s))


def _steps(pairs: _Pairs, at: list[list[int]], root: int) -> list[tuple[int, int, int]]:
    """A tree from a rank on: (pair, parent, child), parents first; `at[r]`: its pairs at rank r."""
    steps, front, seen = list[tuple[int, int, int]](), [root], {root}
    for rank in front:
        for pair in at[rank]:
            child = pairs.other(pair, rank)
            if child not in seen:
                seen.add(child)
                front.append(child)
                steps.append((pair, rank, child))
    return steps


def _centre(pairs: _Pairs, at: list[list[int]], both_s: list[float]) -> int:
    """The rank in the middle of a tree's longest path."""
    end, away_s, parent = 0, {0: 0.0}, dict[int, int]()
    for _ in range(2):
        start, away_s, parent = end, {end: 0.0}, {}
        for pair, rank, child in _steps(pairs, at, start):
            away_s[child], parent[child] = away_s[rank] + both_s[pair], rank
        end = max(away_s, key=away_s.__getitem__)
    middle_s, rank = away_s[end] / 2, end
    while away_s[parent[rank]] >= middle_s:
        rank = parent[rank]
    return min(rank, parent[rank], key=lambda one: abs(away_s[one] - middle_s))


def _length_s(pairs: _Pairs, root: int, steps: list[tuple[int, int, int]], duration_s: list[float]) -> float:
    """How long a chunk takes up a tree, whose ranks add one part at a time, and down again."""
    parts: dict[int, list[tuple[float, float]]] = {}  # when each part is ready to be sent, and how long that takes
    for pair, parent, child in reversed(steps):
        parts.setdefault(parent, []).append((_added_s(parts.get(child, [])), duration_s[pairs.link(pair, parent)]))
    down_s = {root: 0.0}
    for pair, parent, child in steps:
        down_s[child] = down_s[parent] + duration_s[pairs.link(pair, child)]
    return _added_s(parts[root]) + max(down_s.values())


def _added_s(parts: list[tuple[float, float]]) -> float:
    """When all parts are added up."""
    end_s = 0.0
    for ready_s, takes_s in sorted(parts):
        end_s = max(end_s, ready_s) + takes_s
    return end_s


def _sends(packed: _Packed) -> tuple[Sends, Ids]:
    """Up each tree, leaves first, and down it once the sum is complete; and the rank that each send goes to."""
    pairs = _pairs(packed.problem)
    chunks, links, targets, needs, reduces = (
        list[int](),
        list[int](),
        list[int](),
        list[tuple[int, ...]](),
        list[bool](),
    )

    def add(chunk: int, pair: int, target: int, needed: list[int], is_sum: bool) -> int:
        chunks.append(chunk)
        links.append(pairs.link(pair, target))
        targets.append(target)
        needs.append(tuple(needed))
        reduces.append(is_sum)
        return len(chunks) - 1

    for chunk, (root, steps) in enumerate(zip(packed.roots, packed.trees, strict=True)):
        arrived: dict[int, list[int]] = {}
        for pair, parent, child in reversed(steps):
            arrived.setdefault(parent, []).append(add(chunk, pair, parent, arrived.get(child, []), True))
        brought = {root: arrived[root]}
        for pair, parent, child in steps:
            brought[child] = [add(chunk, pair, child, brought[parent], False)]
    down = ~np.array(reduces, dtype=np.bool_)
    sends = Sends(np.array(chunks), np.array(links), tuple(needs), down.astype(np.int64), ~down, np.zeros_like(down))
    return sends, np.array(targets)


def _table(packed: _Packed) -> tuple[Sends, Table]:
    """The sends as rows; a rank adds one part of a chunk at a time."""
    problem, topology = packed.problem, packed.problem.logical.topology
    sends, target = _sends(packed)
    links, held = len(topology.links), lanes_of(topology)
    first = links + len(topology.resources)
    copies = (first + sends.chunk * topology.device_count + target).tolist()
    clocks = [
        (copy, *held[link]) if is_sum else held[link]
        for copy, link, is_sum in zip(copies, sends.link.tolist(), sends.reduces.tolist(), strict=True)
    ]
    alpha_s = topology.alpha_s[sends.link]
    beta_s = problem.duration_s[sends.link] - alpha_s
    kind = (sends.link + links * sends.reduces).tolist()  # sums and parts of them are transfers of two kinds
    return sends, Table(sends.needs, kind, clocks, alpha_s, beta_s, problem.may_group[sends.link])


def _orders(
    packed: _Packed, table: tuple[Sends, Table], seed: int, most_rows: int, is_over: Callable[[], bool]
) -> Iterator[Order]:
    """Chunks in turn, from either end, grouped or not; then perturbed, in `most_rows` sends at most after the first."""
    sends, rows = table
    duration_s = rows.duration_s
    until_s, _ = path_times(duration_s.tolist(), rows.needs)
    begin_s = _PACE * packed.busiest_s * sends.chunk / len(packed.trees) + until_s
    left, best = most_rows, None
    for rule in _RULES if rows.may_join.any() else _RULES[:2]:
        if best is not None and (left <= 0 or is_over()):
            return
        order = list_schedule(rows, rule, begin_s + duration_s if rule.backwards else begin_s)
        left -= len(rows)
        if best is None or order.makespan_s < best.makespan_s:
            best = order
            yield order

    def is_enough(_: float) -> bool:
        nonlocal left
        left -= len(rows)
        return left < 0 or is_over()

    if best is not None:
        yield from better_orders(best, seed, math.ceil(most_rows / len(rows)), is_enough)
