"""Clusters of attention heads by how far their scores are from each other, and the member that stands for each.

With counts by layer given, they are the membership of one request: by k-means, as published, or the one of least error.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.chai.head_map import HeadMap
from gapless.methods.medians import guessed, proven_at
from gapless.options import Deadline
from gapless.profiles.heads.profile import nearest

__all__ = ["between_key_heads", "clustered_map", "k_means", "least_map", "members", "spread"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def between_key_heads(distance: Floats, key_heads: int) -> Floats:
    """Squared distances of key heads: those of their first query heads, of their second, ... in sum.

    `distance`: float, shape (layers, heads, heads). Returns (layers, key heads, key heads).
    """
    layers, heads, _ = distance.shape
    group = heads // key_heads
    blocks = distance.reshape(layers, key_heads, group, key_heads, group)
    found = np.einsum("lgiai->lga", blocks)
    return np.asarray((found + found.transpose(0, 2, 1)) / 2)


def members(apart: Floats, owner: Ints) -> Ints:
    """For each head the member of its cluster that is nearest to all of it. `apart`: float, (heads, heads)."""
    member = np.arange(len(owner))
    for cluster in np.unique(owner):
        inside = np.flatnonzero(owner == cluster)
        member[inside] = inside[apart[np.ix_(inside, inside)].sum(axis=1).argmin()]
    return np.asarray(member)


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


def spread(apart: Floats, owner: Ints) -> float:
    """The sum of squared distances from the clusters' centres."""
    inside = (owner[:, None] == np.unique(owner)).astype(np.float64)
    return float((np.einsum("hc,hj,jc->c", inside, apart, inside) / (2 * inside.sum(axis=0))).sum())


def clustered_map(distance: Floats, counts: Sequence[int], key_heads: int, rounds: int) -> HeadMap:
    """The membership of a request by k-means: in each layer so many clusters of key heads, and their nearest members.

    `distance`: float, shape (layers, heads, heads). Where k-means leaves clusters empty, the key heads that are
    farthest from what they use keep their own keys, so that every request keeps as many.
    """
    group, kept, rows = distance.shape[1] // key_heads, [], []
    for apart, count in zip(between_key_heads(distance, key_heads), counts, strict=True):
        member = members(apart, k_means(apart, count, rounds))
        while len(held := np.unique(member)) < count:
            far = np.where(np.isin(np.arange(key_heads), held), -1.0, apart[np.arange(key_heads), member])
            member[far.argmax()] = far.argmax()
        kept.append(tuple(held.tolist()))
        rows.append((member[:, None] * group + np.arange(group)).reshape(-1))
    return HeadMap(tuple(kept), np.array(rows, dtype=np.int64))


def least_map(distance: Floats, counts: Sequence[int], key_heads: int, deadline: Deadline) -> tuple[HeadMap, bool]:
    """The membership of least error with so many key heads in each layer, and whether that is proven."""
    heads, kept, is_proven = distance.shape[1], [], True
    group = heads // key_heads
    for apart, count in zip(distance, counts, strict=True):
        found = guessed(apart.reshape(heads, key_heads, group).min(axis=2))
        if not found.is_proven(count) and not deadline.over:
            found = proven_at(apart.reshape(heads, key_heads, group).min(axis=2), found, count, deadline)
        is_proven &= found.is_proven(count)
        more = [head for head in range(key_heads) if head not in found.kept[count - 1]]
        kept.append(tuple(sorted([*found.kept[count - 1], *more][:count])))
    rows = [nearest(apart, here, group) for apart, here in zip(distance, kept, strict=True)]
    return HeadMap(tuple(kept), np.array(rows, dtype=np.int64)), is_proven
