"""What decides. The searches, in order, for the key heads of each layer for every count, and what is done without one.

A search begins with heads that are ranked. `prices` bound what any heads are charged, `exchanges` finds good ones,
`proofs` makes those exact that the budget allows. Rises of the loss are of the profile's own heads: nothing is left to
find.

Baselines: equal counts, heads drawn at random, and the paper's rule (section 6.2.2, 6.2.3; `CHAI-static`): k-means of
the heads' attention scores in each layer; the count of a layer is where its error no longer falls by much. A share of
the error with one cluster says what is much, the same in all layers; it is as small as the budget allows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.clusters import between_key_heads, k_means, members, spread
from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.parameters import Parameters
from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.question import LOSS
from gapless.methods.medians import LayerMedians, guessed, price_bounds, proven_at
from gapless.model.knapsack import Front, Items, Relaxation, front
from gapless.options import Deadline, Progress, SolveOptions, relative_gap
from gapless.solution import PROVEN_GAP

__all__ = ["BASELINES", "IN_ORDER", "Baselines", "Fronts", "HeadMethod", "HeadSearch", "Medians", "items_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Medians = tuple[LayerMedians, ...]
"""The key heads of every layer, for every count."""


def items_of(medians: Medians, name: str) -> Items:
    """Layers, which keep one key head in their first mode; `name`: `errors` as found, or `bounds` on them."""
    counts = np.arange(1, len(medians[0].errors) + 1, dtype=np.float64)
    values = np.array([getattr(each, name) for each in medians])
    return Items(np.broadcast_to(counts, values.shape), values)


@dataclass(frozen=True)
class Fronts:
    """The least errors of every number of kept key heads: as found, and bounds on them."""

    found: Front
    bounds: Front

    @classmethod
    def of(cls, medians: Medians, parameters: Parameters) -> Fronts:
        """The exact choice of counts over layers, for every budget at once."""
        return cls(*(front(items_of(medians, name), parameters.most_work) for name in ("errors", "bounds")))

    def gap(self, most_kept: int) -> float:
        """How far the error within so many kept key heads may be above the least, relative to it."""
        choice, bound = self.found.at(most_kept), self.bounds.at(most_kept)
        assert choice is not None, "one head a layer is within the budget"
        assert bound is not None, "one head a layer is within the budget"
        return relative_gap(choice.error, min(bound.bound, choice.error)) or 0.0


# -- searches ----------------------------------------------------------------------------------------------------------


@dataclass
class HeadSearch:
    """What the methods share: the question, the time, and the key heads so far, with bounds."""

    problem: Problem
    options: SolveOptions
    parameters: Parameters
    deadline: Deadline
    medians: Medians

    def say(self, phase: str) -> None:
        """Report what is being done."""
        if self.options.on_progress is not None:
            self.options.on_progress(Progress(self.deadline.elapsed_s, None, None, phase))


def _prices(search: HeadSearch, parts: int) -> Iterator[Medians]:
    """Bounds from prices, at what one more kept head gains within the budget; in one of `parts` parts of the rounds."""
    problem, medians = search.problem, search.medians
    found = Relaxation(items_of(medians, "errors"))
    fewer = max(problem.most_kept - 1, problem.profile.layers)
    price = found.bound_at(fewer) - found.bound_at(fewer + 1)
    errors, rounds = np.array([each.errors for each in medians]), max(1, search.parameters.price_rounds // parts)
    bounds = price_bounds(np.array(problem.cost), errors, price, rounds, search.deadline)
    yield tuple(each.bounded(row) for each, row in zip(medians, bounds, strict=True))


def _exchanges(search: HeadSearch) -> Iterator[Medians]:
    """Good key heads of one layer after the other."""
    medians, layers = list(search.medians), search.problem.profile.layers
    for layer, cost in enumerate(search.problem.cost):
        if search.deadline.over:
            break
        medians[layer] = guessed(cost).bounded(medians[layer].bounds)
        search.say(f"layer {layer + 1} of {layers}")
        if layer == layers // 2:
            yield tuple(medians)
    yield tuple(medians)


def _proofs(search: HeadSearch) -> Iterator[Medians]:
    """Exact key heads for the counts that the best plan, or the best that the bounds allow, has."""
    medians, most_kept = list(search.medians), search.problem.most_kept
    while not search.deadline.over:
        fronts = Fronts.of(tuple(medians), search.parameters)
        if fronts.gap(most_kept) <= max(search.options.gap, PROVEN_GAP):
            return
        chosen = [fronts.bounds.at(most_kept), fronts.found.at(most_kept)]
        pairs = [pair for each in chosen if each is not None for pair in enumerate(each.modes.tolist())]
        open_pairs = [pair for pair in dict.fromkeys(pairs) if not medians[pair[0]].is_proven(pair[1] + 1)]
        for number, (layer, mode) in enumerate(open_pairs):
            if search.deadline.remaining_s <= 0:
                break
            search.say(f"proof {number + 1} of {len(open_pairs)}")
            medians[layer] = proven_at(search.problem.cost[layer], medians[layer], mode + 1, search.deadline)
        if not open_pairs:
            return
        yield tuple(medians)


@dataclass(frozen=True)
class HeadMethod:
    """A search by name; `run`: the key heads of all layers, each time that they are better or better bounded."""

    name: str
    run: Callable[[HeadSearch], Iterator[Medians]]

    def supports(self, problem: Problem) -> bool:
        """Whether heads are to be found: rises of the loss are of the profile's own."""
        return problem.distance != LOSS


IN_ORDER = (
    HeadMethod("prices", partial(_prices, parts=10)),
    HeadMethod("exchanges", _exchanges),
    HeadMethod("prices", partial(_prices, parts=1)),
    HeadMethod("proofs", _proofs),
)
"""The first prices are of heads that are ranked, so that a plan that is cut short has a bound soon."""


# -- baselines ---------------------------------------------------------------------------------------------------------


class Baselines:
    """The baselines of a question within any number of kept key heads; k-means is run once."""

    def __init__(self, asked: Problem, medians: Medians, parameters: Parameters, seed: int) -> None:
        self.asked, self.medians, self.parameters, self.seed = asked, medians, parameters, seed

    @cached_property
    def _apart(self) -> Floats:
        return between_key_heads(self.asked.profile.scores, self.asked.profile.key_heads)

    @cached_property
    def _clusters(self) -> list[list[Ints]]:
        """Of each layer, the clusters for every count."""
        counts = range(1, self.asked.profile.key_heads + 1)
        return [[k_means(each, count, self.parameters.k_means_rounds) for count in counts] for each in self._apart]

    @cached_property
    def _errors(self) -> Floats:
        """What the clusters of each layer and count spoil, float, shape (layers, key heads)."""
        return np.array([
            [spread(each, owner) for owner in owners]
            for each, owners in zip(self._apart, self._clusters, strict=True)
        ])  # fmt: skip

    def within(self, most_kept: int) -> dict[str, HeadMap]:
        """The map of each that the parameters leave, with so many key heads kept in all layers together, at least one
        in each.

        Rises of the loss are known for the heads of `uniform` alone.
        """
        names = [name for name in BASELINES if self.asked.distance != LOSS or name == "uniform"]
        return {name: self.named(name, most_kept) for name in names if self.parameters.methods.allows(name)}

    def named(self, name: str, most_kept: int) -> HeadMap:
        """One baseline's map with so many key heads kept."""
        return BASELINES[name](self, most_kept)

    def uniform(self, most_kept: int) -> HeadMap:
        """Equal counts, one more in the first layers where they can't be equal; the best heads for them."""
        kept = [each.kept[count - 1] for each, count in zip(self.medians, self._equal(most_kept), strict=True)]
        return HeadMap.of(kept, self.asked.profile, self.asked.heads_by)

    def random(self, most_kept: int) -> HeadMap:
        """Equal counts; the heads are drawn, and the others use the nearest of them."""
        rng, profile = np.random.default_rng(self.seed), self.asked.profile
        kept = [rng.permutation(profile.key_heads)[:count].tolist() for count in self._equal(most_kept)]
        return HeadMap.of(kept, profile, self.asked.heads_by)

    def _equal(self, most_kept: int) -> list[int]:
        count, more = divmod(most_kept, self.asked.profile.layers)
        return [min(count + (layer < more), self.asked.profile.key_heads) for layer in range(self.asked.profile.layers)]

    def elbow(self, most_kept: int) -> HeadMap:
        """The paper's rule."""
        shares = self._errors / np.where(self._errors[:, :1] > 0, self._errors[:, :1], 1.0)
        low, high = 0, shares.size
        levels = np.sort(shares, axis=None)
        while low < high:  # the first level whose counts fit
            middle = (low + high) // 2
            if _counts(shares, levels[middle]).sum() <= most_kept:
                high = middle
            else:
                low = middle + 1
        counts = _counts(shares, levels[min(low, shares.size - 1)])
        return self._clustered([self._clusters[layer][count - 1] for layer, count in enumerate(counts.tolist())])

    def _clustered(self, owners: Sequence[Ints]) -> HeadMap:
        """Each cluster uses its member that is nearest to all of it; heads of a key head stay in their order."""
        group, kept, rows = self.asked.profile.group, [], []
        for apart, owner in zip(self._apart, owners, strict=True):
            member = members(apart, owner)
            kept.append(tuple(np.unique(member).tolist()))
            rows.append((member[:, None] * group + np.arange(group)).reshape(-1))
        return HeadMap(tuple(kept), np.array(rows, dtype=np.int64))


BASELINES: dict[str, Callable[[Baselines, int], HeadMap]] = {
    "uniform": Baselines.uniform, "elbow": Baselines.elbow, "random": Baselines.random,
}  # fmt: skip


def _counts(shares: Floats, level: float) -> Ints:
    """The least count of each layer whose share of the error is at most the level."""
    return np.asarray((shares <= level).argmax(axis=1) + 1)
