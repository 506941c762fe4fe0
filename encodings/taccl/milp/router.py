"""Router: a model that routes a problem that doesn't reduce, and the families of constraints that all of them share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ids
from gapless.encodings.taccl.chunked import Chunked
from gapless.encodings.taccl.flow.paths import groups_of_links
from gapless.encodings.taccl.ordering.sends import Routing
from gapless.model import Model

__all__ = ["Router", "add_distinct", "time_covers_every_link_and_side", "used_links_are_counted"]


@dataclass(frozen=True, kw_only=True)
class Router(ABC):
    """A routing model of a problem, and where its variables are; its objective is still to be set.

    `time`: the column to be minimised. Times in the model are in units of `unit_s`, the fastest link's time for a
    chunk, because solvers work to absolute tolerances. `is_util[l]`: column that says whether link l of a
    switch-hyperedge is used, else -1. `bound`: one that is known beforehand, in the same units.
    """

    model: Model
    problem: Chunked
    is_util: Ids
    time: int
    unit_s: float
    bound: float | None = None

    @property
    @abstractmethod
    def proves(self) -> bool:
        """Whether a bound on the time holds for every routing, not only for those in the model."""

    @property
    @abstractmethod
    def ties(self) -> tuple[Floats, Ids]:
        """(coefficients, columns) of what is worth minimising among routings of equal time."""

    @abstractmethod
    def decode(self, values: Floats) -> Routing:
        """The routing of a solution."""

    def least_time_model(self) -> Model:
        """The model, set to minimise the time (5.1)."""
        self.model.minimize((1.0, [self.time]))
        return self.model


def time_covers_every_link_and_side(
    model: Model, problem: Chunked, time: int, link: Ids, column: Ids, occupancy: Floats
) -> None:
    """The time is at least what all chunks on a link, a switch side or a NIC take together (5.6, 5.7, 5.8).

    `column[k]`: how much goes over `link[k]`; `occupancy[l]`: how long one chunk holds link l, in the unit of the time.
    """
    groups_of = groups_of_links(problem)
    count = np.array([len(groups) for groups in groups_of], dtype=np.int64)
    flat = np.concatenate([np.array(groups, dtype=np.int64) for groups in groups_of])
    entry = np.repeat(np.arange(len(link)), count[link])
    first = np.append(0, np.cumsum(count[link]))[:-1]
    rows = flat[(np.cumsum(count) - count)[link[entry]] + np.arange(len(entry)) - first[entry]]
    used = np.unique(rows)
    add_distinct(
        model,
        "time_covers_link",
        np.concatenate([rows, used]),
        np.concatenate([column[entry], np.full(len(used), time)]),
        np.concatenate([-occupancy[link[entry]], np.ones(len(used))]),
        lower=0.0,
    )


def used_links_are_counted(model: Model, util: Ids, sent: Ids) -> None:
    """A switched link, column `util[k]`, counts as used if and only if some `sent[k]` goes over it (5.9, 5.10)."""
    if not len(util):
        return
    util, sent = np.unique(np.stack([util, sent]), axis=1)
    model.add("used_if_sent", (1.0, util[:, None]), (-1.0, sent[:, None]), lower=0.0, cite="5.9")
    utils, row = np.unique(util, return_inverse=True)
    model.add_sparse(
        "sent_if_used",
        len(utils),
        np.concatenate([row, np.arange(len(utils))]),
        np.concatenate([sent, utils]),
        np.concatenate([np.ones(len(row)), -np.ones(len(utils))]),
        lower=0.0,
        cite="5.10",
    )


def add_distinct(
    model: Model, family: str, rows: Ids, columns: Ids, values: Floats | float, lower: float = -np.inf,
    upper: float = np.inf, cite: str = "",
) -> None:  # fmt: skip
    """Add rows that share their bounds, each only once: rows of one orbit are the same row."""
    values = np.broadcast_to(np.asarray(values, dtype=np.float64), columns.shape)
    order = np.lexsort((columns, rows))
    rows, columns, values = rows[order], columns[order], values[order]
    cuts = np.flatnonzero(np.diff(rows)) + 1
    distinct: dict[tuple[bytes, bytes], tuple[Ids, Floats]] = {}
    for its_columns, its_values in zip(np.split(columns, cuts), np.split(values, cuts), strict=True):
        distinct.setdefault((its_columns.tobytes(), its_values.tobytes()), (its_columns, its_values))
    lengths = [len(its_columns) for its_columns, _ in distinct.values()]
    model.add_sparse(
        family,
        len(distinct),
        np.repeat(np.arange(len(distinct)), lengths),
        np.concatenate([its_columns for its_columns, _ in distinct.values()]),
        np.concatenate([its_values for _, its_values in distinct.values()]),
        lower=lower,
        upper=upper,
        cite=cite,
    )
