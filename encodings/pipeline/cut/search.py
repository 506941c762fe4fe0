"""Cuts of the layers into stages, best bound first: what no order of a cut can beat comes from prefix sums alone."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.one_machine import in_two_s
from gapless.encodings.pipeline.cut.costs import even_cut
from gapless.encodings.pipeline.cut.ranges import RangeCosts
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.problem import Problem
from gapless.options import Deadline

__all__ = ["CutSearch", "bottleneck_of", "cheap_cuts", "fixed_cut", "least_memory_bytes", "mean_load_s"]


_TIE = 1e-12
"""Bounds that differ by less than this share are equal."""


@dataclass(frozen=True)
class _Node:
    """The first stages' layers: `firsts`, the first layer of each stage so far, the next one's included.

    Of each rank: `load` and `chain`, seconds of all its ops and of those of the chain of gradients; `summed`, of the
    sum of its first stage; `arrival` and `tail`, before its first op and after its last gradient; `kept`, bytes.
    `hops`: forward and backward so far.
    """

    firsts: tuple[int, ...]
    load: tuple[float, ...]
    chain: tuple[float, ...]
    summed: tuple[float, ...]
    arrival: tuple[float, ...]
    tail: tuple[float, ...]
    kept: tuple[float, ...]
    hops: tuple[float, float] = (0.0, 0.0)
    last_s: float = 0.0


class CutSearch:
    """Iterates over the cuts that leave room for one micro-batch, in the order of a bound on their step times.

    Of a rank: its first forward has to arrive, it computes all of its ops, and its gradients are summed; or it runs its
    forwards and gradients of inputs, whose last has to get back to the first stage; or it keeps as many micro-batches
    at once as there is room for, each until it is back. With `measure` "bottleneck" the
    bound is the largest rank's load, with "memory" the largest rank's least bytes, whatever the limit. Of spans only
    what the rank does itself counts, and of steps but the last one, too. Among equals, stages of even loads come first.
    After `most` partial cuts, or the deadline, the search ends (`is_cut_short`).
    `bound`: no cut that hasn't been given yet has a lower one; inf once all were given.
    """

    def __init__(self, problem: Problem, most: int, measure: str = "time", deadline: Deadline | None = None) -> None:
        self.problem, self.measure, self.most, self.deadline = problem, measure, most, deadline
        self.is_cut_short = False
        self.bound = 0.0
        self.rank = _ranks(problem).tolist()
        self.layers, self.stages = problem.profile.layer_count, problem.stage_count
        self.costs = RangeCosts(problem)
        self.rest, self.evenness = self._suffixes()
        self.least = float(self.rest[0][0])
        if problem.chunks > 1 and measure != "memory":  # stage by stage little is known: some rank has the mean load
            steps = problem.steps if measure == "time" else 1
            self.least = max(self.least, steps * mean_load_s(problem))

    def __iter__(self) -> Iterator[Cut]:
        none = (0.0,) * self.problem.ranks
        unseen = (-1.0,) * self.problem.ranks
        root = _Node((0,), none, none, none, unseen, none, none)
        heap: list[tuple[float, float, int, Callable[[], _Node]]]
        heap = [(self.least, float(self.evenness[0][0]), 0, lambda: root)]
        pushed = taken = 0
        while heap:
            bound, uneven, _, make = heapq.heappop(heap)
            self.bound = bound
            if math.isinf(bound):
                break
            node = make()
            if len(node.firsts) > self.stages:
                yield node.firsts[1:-1]
                continue
            if taken >= self.most or (self.deadline is not None and self.deadline.over):
                self.is_cut_short = True
                return
            taken += 1
            for entry in self._children(node, bound, uneven):
                pushed += 1
                heapq.heappush(heap, (*entry[:2], pushed, entry[2]))
        self.bound = math.inf

    def _ends(self, stage: int, first: int) -> Ints:
        """Where a stage that begins at this layer may end, so that each stage has a layer."""
        if stage == self.stages - 1:
            return np.array([self.layers])
        return np.arange(first + 1, self.layers - (self.stages - stage - 1) + 1)

    def _children(self, node: _Node, bound: float, uneven: float) -> Iterator[tuple[float, float, Callable[[], _Node]]]:
        """Each with what makes it: most are never looked at."""
        stage, first = len(node.firsts) - 1, node.firsts[-1]
        ends, rank = self._ends(stage, first), self.rank[len(node.firsts) - 1]
        grown = self._grown(node, stage, rank, first, ends)
        bounds = np.maximum(np.maximum(self._bounds(grown), bound), self.rest[stage + 1][ends])
        loads = self.costs.load_s(first, ends)
        before = uneven - self.evenness[stage][first]
        for k in np.flatnonzero(np.isfinite(bounds)).tolist():
            value = float(bounds[k])
            value = bound if value <= bound * (1 + _TIE) else value
            evenness = before + float(loads[k]) ** 2 + float(self.evenness[stage + 1][ends[k]])
            yield value, evenness, partial(self._child, node, grown, rank, int(ends[k]), k)

    def _grown(self, node: _Node, stage: int, rank: int, first: int, ends: Ints) -> dict[str, Floats]:
        """What the rank of the stage has with it, for each of its ends."""
        costs, seen = self.costs, node.arrival[rank] >= 0
        load, chain = costs.load_s(first, ends), costs.chain_s(first, ends)
        arrival = node.arrival[rank] if seen else costs.first_share * float(costs.forward[first]) + node.hops[0]
        tail = node.tail[rank] if seen else costs.first_share * float(costs.backward[first]) + node.hops[1]
        last_s = costs.last_s(ends) if stage == 0 else np.full(len(ends), node.last_s)
        summed = costs.summed_s(stage, first, ends) if self.problem.chunks <= 2 else np.zeros(len(ends))
        both = [(node.load[rank], load), (node.summed[rank], summed)]
        loads_s, sums_s = (np.stack(np.broadcast_arrays(*each)) for each in both)
        turn = costs.turn_s(stage, first, ends) + summed
        return {
            "load": loads_s.sum(axis=0), "own": np.maximum(in_two_s(loads_s, sums_s), turn),
            "chain": node.chain[rank] + chain, "arrival": np.full(len(ends), arrival),
            "tail": np.full(len(ends), tail), "last_s": last_s, "summed": summed,
            "kept": node.kept[rank] + costs.kept_bytes(first, ends),
            "forward_hop": node.hops[0] + costs.hop_s(stage, ends, False),
            "backward_hop": node.hops[1] + costs.hop_s(stage, ends, True),
        }  # fmt: skip

    def _bounds(self, grown: dict[str, Floats]) -> Floats:
        if self.measure == "memory":
            return grown["kept"]
        if self.measure == "bottleneck":
            bounds = grown["load"]
        else:
            loaded = grown["own"]
            chained = grown["chain"] + grown["tail"] + grown["last_s"]
            bounds = loaded if self.problem.by_span else grown["arrival"] + np.maximum(loaded, chained)
            bounds = bounds + (self.problem.steps - 1) * loaded
        return np.where(grown["kept"] <= self.costs.memory_bytes, bounds, np.inf)

    def _child(self, node: _Node, grown: dict[str, Floats], rank: int, end: int, k: int) -> _Node:
        def with_rank(title: str) -> tuple[float, ...]:
            values: tuple[float, ...] = getattr(node, title)
            return (*values[:rank], float(grown[title][k]), *values[rank + 1 :])

        changed = {title: with_rank(title) for title in ("load", "chain", "summed", "arrival", "tail", "kept")}
        hops = float(grown["forward_hop"][k]), float(grown["backward_hop"][k])
        return replace(
            node, firsts=(*node.firsts, end), hops=hops, last_s=float(grown["last_s"][k]), **changed
        )  # fmt: skip

    def _suffixes(self) -> tuple[list[Floats], list[Floats]]:
        """For each stage and first layer, over all cuts of the layers from there on: the least of the largest bound of
        one stage alone, and of the sum of squared loads; (S + 1) arrays of shape (layers + 1,).
        """
        rest = [np.full(self.layers + 1, np.inf) for _ in range(self.stages + 1)]
        even = [np.full(self.layers + 1, np.inf) for _ in range(self.stages + 1)]
        rest[-1][self.layers] = even[-1][self.layers] = 0.0
        none = (0.0,) * self.problem.ranks
        empty = _Node((0,), none, none, none, (-1.0,) * self.problem.ranks, none, none)
        for stage in reversed(range(self.stages)):
            for first in range(stage, self.layers - (self.stages - stage) + 1):
                ends = self._ends(stage, first)
                alone = self._bounds(self._grown(empty, stage, self.rank[stage], first, ends))
                rest[stage][first] = np.maximum(alone, rest[stage + 1][ends]).min()
                even[stage][first] = (self.costs.load_s(first, ends) ** 2 + even[stage + 1][ends]).min()
        return rest, even


def _ranks(problem: Problem) -> Ints:
    """The rank of each stage, int64 of shape (S,).

    Two copies of the model go over the ranks from both ends: there ranks that have the same stages stand for one, which
    has what each of them has.
    """
    rank = problem.rank_of_stage[: problem.stage_count]
    return rank if problem.copies == 1 else np.minimum(rank, problem.ranks - 1 - rank)


def bottleneck_of(problem: Problem, most: int, deadline: Deadline | None = None) -> Iterator[Cut]:
    """All cuts whose largest rank load is the least that memory allows, even ones first; none where no cut fits."""
    search, least = CutSearch(problem, most, "bottleneck", deadline), math.inf
    for cut in search:
        if search.bound > least * (1 + _TIE):
            return
        least = search.bound
        yield cut


def least_memory_bytes(problem: Problem, most: int, deadline: Deadline | None = None) -> tuple[float, bool]:
    """What a rank needs at least for there to be a plan, over all cuts that the question allows; and whether that is
    enough, or only a lower bound: several stages of a rank keep messages too, and so do sends that block.
    """
    is_enough = problem.chunks * problem.slices == 1 and not problem.blocking_sends and problem.recomputation != "curve"
    costs = RangeCosts(problem)
    cut = fixed_cut(problem)
    if cut is not None:
        return _largest(problem, costs.kept_bytes, cut), is_enough
    search = CutSearch(problem, most, "memory", deadline)
    next(iter(search), None)
    return search.bound, is_enough and not search.is_cut_short


def mean_load_s(problem: Problem) -> float:
    """What the ops of a rank take in the mean, and so at least those of one, whatever the cut."""
    load_s = float(RangeCosts(problem).load_s(0, np.array([problem.profile.layer_count]))[0])
    return problem.copies * load_s / problem.ranks


def _largest(problem: Problem, cost: Callable[[int, Ints], Floats], cut: Cut) -> float:
    """The largest of the ranks' sums of what their stages cost."""
    stages = zip((0, *cut), (*cut, problem.profile.layer_count), strict=True)
    each = [float(cost(first, np.array([end]))[0]) for first, end in stages]
    return float(np.bincount(_ranks(problem), weights=each).max())


def cheap_cuts(problem: Problem) -> list[Cut]:
    """A few cuts that leave room for a micro-batch, in a time that grows with stages times squared layers: stages of
    even loads, of little memory, of as many layers; the one of the least largest load of a rank first.
    """
    costs = RangeCosts(problem)
    limit = costs.memory_bytes / problem.chunks
    even = _divided(problem, lambda first, ends: np.where(
        costs.kept_bytes(first, ends) <= limit, costs.load_s(first, ends) ** 2, np.inf), np.add)  # fmt: skip
    small = _divided(problem, costs.kept_bytes, np.maximum)
    made = dict.fromkeys(
        cut for cut in (even, small, even_cut(problem.profile.layer_count, problem.stage_count)) if cut
    )
    fitting = (cut for cut in made if _largest(problem, costs.kept_bytes, cut) <= costs.memory_bytes)
    return sorted(fitting, key=partial(_largest, problem, costs.load_s))


def _divided(problem: Problem, cost: Callable[[int, Ints], Floats], join: np.ufunc) -> Cut | None:
    """The cut of the least joined cost of all stages, by a dynamic program from the last layers on."""
    layers, stages = problem.profile.layer_count, problem.stage_count
    rest, ends_of = np.full(layers + 1, np.inf), []
    rest[layers] = 0.0
    for stage in reversed(range(stages)):
        before, best_end = np.full(layers + 1, np.inf), np.zeros(layers + 1, dtype=np.int64)
        for first in range(stage, layers - (stages - stage) + 1):
            ends = np.arange(first + 1, layers + 1)
            values = join(cost(first, ends), rest[ends])
            best_end[first] = ends[values.argmin()]
            before[first] = values.min()
        rest = before
        ends_of.append(best_end)
    if math.isinf(rest[0]):
        return None
    firsts = [0]
    for best_end in reversed(ends_of):
        firsts.append(int(best_end[firsts[-1]]))
    return tuple(firsts[1:-1])


def fixed_cut(problem: Problem) -> Cut | None:
    """The one cut that the question leaves, None where there are several."""
    if isinstance(problem.cut, tuple):
        return problem.cut
    if problem.cut == "even" or problem.stage_count in (1, problem.profile.layer_count):
        return even_cut(problem.profile.layer_count, problem.stage_count)
    return None
