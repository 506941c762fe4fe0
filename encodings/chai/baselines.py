"""What is done without a solver: equal counts, the paper's rule, heads drawn at random.

The paper's rule (section 6.2.2, 6.2.3; `CHAI-static`): k-means of the heads' attention scores in each layer; the count
of a layer is where its error no longer falls by much. A share of the error with one cluster says what is much, the
same in all layers; it is as small as the budget allows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import HeadMap
from gapless.encodings.chai.medians import LayerMedians
from gapless.encodings.chai.problem import Problem
from gapless.encodings.chai.question import LOSS
from gapless.profiles.heads.profile import HeadProfile

__all__ = ["Baselines"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Baselines:
    """The baselines of a question within any number of kept key heads; k-means is run once."""

    def __init__(self, asked: Problem, medians: Sequence[LayerMedians], rounds: int, seed: int) -> None:
        self.asked, self.medians, self.rounds, self.seed = asked, medians, rounds, seed

    @cached_property
    def _apart(self) -> Floats:
        return _between_key_heads(self.asked.profile)

    @cached_property
    def _clusters(self) -> list[list[Ints]]:
        """Of each layer, the clusters for every count."""
        counts = range(1, self.asked.profile.key_heads + 1)
        return [[k_means(each, count, self.rounds) for count in counts] for each in self._apart]

    @cached_property
    def _errors(self) -> Floats:
        """What the clusters of each layer and count spoil, float, shape (layers, key heads)."""
        return np.array([
            [_spread(each, owner) for owner in owners]
            for each, owners in zip(self._apart, self._clusters, strict=True)
        ])  # fmt: skip

    def within(self, most_kept: int) -> dict[str, HeadMap]:
        """Each baseline's map with so many key heads kept in all layers together, at least one in each.

        Rises of the loss are known for the heads of `uniform` alone.
        """
        names = ("uniform",) if self.asked.distance == LOSS else ("uniform", "elbow", "random")
        return {name: self.named(name, most_kept) for name in names}

    def named(self, name: str, most_kept: int) -> HeadMap:
        """One baseline's map with so many key heads kept."""
        made: HeadMap = {"uniform": self.uniform, "elbow": self.elbow, "random": self.random}[name](most_kept)
        return made

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
        profile, kept, rows = self.asked.profile, [], []
        for layer, owner in enumerate(owners):
            member = np.arange(profile.key_heads)
            for cluster in np.unique(owner):
                inside = np.flatnonzero(owner == cluster)
                member[inside] = inside[self._apart[layer][np.ix_(inside, inside)].sum(axis=1).argmin()]
            kept.append(tuple(np.unique(member).tolist()))
            rows.append((member[:, None] * profile.group + np.arange(profile.group)).reshape(-1))
        return HeadMap(tuple(kept), np.array(rows, dtype=np.int64))


def _between_key_heads(profile: HeadProfile) -> Floats:
    """Squared distances of the scores of key heads: those of their first query heads, of their second, ... in sum."""
    layers, key_heads, group = profile.layers, profile.key_heads, profile.group
    blocks = profile.scores.reshape(layers, key_heads, group, key_heads, group)
    found = np.einsum("lgiai->lga", blocks)
    return np.asarray((found + found.transpose(0, 2, 1)) / 2)


def _counts(shares: Floats, level: float) -> Ints:
    """The least count of each layer whose share of the error is at most the level."""
    return np.asarray((shares <= level).argmax(axis=1) + 1)


def k_means(apart: Floats, count: int, rounds: int) -> Ints:
    """The cluster of each head, from squared distances alone: to a centre, it is the mean to its members less half the
    mean among them. Starts from heads that are far apart, the first from the one nearest to all.
    """
    heads = [int(apart.sum(axis=1).argmin())]
    while len(heads) < count:
        heads.append(int(apart[:, heads].min(axis=1).argmax()))
    owner = apart[:, heads].argmin(axis=1)
    for _ in range(rounds):
        inside = (owner[:, None] == np.unique(owner)).astype(np.float64)
        share = inside / inside.sum(axis=0)
        to_centre = apart @ share - 0.5 * np.einsum("hc,hj,jc->c", share, apart, share)
        moved = to_centre.argmin(axis=1)
        if (inside[np.arange(len(owner)), moved] == 1).all():
            break
        owner = moved
    return np.asarray(owner)


def _spread(apart: Floats, owner: Ints) -> float:
    """The sum of squared distances from the clusters' centres."""
    inside = (owner[:, None] == np.unique(owner)).astype(np.float64)
    return float((np.einsum("hc,hj,jc->c", inside, apart, inside) / (2 * inside.sum(axis=0))).sum())
