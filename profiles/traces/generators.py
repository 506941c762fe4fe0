"""Generators of traces: like three data sets, Zipf, and a chosen share of accesses on the hottest 1 %.

Every table is drawn independently of the others, every example of those before it. Id 0 is a table's hottest, id 1 the
next. A generator draws block after block, each from its own random stream (seed, block): the same seed gives the same
trace, in batches of any size and however often it is read.

With pooling factors a table has bags: one id and a Poisson number of more, so that the mean of a bag is its factor, and
a factor of 1 gives one id in each example.

With repeats, an id that is drawn serves several lookups of its table that lie near each other, as users who stay do in
a log. Without, examples are independent, and most rows of a batch serve one of them alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.profiles.traces.bags import bags_of_tables
from gapless.profiles.traces.power_law import PowerLaw
from gapless.profiles.traces.recommendation import table_laws
from gapless.profiles.traces.trace import BLOCK_EXAMPLES, Block, Trace

__all__ = [
    "avazu_like_trace", "criteo_like_trace", "power_law_trace", "skew_trace", "terabyte_like_trace", "zipf_trace",
]  # fmt: skip

Draw: TypeAlias = Callable[[int, np.random.Generator], NDArray[np.int64]]
"""So many ids of one table."""

Pooling: TypeAlias = "Sequence[float] | None"
"""The mean of the ids that an example looks up in each table, of one for all of them; None for one id, no bags."""

_MOST_POOLING = 10_000
_MOST_REPEATS = 1000
_NEAR = 4096
"""Lookups of a table among which those of one id that was drawn once are spread."""


def criteo_like_trace(examples: int, seed: int = 0, pooling: Pooling = None, repeats: float = 1.0) -> Trace:
    """A trace with the table sizes of Criteo Kaggle and laws fitted to what is published about it.

    Says what `criteo_kaggle.json` says of its fit: counts of distinct ids are met within 0.88 - 1.13, but examples
    here are independent of each other and those of a real log aren't, so savings on it are indicative.
    """
    return _like("criteo-kaggle", "criteo-like", examples, seed, pooling, repeats)


def avazu_like_trace(examples: int, seed: int = 0, pooling: Pooling = None, repeats: float = 1.0) -> Trace:
    """A trace with the table sizes of Avazu, each with the law of Criteo Kaggle's table that is nearest in size.

    Of Avazu's own accesses nothing is published (`avazu.json`), so savings on it are indicative.
    """
    return _like("avazu", "avazu-like", examples, seed, pooling, repeats)


def terabyte_like_trace(examples: int, seed: int = 0, pooling: Pooling = None, repeats: float = 1.0) -> Trace:
    """A trace with the table sizes of Criteo Terabyte, with laws as Avazu's (`criteo_terabyte.json`)."""
    return _like("criteo-terabyte", "terabyte-like", examples, seed, pooling, repeats)


def _like(dataset: str, name: str, examples: int, seed: int, pooling: Pooling, repeats: float) -> Trace:
    names, laws = table_laws(dataset)
    return power_law_trace(name, laws, examples, seed, names, pooling, repeats)


def zipf_trace(
    table_rows: Sequence[int], exponent: float, examples: int, seed: int = 0, pooling: Pooling = None,
    repeats: float = 1.0,
) -> Trace:  # fmt: skip
    """p(id r) ~ (r + 1)^-exponent in each table, exponent 1 to 5 (section 5.4.3)."""
    if not 1 <= exponent <= 5:
        raise InputError(f"zipf trace: the exponent must be in 1..5, got {exponent}")
    laws = [PowerLaw(rows, exponent) for rows in table_rows]
    return power_law_trace(f"zipf-{exponent:g}", laws, examples, seed, pooling=pooling, repeats=repeats)


def power_law_trace(
    name: str, laws: Sequence[PowerLaw], examples: int, seed: int = 0, table_names: Sequence[str] = (),
    pooling: Pooling = None, repeats: float = 1.0,
) -> Trace:  # fmt: skip
    """A trace whose tables follow the given laws."""
    draws = [law.sampler().draw for law in laws]
    return _generated(name, draws, [law.rows for law in laws], examples, seed, table_names, pooling, repeats)


def skew_trace(
    table_rows: Sequence[int], hot_share: float, examples: int, seed: int = 0, pooling: Pooling = None,
    repeats: float = 1.0,
) -> Trace:  # fmt: skip
    """A share of accesses falls on the hottest 1 % of each table, the rest evenly on its other rows (section 5.4.3).

    Within the hottest 1 %, h rows, p falls as exp(-rate r) with the rate at which the uncut exponential law gives
    them exactly the share: 1 - exp(-rate h) = share. A share of 1 % is then almost no skew.
    """
    if not 0.01 <= hot_share < 1:
        raise InputError(f"skew trace: the share of the hottest 1 % must be in 0.01..1, below 1, got {hot_share}")
    draws = [_skewed(rows, hot_share) for rows in table_rows]
    return _generated(f"skew-{hot_share:g}", draws, table_rows, examples, seed, pooling=pooling, repeats=repeats)


def _skewed(rows: int, hot_share: float) -> Draw:
    hot = math.ceil(rows / 100)
    per_rate = -hot / math.log1p(-hot_share)
    per_share = (rows - hot) / (1 - hot_share)

    def draw(count: int, chance: np.random.Generator) -> NDArray[np.int64]:
        uniform = chance.random(count)
        hottest = np.minimum(np.log1p(-np.minimum(uniform, hot_share)) * -per_rate, hot - 1)
        others = np.minimum((uniform - hot_share) * per_share + hot, rows - 1)
        return np.where(uniform < hot_share, hottest, others).astype(np.int64)

    return draw


def _repeated(draw: Draw, repeats: float) -> Draw:
    """Each id that is drawn serves a geometric number of lookups, `repeats` on average, that lie near each other."""

    def drawn(count: int, chance: np.random.Generator) -> NDArray[np.int64]:
        lengths = chance.geometric(1 / repeats, count)
        lengths = lengths[: int(np.searchsorted(np.cumsum(lengths), count)) + 1]
        ids = np.repeat(draw(len(lengths), chance), lengths)[:count]
        return ids[np.argsort(np.arange(count) + chance.random(count) * _NEAR)]

    return drawn


def _generated(
    name: str, draws: Sequence[Draw], table_rows: Sequence[int], examples: int, seed: int,
    table_names: Sequence[str] = (), pooling: Pooling = None, repeats: float = 1.0,
) -> Trace:  # fmt: skip
    if not 1 <= repeats <= _MOST_REPEATS:
        raise InputError(f"trace {name!r}: repeats must be in 1..{_MOST_REPEATS}, got {repeats:g}")
    if repeats > 1:
        name, draws = f"{name}-repeats-{repeats:g}", [_repeated(draw, repeats) for draw in draws]
    factors = _factors(name, pooling, len(draws))
    if examples < 1:
        raise InputError(f"trace {name!r}: examples must be >= 1, got {examples}")
    if seed < 0:
        raise InputError(f"trace {name!r}: the seed must be >= 0, got {seed}")

    def blocks() -> Iterator[Block]:
        for number, start in enumerate(range(0, examples, BLOCK_EXAMPLES)):
            chance = np.random.Generator(np.random.SFC64([seed, number]))
            # A whole block even at the end: a longer trace then begins with the shorter one.
            if factors is not None:
                lengths = 1 + chance.poisson(factors - 1, (BLOCK_EXAMPLES, len(draws)))
                ids = [draw(int(count), chance) for draw, count in zip(draws, lengths.sum(axis=0), strict=True)]
                yield bags_of_tables(ids, lengths)[: examples - start]
                continue
            columns = np.empty((len(draws), BLOCK_EXAMPLES), dtype=np.int64)
            for column, draw in zip(columns, draws, strict=True):
                column[:] = draw(BLOCK_EXAMPLES, chance)
            yield columns.T[: examples - start]

    names = tuple(table_names) or tuple(f"table{number}" for number in range(len(draws)))
    return Trace(name, names, blocks, tuple(table_rows), examples)


def _factors(name: str, pooling: Pooling, tables: int) -> NDArray[np.float64] | None:
    """A pooling factor of each table."""
    if pooling is None:
        return None
    factors = np.asarray(pooling, dtype=np.float64)
    if factors.shape not in ((1,), (tables,)):
        raise InputError(
            f"trace {name!r}: pooling factors must be one, or one for each of {tables} tables, got {len(pooling)}"
        )
    if not (factors >= 1).all() or factors.max() > _MOST_POOLING:
        bad = factors[~((factors >= 1) & (factors <= _MOST_POOLING))][0]
        raise InputError(f"trace {name!r}: pooling factors must be in 1..{_MOST_POOLING}, got {bad:g}")
    return np.broadcast_to(factors, (tables,))
