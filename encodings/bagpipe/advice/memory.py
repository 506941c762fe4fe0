"""Memory: the lookahead, the cache and the replicated tables that a trainer's bytes are spent on.

A trainer holds at most

- the cached rows, each with the optimiser's state. A row has its place from the start of its prefetch until it is
  written back, so that prefetch buffers are among them; the replay counts these bytes (`memory-exceeded`);
- gradients. While batch x is trained a trainer has those of the rows that x uses there, and of x - 1 those that are
  synchronised in the background meanwhile; all others of x - 1 are freed by then, once they are synchronised at once,
  before or with the dense gradients, or applied where one trainer alone has them. In between it has room for the sums
  of what is synchronised at once. The replay counts them, batch by batch, as the partition has it;
- the tables that stay.

First gradients are set aside. The rest bounds the cache, and with it the lookahead: a longer one delays no prefetch,
but has more rows to synchronise. So lookaheads are tried in a series (`comparison.tune_lookahead`), with batches that
are cut contiguously, and the smallest within 1 % of the fastest is taken. None is tried above one that is within 1 % of
what passes and dense all-reduces take: no lookahead is faster than these. What the chosen one's cache leaves is for
tables, in designs in which rows may lie on all trainers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.advice.comparison import tune_lookahead
from gapless.encodings.bagpipe.cluster import places_of
from gapless.encodings.bagpipe.ids.distinct import positions, unique_ids
from gapless.encodings.bagpipe.problem import REPLICATING, Problem
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.profiles.traces.bags import Bags
from gapless.profiles.traces.trace import Block

__all__ = ["Shared", "fits", "within_memory"]

_SHARE_OF_TIME = 0.25
"""Of what is left, for trying lookaheads."""


@dataclass(frozen=True)
class Shared:
    """How a trainer's bytes are shared out: for gradients, cached rows, and tables that stay."""

    gradient_bytes: int
    cache_bytes: int
    table_bytes: int


def within_memory(problem: Problem, deadline: Deadline) -> tuple[Problem, Shared]:
    """The problem with a lookahead, a cache and a budget for tables that fit `problem.memory_bytes`.

    The planning's lookahead is the largest that is tried. Raises `InputError` for memory that doesn't hold a batch.
    """
    planning, cluster, memory = problem.planning, problem.cluster, problem.memory_bytes
    assert memory is not None, "there is a memory to stay within"
    most, of_gradients = _largest(problem, planning.design)
    gradients = of_gradients * cluster.gradient_bytes
    rows = (memory - gradients) // cluster.row_bytes
    if rows < most:
        rule = f"must hold the {most:,} rows of a batch, and the gradients of {of_gradients:,}"
        raise InputError(f"memory: {rule}: {gradients + most * cluster.row_bytes:,} bytes, got {memory:,}")
    quick = replace(planning, cache_rows=rows, method="contiguous", batches=problem.batch_count)
    tries = Deadline(deadline.stage(_SHARE_OF_TIME * deadline.remaining_s))
    tuned = tune_lookahead(problem.trace, quick, cluster, planning.design, tries, 1.0)
    held = min(rows, tuned.chosen.cache_rows)
    replicates = planning.design in REPLICATING and problem.trace.table_rows is not None
    cache_rows = held if replicates else rows
    left = memory - gradients - cache_rows * cluster.row_bytes
    smallest = min(problem.trace.table_rows or (0,)) * cluster.row_bytes
    chosen = replace(
        problem,
        planning=replace(planning, lookahead=tuned.chosen.lookahead, cache_rows=cache_rows),
        replicate_budget_bytes=left if replicates and left >= smallest else None,
        memory_bytes=None,
    )
    return chosen, Shared(gradients, cache_rows * cluster.row_bytes, left if replicates else 0)


def fits(problem: Problem, shared: Shared) -> bool:
    """Whether what is set aside for gradients is enough in the problem's design."""
    return _largest(problem, problem.planning.design)[1] * problem.cluster.gradient_bytes <= shared.gradient_bytes


def _largest(problem: Problem, design: str) -> tuple[int, int]:
    """The distinct rows of the batch that has most, and of how many rows a trainer has gradients at most.

    While a batch is trained, these are of its own lookups, and of what is left of the batch before. While rows are
    synchronised at once, a trainer has a sum for each row that all have, or that it owns; rooted rows are summed where
    they are used.
    """
    planning, layout, most, held = problem.planning, LAYOUTS[design], 0, 0
    before = np.empty(0, dtype=np.int64)
    for batch in problem.trace.batches(planning.batch_size, planning.batches):
        ids, bounds = unique_ids(batch)
        places = places_of(len(batch), planning.batch_size, planning.trainers, planning.shares)
        lookups = len(ids) if isinstance(batch, Bags) else int(places.max()) * batch.shape[1]
        used = min(len(ids), lookups)
        left = int(np.isin(before, ids, assume_unique=True, invert=True).sum())
        summed = 0 if layout == "lrpp-fine-grained" else len(ids)
        most, held = max(most, len(ids)), max(held, used + left, summed)
        before = _later(ids, bounds, batch, layout)
    return most, held


def _later(ids: Ints, bounds: Ints, batch: Block, layout: str) -> Ints:
    """Rows of a batch that are synchronised in the background unless the next batch uses them, whatever the partition.

    A rooted row of one example alone has one user, which keeps its gradients for itself.
    """
    if layout != "lrpp-fine-grained":
        return ids if layout == "lrpp-delayed" else ids[:0]
    places = positions(ids, bounds, batch)
    slots = places.once().values if isinstance(places, Bags) else places.reshape(-1)
    return ids[np.bincount(slots, minlength=len(ids)) > 1]
