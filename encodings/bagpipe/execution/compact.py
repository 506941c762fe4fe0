"""Compact runs: only the rows that a run uses, so that tables of any size are trained in a few megabytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.execution.stream import BatchToRun
from gapless.encodings.bagpipe.ids.distinct import distinct
from gapless.profiles.traces.trace import TABLE_SHIFT, split_global_ids

__all__ = ["compact_batches", "shard_of_rows", "used_rows", "whole_tables"]


def used_rows(batches: Iterable[BatchToRun], tables: int) -> tuple[Ints, tuple[int, ...]]:
    """All ids that batches use, ascending, and how many rows each table has of them; at least one."""
    ids = distinct(np.concatenate([batch.actions.ids for batch in batches]))
    table, _ = split_global_ids(ids)
    return ids, tuple(np.maximum(np.bincount(table, minlength=tables), 1).tolist())


def whole_tables(batches: Iterable[BatchToRun], tables: int) -> tuple[int, ...]:
    """How many rows each table must have, by its largest id."""
    rows = np.ones(tables, dtype=np.int64)
    for batch in batches:
        table, ids = split_global_ids(batch.actions.ids)
        np.maximum.at(rows, table, ids + 1)
    return tuple(rows.tolist())


def compact_batches(batches: Sequence[BatchToRun], ids: Ints) -> tuple[BatchToRun, ...]:
    """The same batches, with the rows of each table numbered as `ids` has them."""
    table, _ = split_global_ids(ids)
    firsts = np.searchsorted(table, table)
    renumbered = (table << TABLE_SHIFT) + np.arange(len(ids)) - firsts
    return tuple(
        replace(batch, actions=replace(batch.actions, ids=renumbered[np.searchsorted(ids, batch.actions.ids)]))
        for batch in batches
    )


def shard_of_rows(batches: Iterable[BatchToRun], table_rows: Sequence[int]) -> Ints:
    """The trainer that holds each row, of tables that lie on trainers; -1 for a row that no batch uses."""
    firsts = np.cumsum([0, *table_rows])
    shard = np.full(firsts[-1], -1)
    for batch in batches:
        table, id_ = split_global_ids(batch.actions.ids)
        shard[firsts[table] + id_] = batch.actions.private_to
    return shard
