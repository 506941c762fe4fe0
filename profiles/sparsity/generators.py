"""Generators of index sets for trials: uniform, clustered by layer, and clustered in layers that drift.

Entries of a set are drawn layer by layer: layers have weights, the same for all ranks, so that sets cluster as top-k
values of real gradients do, in a few layers. A share of each set (`overlap`) comes from entries that the ranks of a
step have in common. The same arguments give the same sets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gapless.profiles.sparsity.index_sets import IndexSets, distinct

__all__ = ["generated_sets"]

Floats = NDArray[np.float64]

_MOST_FULL = 0.25
"""The largest share of a layer's entries that one rank selects, so that drawing without repeats ends soon. Above it in
all layers together, entries are drawn by keys."""


def generated_sets(
    name: str, elements: int, ranks: int, steps: int, density: float, *, layers: int = 24, spread: float = 2.0,
    drift: float = 0.0, overlap: float = 0.5, seed: int = 0, with_values: bool = True,
) -> IndexSets:  # fmt: skip
    """Index sets of `round(density * elements)` entries each, at least one.

    `layers`: of sizes that differ (Dirichlet). `spread`: standard deviation of the logarithms of their densities, 0 for
    uniform sets. `drift`: standard deviation of what the logarithms change by from step to step. `overlap`: the share
    of a set that is drawn from entries common to the step's ranks. `with_values`: whether entries have values.
    """
    random = np.random.default_rng(seed)
    layers = min(layers, max(1, elements // 64))
    count = max(1, round(density * elements))
    first = _layer_starts(random, elements, layers)
    sizes = np.diff(np.append(first, elements)).astype(np.float64)
    logs = random.normal(0.0, spread, layers)
    sets, values = [], []
    for _ in range(steps):
        weights = _bounded(sizes * np.exp(logs), sizes, count)
        common = _drawn(random, first, sizes, weights, count)
        shared = random.standard_normal(count) if with_values else None
        for _ in range(ranks):
            held, entries = _of_rank(random, first, sizes, weights, common, shared, overlap)
            sets.append(held)
            values.append(entries)
        logs = logs + random.normal(0.0, drift, layers)
    start = np.append(0, np.cumsum([len(held) for held in sets])).astype(np.int64)
    return IndexSets(
        name, elements, steps, ranks, start, np.concatenate(sets),
        np.concatenate(values).astype(np.float32) if with_values else None, first,
        tuple(f"layer{number}" for number in range(layers)),
    )  # fmt: skip


def _layer_starts(random: np.random.Generator, elements: int, layers: int) -> NDArray[np.int64]:
    shares = random.dirichlet(np.full(layers, 2.0))
    starts = np.floor(np.append(0, np.cumsum(shares))[:-1] * (elements - layers)).astype(np.int64)
    return np.asarray(starts + np.arange(layers))


def _bounded(weights: Floats, sizes: Floats, count: int) -> Floats:
    """Weights of sum 1, none so large that a layer is too full; equal shares of all where that can't be."""
    weights, most = weights / weights.sum(), np.maximum(_MOST_FULL * sizes / count, sizes / sizes.sum())
    for _ in range(len(weights)):
        over = weights > most
        rest = weights[~over].sum()
        if not over.any() or rest == 0:
            break
        weights = np.where(over, most, weights * ((1 - most[over].sum()) / rest))
    return np.asarray(weights / weights.sum())


def _drawn(
    random: np.random.Generator, first: NDArray[np.int64], sizes: Floats, weights: Floats, count: int
) -> NDArray[np.int32]:
    """`count` different entries, ascending."""
    if count > _MOST_FULL * sizes.sum():
        return _keyed(random, first, sizes, weights, count)
    found = np.empty(0, dtype=np.int32)
    while len(found) < count:
        more = int(1.1 * (count - len(found))) + 8
        layer = np.repeat(np.arange(len(sizes)), random.multinomial(more, weights))
        drawn = first[layer] + (random.random(len(layer)) * sizes[layer]).astype(np.int64)
        found = distinct(np.concatenate([found, drawn.astype(np.int32)]))
    return np.sort(random.permutation(found)[:count])


def _keyed(
    random: np.random.Generator, first: NDArray[np.int64], sizes: Floats, weights: Floats, count: int
) -> NDArray[np.int32]:
    """As `_drawn`, in a time that grows with the elements: each has an exponential key, of a rate as large as its
    weight, and those of the least keys are taken, as if one after another were drawn (Efraimidis and Spirakis, 2006).
    """
    lengths = sizes.astype(np.int64)
    rate = np.repeat(weights / sizes, lengths)
    with np.errstate(divide="ignore"):
        keys = random.standard_exponential(len(rate)) / rate
    least = np.argpartition(keys, count - 1)[:count]
    return np.sort(np.repeat(first - np.append(0, np.cumsum(lengths)[:-1]), lengths)[least] + least).astype(np.int32)


def _of_rank(
    random: np.random.Generator, first: NDArray[np.int64], sizes: Floats, weights: Floats, common: NDArray[np.int32],
    shared: Floats | None, overlap: float,
) -> tuple[NDArray[np.int32], Floats]:  # fmt: skip
    """One rank's entries, some of them common, and their values: common ones differ little between ranks."""
    is_taken = random.random(len(common)) < overlap
    rest = np.setdiff1d(_drawn(random, first, sizes, weights, len(common)), common[is_taken], assume_unique=True)
    rest = random.permutation(rest)[: len(common) - int(is_taken.sum())]
    held = np.concatenate([common[is_taken], rest])
    order = np.argsort(held)
    if shared is None:
        return held[order], np.empty(0)
    noise = random.standard_normal(len(held))
    noise[: int(is_taken.sum())] = shared[is_taken] + 0.1 * noise[: int(is_taken.sum())]
    return held[order], noise[order]
