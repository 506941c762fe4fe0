"""The solver of a run: every batch is looked at, partitioned and counted; then all of them are laid out in time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gapless import __version__
from gapless.encodings.bagpipe.actions import Actions
from gapless.encodings.bagpipe.batch_plans import BatchPlan, batch_plans
from gapless.encodings.bagpipe.costs import capacities
from gapless.encodings.bagpipe.counts import Counts, counted
from gapless.encodings.bagpipe.lowering import Machine, to_schedule
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.run_file import Product
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["Run", "machine_for", "plan_run", "solve"]


@dataclass
class Run:
    """The plans of a run, reduced to what trainers do; and what was measured of each batch."""

    actions: list[Actions] = field(default_factory=list)
    trainer: list[NDArray[np.int64]] = field(default_factory=list)
    users: list[NDArray[np.bool_]] = field(default_factory=list)
    measured: dict[str, list[float]] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    counts: Counts | None = None

    def take(self, plan: BatchPlan) -> None:
        self.actions.append(Actions.of(plan))
        self.trainer.append(plan.trainer)
        self.users.append(plan.users)
        found = {
            "partition_cost": plan.partition.value,
            "partition_bound": plan.partition.bound,
            "max_load_rows": plan.traffic.max_load,
        }
        for name, value in found.items():
            self.measured.setdefault(name, []).append(np.nan if value is None else float(value))
        bound_s = plan.partition.bound_s
        for stage, duration_s in (
            ("lookahead", plan.lookahead_s), ("partition", plan.partition_s - bound_s), ("bound", bound_s)
        ):  # fmt: skip
            self.timings[stage] = self.timings.get(stage, 0.0) + duration_s


def plan_run(problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline) -> Run | None:
    """Plan all batches; None if the deadline is over first."""
    run = Run()

    def passing() -> Iterable[BatchPlan]:
        for plan in batch_plans(problem.trace, problem.planning, parameters, options):
            run.take(plan)
            if options.on_progress is not None:
                done, total = plan.step.batch + 1, problem.batch_count
                options.on_progress(Progress(deadline.elapsed_s, None, None, "batches", done=done, total=total))
            yield plan
            if deadline.over:
                return

    run.counts = counted(passing())
    return None if deadline.over else run


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Plan the run and lower it. Interrupted, there is no plan: rows that are still cached would never be written back.

    `parameters`: all defaults if None.
    """
    deadline = Deadline(options)
    run = plan_run(problem, options, parameters or Parameters(), deadline)
    solution = Solution(
        Status.NO_SOLUTION,
        StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT,
        problem.planning.method,
        __version__,
        options.seed,
        deadline.elapsed_s,
    )
    if run is None or run.counts is None:
        return Plan(solution, None)
    times = pipeline(run.counts, problem.cluster)
    machine = machine_for(problem, run.counts)
    schedule = to_schedule(run.actions, times, machine)
    solution = Solution(
        Status.FEASIBLE, StopReason.FINISHED, f"lookahead+{problem.planning.objective}", __version__, options.seed,
        deadline.elapsed_s, objective=float(schedule.end_s.max()),
    )  # fmt: skip
    product = Product(run.actions, run.users, run.trainer, times, machine)
    return Plan(solution, schedule, _details(run, run.counts, times), run.timings, product)


def machine_for(problem: Problem, counts: Counts) -> Machine:
    """The machine of a run: with the cache that was given, or one that holds just what the lookahead counts."""
    planning = problem.planning
    share = capacities(planning.batch_size, planning.trainers, planning.shares)
    return Machine(problem.cluster, share, planning.cache_rows or int(counts.cache_rows.max()))


def _details(run: Run, counts: Counts, times: Pipeline) -> dict[str, Any]:
    batches = {
        "fetched_rows": counts.prefetched.astype(np.float64),
        "sync_now_rows": counts.sync_now.astype(np.float64),
        "sync_later_rows": counts.sync_later.astype(np.float64),
        "evicted_rows": counts.evicted.astype(np.float64),
        **{name: np.array(values) for name, values in run.measured.items()},
    }
    proven = not np.isnan(batches["partition_bound"]).any()
    bound = batches.pop("partition_bound")
    totals = {name: float(values.sum()) for name, values in batches.items()}
    return {
        **{name: round(total) for name, total in totals.items()},
        "max_load_rows": int(batches["max_load_rows"].max()),
        "partition_bound": round(float(bound.sum())) if proven else None,
        "median": {name: float(np.median(values)) for name, values in batches.items()},
        "cache_rows_peak": int(counts.cache_rows.max()),
        "smallest_lookahead": int(counts.lookahead.min()),
        "batches_planned": counts.batches,
        "examples": sum(int(batch.examples.sum()) for batch in run.actions),
        "iteration_s": times.iteration_s,
        "stall_s": times.stall_s,
    }
