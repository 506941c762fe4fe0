"""Mending: the trees that an earlier plan sends chunks along, mended, and its order of sends as far as it holds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.taccl.candidate import Candidate
from gapless.encodings.taccl.chunked import Chunked, Phase
from gapless.encodings.taccl.ordering.list_scheduling import RULES, Order, Rule, better_orders, list_schedule
from gapless.encodings.taccl.ordering.sends import Routing, Sends, sends_of, to_schedule
from gapless.encodings.taccl.ordering.tables import SendTable, single_sends, times_of
from gapless.encodings.taccl.parameters import Repair
from gapless.encodings.taccl.repair.earlier import Earlier, EarlierSends
from gapless.encodings.taccl.repair.trees import Load, Trees
from gapless.options import Deadline

__all__ = ["mended"]

_Row = tuple[int, int, int, int, float]
"""Link, source, target, whether it carries a part of a sum, and start."""


@dataclass(frozen=True)
class _Known:
    """The sends of each chunk in order of their starts, and when a phase's send of a chunk over a link started."""

    rows: dict[int, list[_Row]]
    start_s: dict[tuple[int, int, int], float]


def mended(problem: Chunked, earlier: Earlier, parameters: Repair, deadline: Deadline, enough_s: float) -> Candidate:
    """A plan along the trees of an earlier one. `problem`: in its chunks. `enough_s`: how short is short enough."""
    known = _known(problem, earlier.sends(problem))
    load, trees = Load(problem), list[Trees]()
    roots = _roots(problem, known)
    kept = wanted = 0
    for number, phase in enumerate(problem.phases):
        own = [_tree(known.rows.get(chunk, []), phase, root) for chunk, root in enumerate(roots)]
        needed = _wanted(problem, phase, roots)
        found = Trees(phase.problem, roots, needed, own, load)
        wanted += sum(map(len, needed))
        kept += sum(len(tree) for tree in own)
        trees.append(found)
        known.start_s.update({(number, chunk, row[0]): row[4] for chunk, rows in known.rows.items() for row in rows})
    before = [{(chunk, *pair) for chunk, tree in enumerate(each.into) for pair in tree.items()} for each in trees]
    for each in trees:
        for chunk in range(len(roots)):
            each.mend(chunk)
    looks = parameters.looks
    for each in trees:
        looks = each.relieve(looks, enough_s - load.longest_s)
    routings = [each.routing() for each in trees]
    same = sum(len(pairs & {(chunk, *pair) for chunk, tree in enumerate(each.into) for pair in tree.items()})
               for pairs, each in zip(before, trees, strict=True))  # fmt: skip
    share = same / max(sum(map(len, routings)), 1)
    return _ordered(problem, routings, known, earlier, parameters, deadline, enough_s, share)


def _known(problem: Chunked, sends: EarlierSends) -> _Known:
    """The sends whose chunk is still there, chunk by chunk; links that are gone stand as -1."""
    rows: dict[int, list[_Row]] = defaultdict(list)
    columns = (sends.chunk, sends.link, sends.source, sends.target, sends.start_s, sends.end_s)
    by_chunk: dict[int, list[tuple[int, int, int, float, float]]] = defaultdict(list)
    for chunk, *row in zip(*(column.tolist() for column in columns), strict=True):
        if chunk >= 0:
            by_chunk[chunk].append(tuple(row))
    for chunk, moves in by_chunk.items():
        parts = problem.collective.contributors[chunk]
        rows[chunk] = list(_replayed(moves, {*parts}, problem.collective.reduces))
    return _Known(rows, {})


def _replayed(moves: list[tuple[int, int, int, float, float]], parts: set[int], reduces: bool) -> Iterator[_Row]:
    """The moves of a chunk, with whether each carries a part of its sum: the sender then lacks some of the parts.

    Parts that have left with their ranks are not looked for.
    """
    holds: dict[int, set[int]] = {rank: {rank} for rank in parts}
    coming: list[tuple[float, int, set[int]]] = []
    for link, source, target, start_s, end_s in moves:
        for arrival in [each for each in coming if each[0] <= start_s * (1 + 1e-9)]:
            holds.setdefault(arrival[1], set()).update(arrival[2])
            coming.remove(arrival)
        carried = set(holds.get(source, ()))
        coming.append((end_s, target, carried))
        yield link, source, target, int(reduces and carried != parts), start_s


def _roots(problem: Chunked, known: _Known) -> list[int]:
    """Where each chunk starts to spread: as in the earlier plan, where sums are added up first and then spread."""
    roots = list(problem.collective.roots)
    if len(problem.phases) < 2:
        return roots
    for chunk, rows in known.rows.items():
        into = {row[2] for row in rows if row[3]}
        sent_on = {row[1] for row in rows if row[3]}
        ends = (into - sent_on) & {*problem.collective.contributors[chunk]}
        if len(ends) == 1:
            roots[chunk] = ends.pop()
    return roots


def _tree(rows: list[_Row], phase: Phase, root: int) -> dict[int, int]:
    """The links of a chunk's tree in the direction in which the phase spreads, by the rank that they lead to."""
    tree: dict[int, int] = {}
    for link, source, target, is_part, _ in reversed(rows) if phase.backwards else rows:
        rank = source if phase.backwards else target
        if link >= 0 and rank != root and rank not in tree and bool(is_part) == phase.backwards:
            tree[rank] = link
    return tree


def _wanted(problem: Chunked, phase: Phase, roots: list[int]) -> list[set[int]]:
    """The ranks that each chunk's tree must reach in a phase."""
    collective = problem.collective
    ends = collective.contributors if phase.backwards else collective.destinations
    return [{*ranks} - {root} for ranks, root in zip(ends, roots, strict=True)]


def _ordered(
    problem: Chunked, routings: list[Routing], known: _Known, earlier: Earlier, parameters: Repair,
    deadline: Deadline, enough_s: float, share: float,
) -> Candidate:  # fmt: skip
    """The sends in the best order that is found."""
    sends = sends_of(problem, routings)
    table = single_sends(problem, sends)
    largest = int(np.diff(earlier.schedule.moves.start).max(initial=1)) if table.may_join.any() else 1
    search = _Orders(table, _given(sends, known), parameters, deadline, enough_s)
    search.run(largest)
    schedule = to_schedule(
        problem.logical.topology, problem.collective, problem.chunk_bytes, sends, times_of(search.best)
    )  # fmt: skip
    bound_s = max(float(each.problem.earliest_s[each.problem.wanted].max(initial=0.0)) for each in problem.phases)
    bound_s = bound_s if len(problem.phases) == 1 else 0.0  # roots may be others
    variant = f"{share:.0%} of its sends kept, {search.best.name}"
    return Candidate(problem, schedule, "repair", variant, bound_s, {"latency": bound_s}, account={"kept_share": share})


class _Orders:
    """Orders of the sends, by rules and sizes of groups, as long as there is work for them.

    `table`: the sends. `given_s`: their starts by the earlier plan. `enough_s`: how short is short enough.
    """

    def __init__(
        self, table: SendTable, given_s: Floats, parameters: Repair, deadline: Deadline, enough_s: float
    ) -> None:
        self.table, self.given_s, self.patience = table, given_s, parameters.patience
        self.deadline, self.enough_s = deadline, enough_s
        self.left = parameters.rows
        self.found: list[Order] = []

    @property
    def best(self) -> Order:
        """The shortest."""
        return min(self.found, key=lambda order: order.makespan_s)

    def run(self, largest: int) -> None:
        """The longest paths first, in groups of a third as many chunks each time while that helps, and in between; then
        as the earlier plan has it, and by the other rule; then the best of these perturbed.

        Large groups spare latencies; small ones hand on sooner what has come over a link that is slow now.
        """
        length_s = {largest: self._try(RULES[0], largest)}
        size = largest
        while size > 1 and length_s[size] == min(length_s.values()):
            size = max(1, size // 3)
            length_s[size] = self._try(RULES[0], size)
        size = min(length_s, key=length_s.__getitem__)
        for other in _beside(size, sorted(length_s)):
            length_s[other] = self._try(RULES[0], other)
        size = min(length_s, key=length_s.__getitem__)
        if self.left >= 2 * len(self.table):  # of many sends, sizes say more
            for rule in (Rule("as given"), RULES[1]):
                self._try(rule, size)
        patience = min(self.patience, self.left // len(self.table)) if len(self.table) else 0
        for order in better_orders(self.best, 0, patience, self._is_enough) if patience > 0 else ():
            self.found.append(order)

    def _try(self, rule: Rule, most: int) -> float:
        """How long an order by a rule is in groups of so many; inf where nothing more is to be tried."""
        if self.found and (self.left < len(self.table) or self._is_enough(self.best.makespan_s)):
            return math.inf
        self.left -= len(self.table)
        given_s = self.given_s if rule.first == "as given" else None
        self.found.append(list_schedule(self.table, replace(rule, most=most), given_s))
        return self.found[-1].makespan_s

    def _is_enough(self, best_s: float) -> bool:
        return best_s <= self.enough_s or self.deadline.over


def _beside(size: int, tried: list[int]) -> Iterator[int]:
    """The numbers in the middle between a size and its neighbours among those that were tried, by ratio."""
    place = tried.index(size)
    for low, high in pairwise(tried[max(place - 1, 0) : place + 2]):
        middle = round(math.sqrt(low * high))
        if low < middle < high:
            yield middle


def _given(sends: Sends, known: _Known) -> Floats:
    """The earlier starts of sends; of others, right behind what they wait for."""
    found: list[float] = []
    columns = (sends.phase.tolist(), sends.chunk.tolist(), sends.link.tolist())
    for number, key in enumerate(zip(*columns, strict=True)):
        start_s = known.start_s.get(key)
        if start_s is None:
            start_s = max((found[first] for first in sends.needs[number]), default=0.0)
        found.append(start_s)
    return np.array(found)
