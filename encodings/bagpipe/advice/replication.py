"""Replicated tables: those that stay on every trainer, chosen for a memory budget.

A row of such a table is fetched by all trainers when the run first uses it, stays on all of them, and is written back
once, at the end. Its gradients are synchronised as those of cached rows, by the rows that a batch touches: the whole
table's would be no fewer. What that saves is what is fetched and evicted again and again; what it costs is the
synchronisation of rows that one trainer alone uses before they are evicted, and the fetches of rows used once.

**The choice.** Seconds on the networks, of the servers in each direction and of the trainers, add up over tables as
long as examples stay on their trainers. So the best set of tables is that of a knapsack, solved exactly: its bound
holds for every set of tables within the budget, with the examples as they are partitioned.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.cluster import Cluster
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import REPLICATING, Planning
from gapless.errors import InputError
from gapless.model import Model
from gapless.options import Deadline
from gapless.profiles.traces.trace import TABLE_SHIFT, Trace
from gapless.solvers.proofs import solve_proven

__all__ = ["Replication", "choose_replicated", "saved_s"]


@dataclass(frozen=True)
class Replication:
    """The chosen `tables`, by number, and their `size_bytes` on each trainer.

    `saved_s`: seconds on the networks that they save in the batches that were looked at; `bound_s`: what no set of
    tables within the budget is above.
    """

    tables: tuple[int, ...]
    size_bytes: int
    saved_s: float
    bound_s: float


def choose_replicated(
    trace: Trace, planning: Planning, cluster: Cluster, budget_bytes: int, parameters: Parameters, deadline: Deadline
) -> Replication:
    """The tables that save most on a trace's first batches (`Parameters.replication`), or on those that time allows.

    Raises `InputError` for a budget below every table, a trace that doesn't know its tables' rows, and a design in
    which rows don't lie on all trainers.
    """
    if planning.design not in REPLICATING:
        raise InputError(f"replicate_budget: goes with a design of {', '.join(REPLICATING)}, got {planning.design}")
    if trace.table_rows is None:
        raise InputError("replicate_budget: needs the rows of each table of the trace; give table_rows")
    sizes = np.array(trace.table_rows, dtype=np.int64) * cluster.row_bytes
    if budget_bytes < sizes.min():
        rule = f"must hold a table; the smallest has {sizes.min():,} bytes on each trainer"
        raise InputError(f"replicate_budget: {rule}, got {budget_bytes:,}")
    most = parameters.replication.batches
    asked = replace(planning, batches=min(most, planning.batches or most))
    plans = batch_plans(trace, asked, parameters)
    saved = saved_s((plan for plan in islice(plans, most) if not deadline.over), cluster, len(sizes))
    return _knapsack(saved, sizes, budget_bytes, deadline)


def saved_s(plans: Iterable[BatchPlan], cluster: Cluster, tables: int) -> Floats:
    """Seconds on the networks that replicating each table saves in these batches, together; float64, shape (tables,).

    `plans`: with nothing replicated.
    """
    trainers = cluster.trainers
    fetched, evicted, private = (np.zeros(tables, dtype=np.int64) for _ in range(3))
    seen = np.empty(0, dtype=np.int64)
    for plan in plans:
        step, table = plan.step, plan.step.ids >> TABLE_SHIFT
        copies = np.where(plan.is_private, 1, trainers) * step.prefetched
        fetched += np.bincount(table, weights=copies, minlength=tables).astype(np.int64)
        evicted += np.bincount(table[step.evicted], minlength=tables)
        private += np.bincount(table[plan.is_private], minlength=tables)
        seen = np.union1d(seen, step.prefetch_ids)
    once = np.bincount(seen >> TABLE_SHIFT, minlength=tables)
    served_s = cluster.row_bytes * cluster.server_byte_s
    more = cluster.all_reduce_s(float(2 * cluster.gradient_bytes)) - cluster.all_reduce_s(float(cluster.gradient_bytes))
    saved: Floats = served_s * (fetched - trainers * once + evicted - once) - more * private
    return saved


def _knapsack(saved: Floats, sizes: Ints, budget_bytes: int, deadline: Deadline) -> Replication:
    """The tables that save most within the budget."""
    worth = np.flatnonzero((saved > 0) & (sizes <= budget_bytes))
    if not len(worth):
        return Replication((), 0, 0.0, 0.0)
    model = Model("bagpipe replicated tables")
    is_chosen = model.binaries("replicated", len(worth))
    model.add("budget", (sizes[worth] / budget_bytes, is_chosen), upper=1.0)
    unit = float(saved[worth].max())
    model.minimize((-saved[worth] / unit, is_chosen))
    solution = solve_proven(model, deadline.stage())
    chosen = np.empty(0, dtype=np.int64) if solution.values is None else worth[solution.values[is_chosen] > 0.5]
    found_s = float(saved[chosen].sum())
    bound_s = float(saved[worth].sum()) if solution.bound is None else max(found_s, -solution.bound * unit)
    return Replication(tuple(chosen.tolist()), int(sizes[chosen].sum()), found_s, bound_s)
