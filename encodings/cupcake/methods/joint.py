"""Groups and their modes together: every group is sent in the best of the modes offered.

What follows a cut k enters the end of the step by two numbers: S, how long it takes from the start of its first
collective until all is sent and decoded, if nothing holds the network up; and W, when that would be over if nothing
before k had been compressed or sent. A step whose first k gradients were compressed in H and sent at C ends at
max(C + S, H + W), or later where decoding is behind. Going back from the end, with a group up to cut j before what is
there already, in a mode that compresses in h, sends in g and decodes in d,

    S' = max(g + S, g + d + D_j)        W' = h + max(W, R_j + S')

where D_j is the least that the groups from j on can take to be decoded. The least S with W <= w, for each w on a grid,
with h rounded down to the grid, is a lower bound on that of every plan: at k = 0 it bounds the step, and at other cuts
the labels of the search in `pareto.py`, which makes the answer exact where labels allow. The plan that the grid leads
to is evaluated without rounding.

Where cores are counted, the least work from a cut on bounds what is left besides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.cupcake.methods.pareto import START, Bounded, Bounds, Work, all_arcs, sweep
from gapless.encodings.cupcake.parameters import Parameters
from gapless.options import Deadline
from gapless.profiles.gradients.fusion import Costs, Fusion, ModeCosts, timeline

__all__ = ["Suffixes", "solve_joint", "suffixes_of"]


_SLACK = 1e-11
"""The share by which sums in another order may differ; comparisons err by it to the side of a lower bound."""

_BEYOND = 2.0**40
"""More steps than any grid has, and few enough for a whole number."""

_FIRST_LABELS, _FEWEST_LABELS, _MORE_LABELS = 100, 4, 3
"""At a cut in the first round, at most and at least, and how many times as many in each later one."""

_FIRST_SHARE = 4
"""The first sweep, which looks at all groups, may take one of so many parts of the work."""

_FEWEST_BINS = 16
"""However many gradients there are: with fewer steps a grid says nothing."""


@dataclass(frozen=True)
class Suffixes:
    """The least times from the first collective of the gradients from each cut on to the end.

    `within_s`: float, shape (bins,): w, the grid, in even steps of `step_s`. `tail_s[k, b]`: float, shape
    (N + 1, bins): the least S with W <= w_b, infinite where there is none. `decode_s[k]`: D_k. `work_s[k]`: the least
    work of the groups from cut k on.
    """

    step_s: float
    within_s: Floats
    tail_s: Floats
    decode_s: Floats
    work_s: Floats

    def bound_s(self, costs: Costs, k: int, ends_s: Floats) -> Floats:
        """The least end of a step whose first k gradients have come to `ends_s` (as in `Labels`).

        A W between two steps of the grid has at least the S of the upper one, and is at least the lower one. C + S
        falls with W and H + W rises, so the least maximum of both is where they cross.
        """
        compress_s, sent_s, decoded_s = ends_s[0] - costs.ready_s[k], ends_s[1], ends_s[2]
        at_least_s = np.append(self.within_s[:1], self.within_s)
        tail_s = np.append(self.tail_s[k], 0.0)
        cross = np.searchsorted(at_least_s - tail_s, sent_s - compress_s)
        falling_s = sent_s + np.append(np.inf, tail_s)[cross]
        rising_s = compress_s + np.append(at_least_s, np.inf)[cross]
        network_s = np.maximum(np.minimum(falling_s, rising_s), decoded_s + self.decode_s[k])
        return np.asarray(np.maximum(network_s, costs.worked_s(ends_s[3] + self.work_s[k])))

    def fusion(self, costs: Costs) -> Fusion:
        """The fusion that the least start leads to, or nearly so where the grid has rounded."""
        k, at, ends, modes = 0, int(np.maximum(self.tail_s[0], self.within_s).argmin()), [], []
        while k < costs.count:
            found: list[tuple[float, int, int, str]] = []
            nexts = np.arange(k + 1, costs.count + 1)
            for mode, bins, send_s, behind_s in _groups(costs, self.step_s, k, self.decode_s):
                source = at - bins
                tail_s = np.maximum(self.tail_s[nexts, np.maximum(source, 0)] + send_s, behind_s)
                late = tail_s > self.within_s[np.maximum(source, 0)] - costs.ready_s[nexts] + _SLACK * self.within_s[-1]
                tail_s[(source < 0) | late] = np.inf
                nearest = int(tail_s.argmin())
                found.append((float(tail_s[nearest]), int(nexts[nearest]), int(source[nearest]), mode))
            _, k, at, mode = min(found, key=lambda group: group[0])
            ends.append(k)
            modes.append(mode)
        return Fusion(tuple(ends), tuple(modes))


def solve_joint(
    costs: Costs,
    incumbent: Fusion,
    incumbent_end_s: float,
    deadline: Deadline,
    parameters: Parameters,
    gap: float = 0.0,
) -> Bounded:
    """The groups and modes with the least step time, or the best found and a bound where work or time came first.

    `incumbent_end_s`: end of the incumbent's time line, without forward. `gap`: of the whole step, that is enough.
    """
    least_s = max(_least_end_s(costs), float(costs.worked_s(_least_work_s(costs)[0])))
    bracket, suffixes = _Bracket(costs, incumbent, incumbent_end_s, least_s, gap), None
    most_bins = max(_FEWEST_BINS, parameters.most_grid_cells // _groups_in_all(costs))
    for bins in sorted({min(bins, most_bins) for bins in parameters.grid_bins}):
        finer = suffixes_of(costs, bracket.end_s, bins, deadline)
        if finer is None:
            break
        suffixes = finer
        bracket.raise_to(float(suffixes.bound_s(costs, 0, START)[0]))
        if bracket.bound_s < bracket.end_s:
            bracket.offer(suffixes.fusion(costs))
        if bracket.is_closed:
            break
    if suffixes is not None and not bracket.is_closed:
        _by_labels(bracket, suffixes, Work(deadline, parameters.most_extensions), parameters)
    return Bounded.by_labels(bracket.fusion, min(bracket.bound_s, bracket.end_s), *bracket.counts)


@dataclass
class _Bracket:
    """The best fusion, when it ends, a lower bound on that of all; and the labels that were kept (`Sweep.counts`)."""

    costs: Costs
    fusion: Fusion
    end_s: float
    bound_s: float
    gap: float
    counts: tuple[int, int] = (0, 0)

    @property
    def is_closed(self) -> bool:
        """Whether what is left is enough."""
        return self.end_s - self.bound_s <= self.gap * (self.costs.forward_s + self.end_s)

    def offer(self, fusion: Fusion | None) -> None:
        """A fusion, kept if it is better."""
        end_s = np.inf if fusion is None else timeline(self.costs, fusion).end_s
        if fusion is not None and end_s < self.end_s:
            self.fusion, self.end_s = fusion, end_s

    @property
    def below_s(self) -> float:
        """A fusion that is better by more than rounding ends before it."""
        return self.end_s * (1 - _SLACK)

    def raise_to(self, bound_s: float) -> None:
        """No fusion that is better than the best ends sooner."""
        self.bound_s = max(self.bound_s, bound_s if bound_s < self.below_s else self.end_s)


def _by_labels(bracket: _Bracket, suffixes: Suffixes, work: Work, parameters: Parameters) -> None:
    """Labels from both ends in turn, bounded by each other, and by the grid first; each round keeps more of them.

    A round looks for a fusion, then bounds all of them from the front and from the end.
    """
    costs, arcs = bracket.costs, all_arcs(bracket.costs)
    behind: Bounds = suffixes
    ahead: Bounds = suffixes
    affordable = int(parameters.most_extensions // (_FIRST_SHARE * _groups_in_all(costs)))
    most = min(parameters.most_labels, max(_FEWEST_LABELS, min(affordable, _FIRST_LABELS)))
    while True:
        for forwards, is_relaxed in ((True, False), (True, True), (False, True)):
            rest = behind if forwards else ahead
            found = sweep(costs, arcs, rest, bracket.below_s, most, work, forwards, is_relaxed)
            if found is None:
                return
            bracket.counts = max(bracket.counts, found.counts)
            bracket.offer(found.fusion)
            if is_relaxed or found.is_exact:
                bracket.raise_to(np.inf if found.is_exact else found.bound_end_s)
                arcs = found.arcs
            if is_relaxed and forwards:
                ahead = found
            elif is_relaxed:
                behind = found
            if found.is_exact or bracket.is_closed:
                return
        if most == parameters.most_labels:
            return
        most = min(_MORE_LABELS * most, parameters.most_labels)


def suffixes_of(costs: Costs, end_s: float, bins: int, deadline: Deadline) -> Suffixes | None:
    """The least times from every cut on, of steps that end by `end_s`; about `bins` steps.

    None where the deadline came first, and where no step can end before `end_s`, but for rounding.
    """
    least_s = _least_end_s(costs)
    if least_s >= end_s * (1 - _SLACK):
        return None
    step_s = _step_s(costs, (end_s - least_s) / bins)
    within_s: Floats = np.asarray(least_s + step_s * np.arange(int(np.ceil((end_s - least_s) / step_s)) + 1))
    width, decode_s, work_s = len(within_s), _least_decodes_s(costs), _least_work_s(costs)
    tail_s = np.full((costs.count + 1, width), np.inf)
    latest_s = within_s[np.newaxis] - costs.ready_s[:, np.newaxis] + _SLACK * end_s
    tail_s[-1] = 0.0
    for k in range(costs.count - 1, -1, -1):
        if deadline.over:
            return None
        for _, bins_of, send_s, behind_s in _groups(costs, step_s, k, decode_s):
            fit = np.flatnonzero((behind_s <= latest_s[k + 1 :, -1]) & (bins_of < width))
            if not len(fit):
                continue
            reach = int(fit[-1]) + 1  # a longer group ends too late at once
            starts = np.flatnonzero(np.diff(bins_of[:reach], prepend=-1))
            for first, end in zip(starts.tolist(), [*starts[1:].tolist(), reach], strict=True):
                shift = int(bins_of[first])  # the same for all these groups
                if shift >= width:
                    continue
                rows, columns = slice(k + 1 + first, k + 1 + end), slice(0, width - shift)
                sum_s = tail_s[rows, columns] + send_s[first:end, np.newaxis]
                if (behind_s[first:end] > send_s[first:end]).any():
                    np.maximum(sum_s, behind_s[first:end, np.newaxis], out=sum_s)
                sum_s[sum_s > latest_s[rows, columns]] = np.inf
                np.minimum(tail_s[k, shift:], sum_s.min(axis=0), out=tail_s[k, shift:])
    return Suffixes(step_s, within_s, tail_s, decode_s, work_s)


def _groups(costs: Costs, step_s: float, k: int, decode_s: Floats) -> Iterator[tuple[str, Ints, Floats, Floats]]:
    """For each mode, of the groups that begin at cut k and end at each later one: compression in steps of the grid,
    rounded down; the collective; and the least from its start until this group and all after it are decoded."""
    ends = np.arange(k + 1, costs.count + 1)
    for mode in costs.modes:
        bins = np.minimum(mode.compress_s(k, ends) / step_s + _SLACK, _BEYOND).astype(np.int64)
        send_s = mode.send_s(k, ends)
        yield mode.name, bins, send_s, send_s + mode.decode_s(k, ends) + decode_s[ends]


def _groups_in_all(costs: Costs) -> int:
    """Each in each mode."""
    return len(costs.modes) * (costs.count * (costs.count + 1) // 2)


def _step_s(costs: Costs, about_s: float) -> float:
    """A step that goes into the least compression of a gradient, so that costs with a threshold aren't rounded."""
    alone = np.arange(costs.count)
    least_s = [float(mode.compress_s(alone, alone + 1).min()) for mode in costs.modes]
    least_s = [duration_s for duration_s in least_s if duration_s > about_s]
    return min(least_s) / round(min(least_s) / about_s) if least_s else about_s


def _least_end_s(costs: Costs) -> float:
    """When all gradients are ready, and the last group after that is sent and decoded."""
    starts = np.arange(costs.count)
    last_s = [mode.send_s(starts, costs.count) + mode.decode_s(starts, costs.count) for mode in costs.modes]
    return float(costs.ready_s[-1] + np.min(last_s))


def _least_decodes_s(costs: Costs) -> Floats:
    """The least that the groups from each cut on take to be decoded, one after the other."""
    if not all(mode.decodes_after for mode in costs.modes):
        return np.zeros(costs.count + 1)
    return _least_sums_s(costs, ModeCosts.decode_s)


def _least_work_s(costs: Costs) -> Floats:
    """The least processor seconds of the groups from each cut on; nothing where cores aren't counted."""
    return _least_sums_s(costs, ModeCosts.work_s) if costs.cores else np.zeros(costs.count + 1)


def _least_sums_s(costs: Costs, taken_s: Callable[[ModeCosts, int, Ints], Floats]) -> Floats:
    """The least sum over the groups from each cut on of what each takes."""
    least_s = np.zeros(costs.count + 1)
    for k in range(costs.count - 1, -1, -1):
        ends = np.arange(k + 1, costs.count + 1)
        least_s[k] = min(float((taken_s(mode, k, ends) + least_s[ends]).min()) for mode in costs.modes)
    return least_s
