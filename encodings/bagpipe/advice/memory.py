"""Memory: the lookahead, the cache and the replicated tables that a trainer's bytes are spent on.

A trainer holds at most

- the cached rows, each with the optimiser's state. A row has its place from the start of its prefetch until it is
  written back, so that prefetch buffers are among them; the replay counts these bytes (`memory-exceeded`);
- the gradients of two batches: those of batch x are synchronised in the background while x + 1 is trained. They are of
  the distinct rows of the largest batch, or of a trainer's lookups if these are fewer. The replay doesn't count them,
  nor that the first are freed while the dense gradients are all-reduced: they are set aside for the whole run;
- the tables that stay.

First gradients are set aside. The rest bounds the cache, and with it the lookahead: a longer one delays no prefetch,
but has more rows to synchronise. So lookaheads are tried in a series (`comparison.tune_lookahead`), with batches that
are cut contiguously, and the smallest within 1 % of the fastest is taken. None is tried above one that is within 1 % of
what passes and dense all-reduces take: no lookahead is faster than these. What the chosen one's cache leaves is for
tables, in designs in which rows may lie on all trainers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gapless.encodings.bagpipe.advice.comparison import tune_lookahead
from gapless.encodings.bagpipe.cluster import places_of
from gapless.encodings.bagpipe.ids.distinct import unique_ids
from gapless.encodings.bagpipe.problem import REPLICATING, Problem
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.profiles.traces.bags import Bags

__all__ = ["Shared", "within_memory"]

_BATCHES_OF_GRADIENTS = 2
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
    most, used = _largest(problem)
    gradients = _BATCHES_OF_GRADIENTS * used * cluster.gradient_bytes
    rows = (memory - gradients) // cluster.row_bytes
    if rows < most:
        rule = f"must hold the {most:,} rows of a batch, and gradients of two"
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


def _largest(problem: Problem) -> tuple[int, int]:
    """The distinct rows of the batch that has most, and how many of a batch's one trainer uses at most."""
    planning, most, used = problem.planning, 0, 0
    for batch in problem.trace.batches(planning.batch_size, planning.batches):
        rows = len(unique_ids(batch)[0])
        places = places_of(len(batch), planning.batch_size, planning.trainers, planning.shares)
        lookups = rows if isinstance(batch, Bags) else int(places.max()) * batch.shape[1]
        most, used = max(most, rows), max(used, min(rows, lookups))
    return most, used
