"""Groups and their modes together: a group is compressed, or sent plain.

What follows a cut k enters the end of the step by two numbers: S, the sum of its collectives, and W, when they would
be over if nothing before k had been compressed or sent. A step whose first k gradients were compressed in H and sent
at C ends at max(C + S, H + W). Going back from the end, with a group up to cut j before what is there already,

    compressed: S' = S + g, W' = h + max(W, R_j + g + S)      plain: S' = S + u, W' = max(W, R_j + u + S)

The least S with W <= w, for each w on a grid, with h rounded down to the grid, is a lower bound on that of every plan:
at k = 0 it bounds the step, and at other cuts the labels of the search in `pareto.py`, which makes the answer exact
where labels allow. The plan that the grid leads to is evaluated without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.cupcake.fusion import Costs, Fusion, timeline
from gapless.encodings.cupcake.parameters import Parameters
from gapless.encodings.cupcake.pareto import Labelled, solve_pareto
from gapless.options import Deadline
from gapless.profiles.gradients.profile import FusionProfile

__all__ = ["Suffixes", "solve_joint", "suffixes_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_SLACK = 1e-11
"""The share by which sums in another order may differ; comparisons err by it to the side of a lower bound."""

_BEYOND = 2.0**40
"""More steps than any grid has, and few enough for a whole number."""

_FEWEST_BINS = 16
"""However many gradients there are: with fewer steps a grid says nothing."""


@dataclass(frozen=True)
class Suffixes:
    """The least sums of collectives of the gradients from each cut on.

    `within_s`: float, shape (bins,): w, the grid, in even steps of `step_s`. `send_s[k, b]`: float, shape
    (N + 1, bins): the least S with W <= w_b, infinite where there is none. `room_s[k, b]`: what a collective right
    before cut k may take so that W stays within w_b.
    """

    step_s: float
    within_s: Floats
    send_s: Floats
    room_s: Floats

    def bound_s(self, costs: Costs, k: int, compress_s: Floats, sent_s: Floats) -> Floats:
        """The least end of a step whose first k gradients were compressed in `compress_s` and sent at `sent_s`.

        A W between two steps of the grid has at least the S of the upper one, and is at least the lower one. C + S
        falls with W and H + W rises, so the least maximum of both is where they cross.
        """
        if k == costs.count:
            return sent_s
        at_least_s = np.append(self.within_s[:1], self.within_s)
        send_s = np.append(self.send_s[k], 0.0)
        cross = np.searchsorted(at_least_s - send_s, sent_s - compress_s)
        falling_s = sent_s + np.append(np.inf, send_s)[cross]
        rising_s = compress_s + np.append(at_least_s, np.inf)[cross]
        return np.asarray(np.minimum(falling_s, rising_s))

    def fusion(self, costs: Costs) -> Fusion:
        """The fusion and modes that the least start leads to, or nearly so where the grid has rounded."""
        k, at, groups = 0, int(np.maximum(self.send_s[0], self.within_s).argmin()), []
        while k < costs.count:
            ends = np.arange(k + 1, costs.count + 1)
            bins, take_s = _modes(costs, self.step_s, k)
            source = at - bins
            reached = np.maximum(source, 0)
            sum_s = self.send_s[ends, reached] + take_s
            sum_s[(source < 0) | (take_s > self.room_s[ends, reached])] = np.inf
            mode, nearest = np.unravel_index(int(sum_s.argmin()), sum_s.shape)
            k, at = int(ends[nearest]), int(source[mode, nearest])
            groups.append((k, bool(mode)))
        return Fusion.of(groups)


def solve_joint(
    profile: FusionProfile, incumbent: Fusion, incumbent_end_s: float, deadline: Deadline, parameters: Parameters
) -> Labelled:
    """The groups and modes with the least step time, or the best found and a bound where work or time came first.

    `incumbent_end_s`: end of the incumbent's time line, without forward.
    """
    costs = Costs.of(profile, may_be_plain=True)
    fusion, end_s, bound_s, suffixes = incumbent, incumbent_end_s, _least_end_s(costs), None
    most_bins = max(_FEWEST_BINS, parameters.most_grid_cells // (costs.count * (costs.count + 1) // 2))
    for bins in sorted({min(bins, most_bins) for bins in parameters.grid_bins}):
        finer = suffixes_of(costs, end_s, bins, deadline)
        if finer is None:
            break
        suffixes = finer
        bound_s = max(bound_s, float(suffixes.bound_s(costs, 0, np.zeros(1), np.zeros(1))[0]))
        if bound_s >= end_s:
            break
        found = suffixes.fusion(costs)
        found_end_s = timeline(profile, found).end_s
        if found_end_s < end_s:
            fusion, end_s = found, found_end_s
    if suffixes is None or bound_s >= end_s:
        return Labelled(fusion, min(bound_s, end_s), 0, 0)
    most = (parameters.most_labels, parameters.most_extensions)
    labelled = solve_pareto(costs, suffixes, fusion, end_s, deadline, *most)
    bound_s = max(labelled.bound_end_s, min(bound_s, timeline(profile, labelled.fusion).end_s))
    return Labelled(labelled.fusion, bound_s, labelled.labels, labelled.most_labels)


def suffixes_of(costs: Costs, end_s: float, bins: int, deadline: Deadline) -> Suffixes | None:
    """The least sums from every cut on, of steps that end by `end_s`; about `bins` steps.

    None where the deadline came first, and where no step can end before `end_s`, but for rounding.
    """
    least_s = _least_end_s(costs)
    if least_s >= end_s * (1 - _SLACK):
        return None
    step_s = _step_s(costs, (end_s - least_s) / bins)
    within_s: Floats = np.asarray(least_s + step_s * np.arange(int(np.ceil((end_s - least_s) / step_s)) + 1))
    width, slack_s = len(within_s), _SLACK * end_s
    send_s = np.full((costs.count + 1, width), np.inf)
    room_s = np.full_like(send_s, -np.inf)
    send_s[-1] = 0.0
    for k in range(costs.count - 1, -1, -1):
        room_s[k + 1] = within_s - costs.ready_s[k + 1] - send_s[k + 1] + slack_s
        if deadline.over:
            return None
        for bins_of, take_s in zip(*_modes(costs, step_s, k), strict=True):
            starts = np.flatnonzero(np.diff(bins_of, prepend=-1))
            for first, end in zip(starts.tolist(), [*starts[1:].tolist(), len(bins_of)], strict=True):
                shift = int(bins_of[first])  # the same for all these groups
                if shift >= width:
                    continue
                rows, taken_s = slice(k + 1 + first, k + 1 + end), take_s[first:end, np.newaxis]
                sum_s = send_s[rows, : width - shift] + taken_s
                sum_s[taken_s > room_s[rows, : width - shift]] = np.inf
                np.minimum(send_s[k, shift:], sum_s.min(axis=0), out=send_s[k, shift:])
    return Suffixes(step_s, within_s, send_s, room_s)


def _modes(costs: Costs, step_s: float, k: int) -> tuple[Ints, Floats]:
    """Of the groups that begin at cut k and end at each later one, compressed and plain, shape (2, ends).

    Compression in steps of the grid, rounded down, and the time of the collective.
    """
    assert costs.plain is not None
    sizes = costs.prefix_bytes[k + 1 :] - costs.prefix_bytes[k]
    bins = np.minimum(costs.compression(sizes) / step_s + _SLACK, _BEYOND).astype(np.int64)
    return np.stack([bins, np.zeros_like(bins)]), np.stack([costs.communication(sizes), costs.plain(sizes)])


def _step_s(costs: Costs, about_s: float) -> float:
    """A step that goes into the least compression of a gradient, so that costs with a threshold aren't rounded."""
    least_s = float(costs.compression(np.diff(costs.prefix_bytes)).min())
    return least_s / round(least_s / about_s) if least_s > about_s else about_s


def _least_end_s(costs: Costs) -> float:
    """When all gradients are ready, and the last collective after that is over."""
    assert costs.plain is not None
    sizes = costs.suffix_bytes[:-1]
    return float(costs.ready_s[-1] + np.minimum(costs.communication(sizes), costs.plain(sizes)).min())
