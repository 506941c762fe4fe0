"""Run: the plans of batches one after the other, reduced to what trainers do; a run may end after any batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.actions import Actions
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.budget import Budget
from gapless.encodings.bagpipe.counts import EVICTED, EVICTED_MOST, ROOTED, Counts, row_of
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.rooted_counts import EVICTED_ALONE, evicted_parts
from gapless.options import Deadline, Progress, SolveOptions

__all__ = ["Run", "plan_run"]


@dataclass
class Run:
    """By batch: the actions, who trains on which example, who uses which row, whose part of the cache a row is in.

    `rows`: what `Counts` has of each batch. `measured`: what a partition costs, its bound, the largest load, NaN where
    unknown. `optimised`: how many batches have the partition that was asked for, not cut short. `is_whole`: whether the
    last batch is the last of the trace, or of those asked for.
    """

    actions: list[Actions] = field(default_factory=list)
    trainer: list[NDArray[np.int64]] = field(default_factory=list)
    users: list[NDArray[np.bool_]] = field(default_factory=list)
    owner: list[NDArray[np.int16]] = field(default_factory=list)
    rows: list[tuple[int, ...]] = field(default_factory=list)
    measured: list[tuple[float, float, float]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    optimised: int = 0
    is_whole: bool = False
    design: str = "lrpp-delayed"

    def take(self, plan: BatchPlan) -> None:
        """Add the plan of the next batch."""
        found = plan.partition
        bound = np.nan if found.bound is None else float(found.bound)
        self.actions.append(Actions.of(plan, self.design))
        self.trainer.append(plan.trainer)
        self.users.append(plan.users)
        self.owner.append(plan.owner_after.astype(np.int16))
        self.measured.append((float(found.value), bound, float(plan.traffic.max_load)))
        self.optimised += not found.is_cut
        for stage, duration_s in (
            ("lookahead", plan.lookahead_s), ("partition", plan.partition_s - found.bound_s), ("bound", found.bound_s)
        ):  # fmt: skip
            self.timings[stage] = self.timings.get(stage, 0.0) + duration_s
        self.rows.append(row_of(plan))  # last: others may look at the batches that have one

    @property
    def counts(self) -> Counts:
        """The counts of all batches."""
        return Counts.of(self.users[0].shape[1], self.rows)

    def first(self, batches: int) -> Run:
        """The run that ends after so many batches: what is still cached then is written back after its last use."""
        whole = self.is_whole and batches == len(self.rows)
        run = Run(
            self.actions[:batches], self.trainer[:batches], self.users[:batches], self.owner[:batches],
            self.rows[:batches], self.measured[:batches], self.timings, min(self.optimised, batches), True, self.design,
        )  # fmt: skip
        if not whole:
            run._write_back()
        return run

    def _write_back(self) -> None:
        ids = np.concatenate([batch.ids for batch in reversed(self.actions)])
        is_last = np.zeros(len(ids), dtype=np.int64)
        is_last[np.unique(ids, return_index=True)[1]] = 1
        end = len(ids)
        for number, batch in enumerate(self.actions):
            evicted = batch.evicted | is_last[end - len(batch.ids) : end]
            end -= len(batch.ids)
            self.actions[number] = replace(batch, evicted=evicted)
            row = list(self.rows[number])
            row[EVICTED] = int(evicted.sum())
            row[EVICTED_MOST] = int(np.bincount(self.owner[number][evicted == 1], minlength=1).max())
            if self.design == "lrpp-fine-grained":
                first = ROOTED + EVICTED_ALONE
                row[first:] = evicted_parts(evicted == 1, batch.sync == 0, batch.private_to, batch.trainers)
            self.rows[number] = tuple(row)


def plan_run(
    run: Run, problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, budget: Budget,
    on_batch: Callable[[int], None] = lambda batches: None,
) -> None:  # fmt: skip
    """Plan all batches, or those for which there is time, but at least the first; each is added to the run.

    `on_batch`: called with the number of batches so far.
    """
    for plan in batch_plans(problem.trace, problem.planning, parameters, options, budget):
        run.take(plan)
        done, total = len(run.rows), problem.batch_count
        if options.on_progress is not None:
            options.on_progress(Progress(deadline.elapsed_s, None, None, "batches", done=done, total=total))
        on_batch(done)
        partition_s = 0.0 if plan.partition.is_cut else plan.partition_s
        if not budget.plans_on(plan.step.rows, run.actions[-1].code, partition_s):
            return
    # Rows of replicated tables are written back when the run is over.
    run.is_whole = not problem.planning.replicated
