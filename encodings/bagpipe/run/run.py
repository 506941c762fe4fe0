"""Run: the plans of batches one after the other, reduced to what trainers do; a run may end after any batch.

Batches go to a file as they are planned (`store.py`). What is cached when a run ends early is written back after
its last use, which changes the evictions of the last L batches: in the file that stands apart (`written_back`), so that
the run can go on later as if it had never ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.batch_plans import BatchPlan, Budget, NoTimeLeftError, batch_plans
from gapless.encodings.bagpipe.designs.counts import EVICTED, EVICTED_MOST, LOOKAHEAD, ROOTED, Counts, row_of
from gapless.encodings.bagpipe.designs.rooted_counts import EVICTED_ALONE, evicted_parts
from gapless.encodings.bagpipe.ids.row_map import RowMap
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.question import Question
from gapless.encodings.bagpipe.run.reader import RunFile
from gapless.encodings.bagpipe.run.store import KnownBatch, PlannedBatch, RunWriter
from gapless.errors import InputError
from gapless.options import Deadline, Progress, SolveOptions

__all__ = ["Run", "plan_run", "written_back"]

Mask = NDArray[np.bool_]


@dataclass
class Run:
    """What is known of all batches of a run beside what its file holds.

    `rows`: what `Counts` has of each batch. `measured`: what a partition costs, its bound, the largest load, NaN
    where unknown. `optimised`: how many batches have the partition that was asked for, not cut short. `is_whole`:
    whether the last batch is the last of the trace, or of those asked for. `is_replicated`: rows of some tables stay
    until the end.
    """

    writer: RunWriter
    trainers: int
    design: str = Question.design
    rows: list[tuple[int, ...]] = field(default_factory=list)
    measured: list[tuple[float, float, float]] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)
    optimised: int = 0
    is_whole: bool = False
    is_replicated: bool = False

    def take(self, plan: BatchPlan) -> None:
        """Add the plan of the next batch."""
        found = plan.partition
        bound = np.nan if found.bound is None else float(found.bound)
        measured = float(found.value), bound, float(plan.traffic.max_load)
        actions, counts = Actions.of(plan, self.design), row_of(plan)
        self.writer.add(PlannedBatch(actions, plan.trainer, counts, measured, found.is_cut))
        self._note(counts, measured, found.is_cut)

    def take_known(self, plan: BatchPlan, known: KnownBatch) -> None:
        """Go past a batch that is in the file already. Raises `InputError` where the trace has other ids."""
        if not np.array_equal(plan.step.ids, known.ids):
            rule = "must be those of the trace, aren't; is it made from another trace?"
            raise InputError(f"resume: ids of batch {plan.step.batch} {rule}")
        self._note(known.counts, known.measured, is_cut=False)

    def charge(self, plan: BatchPlan) -> None:
        """Add what a plan took to the timings."""
        found = plan.partition
        for stage, duration_s in (
            ("lookahead", plan.lookahead_s), ("partition", plan.partition_s - found.bound_s), ("bound", found.bound_s)
        ):  # fmt: skip
            self.timings[stage] = self.timings.get(stage, 0.0) + duration_s

    def _note(self, counts: tuple[int, ...], measured: tuple[float, float, float], is_cut: bool) -> None:
        self.rows.append(counts)
        self.measured.append(measured)
        self.optimised += not is_cut


def plan_run(
    run: Run, problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, budget: Budget,
    known: Iterable[KnownBatch] = (),
) -> None:  # fmt: skip
    """Plan all batches, or those for which there is time; each is added to the run. `known`: the first ones, which are
    in the file already.
    """
    coming: list[KnownBatch] = []

    def partitions() -> Iterator[NDArray[np.int64]]:
        for batch in known:
            coming.append(batch)
            yield batch.trainer

    try:
        for plan in batch_plans(problem.trace, problem.planning, parameters, options, budget, partitions()):
            if coming:
                run.take_known(plan, coming.pop(0))
            else:
                run.take(plan)
            run.charge(plan)
            done, total = len(run.rows), problem.batch_count
            if options.on_progress is not None:
                options.on_progress(Progress(deadline.elapsed_s, None, None, "batches", done=done, total=total))
            if not budget.goes_on():
                run.is_whole = done == total
                return
    except NoTimeLeftError:
        return
    run.is_whole = True


def written_back(run: Run, file: RunFile) -> tuple[Counts, dict[int, Mask]]:
    """The counts of a run, and by batch the rows that its end evicts beside those that were planned to be."""
    found: dict[int, Mask] = {}
    rows, later = list(run.rows), RowMap()
    for number in reversed(range(0 if run.is_whole and not run.is_replicated else file.batches)):
        if number + rows[number][LOOKAHEAD] < file.batches and not run.is_replicated:
            break  # whatever is cached then is used again before the end
        actions = file.actions(number)
        is_last = later.find(actions.ids) < 0
        later.add(actions.ids[is_last])
        found[number] = is_last & (actions.evicted == 0)
        evicted = (actions.evicted == 1) | is_last
        counts = list(rows[number])
        counts[EVICTED] = int(evicted.sum())
        owned = actions.private_to[evicted & (actions.private_to >= 0)]
        counts[EVICTED_MOST] = max(counts[EVICTED_MOST], int(np.bincount(owned, minlength=1).max()))
        if run.design == "lrpp-fine-grained":
            alone = actions.sync == 0
            counts[ROOTED + EVICTED_ALONE :] = evicted_parts(evicted, alone, actions.private_to, actions.trainers)
        rows[number] = tuple(counts)
    return Counts.of(run.trainers, rows), found
