"""Cuts for two stages a rank, in a V or a loop: the least that what is known of each rank alone lets any cut take.

Of a partial cut into stages little is known while a rank has but its first one. Here ranks get both of theirs one after
the other, from the first rank on. What counts of the ranks before is where the first stages end, and how many layers
the second ones have: more are better, since the others then have fewer. Ranks may also give some back, or have no
second stage: so the bound is one, and its cut is mended afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.cut.costs import sums_s
from gapless.encodings.pipeline.cut.ranges import RangeCosts
from gapless.encodings.pipeline.order.stages import Cut
from gapless.encodings.pipeline.problem import Problem

__all__ = ["LeastCut", "least_cut"]

_WIDTH = 1e-4
"""Up to which the bound is searched for, as a share of it."""
_MOST_PARTS = 100_000
"""Ranks times layers times places where second stages may begin: up to a second's work for each try of a bound."""


@dataclass(frozen=True)
class LeastCut:
    """`bound_s`: no plan takes less, whatever its cut. `cut`: one that takes little more, by what is known of ranks."""

    bound_s: float
    cut: Cut


def least_cut(problem: Problem) -> LeastCut | None:
    """None where ranks don't have two stages each, in a V or a loop, where it would take too long, or nothing fits."""
    ranks, layers = problem.ranks, problem.profile.layer_count
    if problem.chunks != 2 or problem.copies > 1:
        return None
    down, again = np.split(problem.rank_of_stage, 2)
    is_v = bool((down[::-1] == again).all())
    if len(set(down.tolist())) < ranks or not (is_v or (down == again).all()):
        return None
    middles: list[int | None] = [None] if is_v else [*range(ranks, layers - ranks + 1)]
    if ranks * layers * len(middles) > _MOST_PARTS:
        return None
    return _least(_Ranks(problem, is_v), sorted(middles, key=lambda middle: abs(2 * (middle or 0) - layers)))


def _least(ranks: _Ranks, middles: Iterable[int | None]) -> LeastCut | None:
    """By halves, for one place of the second stages after the other: most are ruled out at once."""
    high_s = ranks.most_s
    best: tuple[float, Cut | None] = (math.inf, None)
    for middle in middles:
        low_s, limit_s = ranks.least_s, high_s * (1 - _WIDTH)
        while high_s - low_s > _WIDTH * high_s * (1 - _WIDTH):
            cut = ranks.cut_within(limit_s, middle)
            if cut is None:
                low_s = limit_s
            else:
                best = min(best, (ranks.end_s(cut), cut), key=lambda found: found[0])
                high_s = min(limit_s, best[0])
            limit_s = (low_s + high_s) / 2
    return None if best[1] is None else LeastCut(high_s * (1 - 2 * _WIDTH), best[1])


class _Ranks:
    """What ranks take that have two ranges of layers, which arrays give the ends of."""

    def __init__(self, problem: Problem, is_v: bool) -> None:
        self.problem, self.is_v, self.costs = problem, is_v, RangeCosts(problem)
        self.ranks, self.layers = problem.ranks, problem.profile.layer_count
        every = np.arange(1, self.layers)
        self.hops_s, self.back_s = (
            np.cumsum([0.0, *(float(self.costs.hop_s(stage, every, back).min())
                              for stage in range(problem.stage_count - 1))])
            for back in (False, True)
        )  # fmt: skip
        first_sum_s = float(self._summed_s(0, np.array([0]), np.array([1]))[0])
        self.first_weights_s = self.costs.first_tokens * float(self.costs.weight[1]) + first_sum_s
        whole = float(self.costs.load_s(0, np.array([self.layers]))[0])
        self.least_s = whole / self.ranks / 2
        sums_s = 2 * problem.stage_count * float(self._summed_s(1, np.array([0]), np.array([self.layers]))[0])
        once_s = self.costs.forward[-1] + self.costs.backward[-1] + self.hops_s[-1] + self.back_s[-1]
        self.most_s = 2 * problem.steps * (whole + sums_s + float(once_s) + self.first_weights_s)

    def cut_within(self, limit_s: float, middle: int | None) -> Cut | None:
        """A cut of which no rank is known to take longer; None where there is none. `middle`: the first layer of the
        second stages in a loop."""
        taken = np.full(self.layers + 1, -1)
        taken[0] = 0
        before: list[tuple[Ints, Ints]] = []
        for rank in range(self.ranks):
            first, end, most = self._ranges(rank, taken, middle)
            left = np.maximum(most - taken[first], 0)
            if rank == self.ranks - 1:  # which has all that is left
                fits = self._ends_s(rank, first, end, *self._second(taken[first], left, middle)) <= limit_s
                return self._cut(int(np.argmax(fits)), first, end, before, middle) if fits.any() else None
            count = self._most(limit_s, rank, first, end, taken[first], left, middle)
            total = np.where(count < 0, -1, np.minimum(taken[first] + count, most))
            order = np.argsort(total, kind="stable")  # of those with one end the last one stands
            taken, origin = np.full(self.layers + 1, -1), np.full(self.layers + 1, -1)
            taken[end[order]], origin[end[order]] = total[order], first[order]
            before.append((origin, taken))
        raise AssertionError("there is a last rank")

    def _ranges(self, rank: int, taken: Ints, middle: int | None) -> tuple[Ints, Ints, Ints]:
        """First stages of a rank, and the most layers that second ones may have with each, those of the ranks before
        included: each later rank has a layer in both of its stages."""
        rest = self.ranks - 1 - rank
        first, end = np.meshgrid(np.flatnonzero(taken >= 0), np.arange(1, self.layers), indexing="ij")
        most = self.layers - rest - (end + rest if middle is None else np.full_like(end, middle))
        fits = (end > first) & (most > rank)
        if middle is not None:
            fits &= (end == middle) if rest == 0 else (end <= middle - rest)
        return first[fits], end[fits], most[fits]

    def _most(
        self, limit_s: float, rank: int, first: Ints, end: Ints, taken: Ints, left: Ints, middle: int | None
    ) -> Ints:
        """The most layers of a second stage with which the rank takes no longer; -1 where none are too many."""
        low, high = np.full_like(left, -1), left
        while (low < high).any():
            half = (low + high + 1) // 2
            second = self._second(taken, np.maximum(half, 0), middle)
            fits = self._ends_s(rank, first, end, *second) <= limit_s
            low, high = np.where(fits, half, low), np.where(fits, high, half - 1)
        return low

    def _second(self, taken: Ints, count: Ints, middle: int | None) -> tuple[Ints, Ints]:
        """The range of a second stage of so many layers, where the ranks before have taken so many."""
        first = self.layers - taken - count if middle is None else middle + taken
        return first, first + count

    def end_s(self, cut: Cut) -> float:
        """The latest of all ranks."""
        places = np.array([0, *cut, self.layers])
        return max(
            float(self._ends_s(rank, *(places[[k]] for k in (rank, rank + 1, stage, stage + 1)))[0])
            for rank, stage in ((rank, self._second_stage(rank)) for rank in range(self.ranks))
        )

    def _second_stage(self, rank: int) -> int:
        return 2 * self.ranks - 1 - rank if self.is_v else self.ranks + rank

    def _ends_s(self, rank: int, first: Ints, end: Ints, second: Ints, stop: Ints) -> Floats:
        """When the rank ends at the earliest; inf where it lacks memory. More layers in its second stage, and fewer in
        those of the ranks before, make it no earlier.

        Its first forward has to arrive; or that of its second stage, after which come all of that one's ops and all
        gradients of the first; or its first gradient, after which come all. Then the rank sums the gradients of the
        stage that is done last. Those of the first one's weights come after all but the second one's, which come after
        all but the first one's gradients. Or the last gradient has still to get back to the first rank.
        """
        costs, is_single = self.costs, self.problem.steps == 1
        stage = self._second_stage(rank)
        own_sum_s, second_sum_s = self._summed_s(rank, first, end), self._summed_s(stage, second, stop)
        (f1, b1, w1), (f2, b2, w2) = self._works_s(first, end), self._works_s(second, stop)
        last_s = np.maximum(w1 + own_sum_s, w1 + w2 + np.minimum(own_sum_s, second_sum_s))
        tail_s = costs.first_share * costs.backward[first] + self.back_s[rank] + self.first_weights_s
        heads = [(costs.first_share * costs.forward[first] + self.hops_s[rank], f1 + f2)]
        if self.problem.by_span:
            heads, tail_s = [(np.zeros(len(first)), f1 + f2)], last_s
        elif is_single:
            late_s = costs.first_share * costs.forward[second] + self.hops_s[stage]
            turned_s = costs.first_share * (costs.forward[-1] + costs.backward[-1] - costs.backward[stop])
            there = (stop > second).astype(np.float64)
            heads += [(there * late_s, f2), (there * turned_s, np.zeros(len(first)))]
        after_s = b2 + np.maximum(b1 + np.maximum(last_s, tail_s), w2 + second_sum_s)
        one_s = np.max([head_s + forward_s for head_s, forward_s in heads], axis=0) + after_s
        ends_s = one_s + (self.problem.steps - 1) * (f1 + f2 + b1 + b2 + last_s)
        return np.where(self._kept_bytes(first, end, second, stop) <= costs.memory_bytes, ends_s, np.inf)

    def _works_s(self, first: Ints, stop: Ints) -> tuple[Floats, Floats, Floats]:
        """Forwards, gradients of inputs and gradients of weights of all micro-batches."""
        costs = self.costs
        forward, backward, weight = (costs.micro_batches * (column[stop] - column[first])
                                     for column in (costs.forward, costs.backward, costs.weight))  # fmt: skip
        return forward, backward, weight

    def _summed_s(self, stage: int, first: Ints, stop: Ints) -> Floats:
        """The sum of a stage's gradients among replicas, without an embedding that both ends of the model share."""
        is_shared = stage == self.problem.stage_count - 1 or (stage == 0 and not self.is_v)
        shared_bytes = is_shared * self.problem.profile.embedding_bytes
        sizes = np.maximum(self.costs.parameter[stop] - self.costs.parameter[first] - shared_bytes, 0.0)
        return np.where(stop > first, sums_s(self.problem, sizes).min(axis=0), 0.0)

    def _kept_bytes(self, first: Ints, end: Ints, second: Ints, stop: Ints) -> Floats:
        """States, and where nothing runs again one micro-batch: what else it keeps may fall where a stage grows."""
        if self.problem.recomputation == "none":
            return np.asarray(self.costs.kept_bytes(first, end) + self.costs.kept_bytes(second, stop))
        state = self.costs.state
        return np.asarray(state[end] - state[first] + state[stop] - state[second])

    def _cut(
        self, place: int, first: Ints, end: Ints, before: list[tuple[Ints, Ints]], middle: int | None
    ) -> Cut:  # fmt: skip
        """Back from the last rank's first stage; second stages have as many layers as is left of what ranks took."""
        firsts = [int(end[place]), int(first[place])]
        totals = [self.layers - (firsts[0] if middle is None else middle)]
        for rank, (origin, taken) in reversed(list(enumerate(before))):
            totals.append(max(rank + 1, min(int(taken[firsts[-1]]), totals[-1] - 1)))
            firsts.append(int(origin[firsts[-1]]))
        ends = firsts[-2:0:-1]
        if middle is None:
            return (*ends, *(self.layers - total for total in totals))
        return (*ends, middle, *(middle + total for total in reversed(totals[1:])))
