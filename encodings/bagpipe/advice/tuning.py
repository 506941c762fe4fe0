"""Tuning: which lookahead suits a cache, by the time of an iteration rather than by what fits.

The paper's rule takes all that fits: batches are prefetched until the cache is full, L is how many were, and shrinks
where a later window is wider. But beyond some L nothing gets faster (Table 5.3: 100), and the cache is better used for
something else: the tuner takes the smallest L that is within 1 % of the fastest that it tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from gapless.encodings.bagpipe.advice.comparison import LEAST_MEASURED, LookaheadSummary, lookahead_table
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.lookahead.steps import lookahead_steps
from gapless.encodings.bagpipe.problem import Planning
from gapless.encodings.bagpipe.question import Question
from gapless.errors import InputError
from gapless.options import Deadline
from gapless.profiles.traces.trace import Trace

__all__ = ["TOLERANCE", "Tuning", "candidates", "fitting_lookahead", "tune_lookahead"]

TOLERANCE = 0.01
"""How much slower than the fastest a smaller lookahead may be, as a share."""


@dataclass(frozen=True)
class Tuning:
    """What was tried, in order of the lookahead, and what follows.

    `rule`: the lookahead at start-up by the paper's rule; `settled`: what is left of it once windows have overflowed.
    `chosen`: the entry with the smallest lookahead within the tolerance of the fastest.
    """

    cache_rows: int
    rule: int
    settled: int
    tried: tuple[LookaheadSummary, ...]
    chosen: LookaheadSummary


def tune_lookahead(
    trace: Trace, planning: Planning, cluster: Cluster, design: str = Question.design, deadline: Deadline | None = None
) -> Tuning:
    """The lookahead for the cache of `planning`, which must have a size; its lookahead, if any, is the largest tried.

    Once the deadline is over, it is chosen among those that were tried by then.
    Raises `InputError` without a cache size, for a cache smaller than a batch, and as `lookahead_table` does.
    """
    if planning.cache_rows is None:
        raise InputError("cache_rows: must be given to tune the lookahead, got none")
    rule, settled = fitting_lookahead(trace, planning)
    table = lookahead_table(trace, planning, cluster, candidates(settled), design, deadline)
    limit_s = (1 + TOLERANCE) * min(entry.iteration_s for entry in table)
    chosen = next(entry for entry in table if entry.iteration_s <= limit_s)
    return Tuning(planning.cache_rows, rule, settled, table, chosen)


def fitting_lookahead(trace: Trace, planning: Planning) -> tuple[int, int]:
    """The lookahead that fits the cache: at start-up, by the paper's rule, and after a window and 50 batches more.

    Nothing is partitioned for it. Raises `InputError` for a cache smaller than a batch.
    """
    batches = trace.batches(planning.batch_size)
    steps = lookahead_steps(batches, planning.lookahead, planning.cache_rows)
    rule = next(steps).lookahead
    return rule, min((step.lookahead for step in islice(steps, rule + LEAST_MEASURED)), default=rule)


def candidates(most: int) -> list[int]:
    """Lookaheads to try: 1, 2, 5, 10, 20, 50, ... below `most`, and `most`.

    >>> candidates(60)
    [1, 2, 5, 10, 20, 50, 60]
    """
    if most < 1:
        raise InputError(f"lookahead: must be >= 1, got {most}")
    steps = [digit * 10**power for power in range(len(str(most))) for digit in (1, 2, 5)]
    return [*(step for step in steps if step < most), most]
