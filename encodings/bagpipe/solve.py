"""The solver of a run: every batch is looked at, partitioned, counted and filed; then all are laid out in time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gapless import __version__
from gapless.encodings.bagpipe.budget import Budget, Pace
from gapless.encodings.bagpipe.counts import Counts
from gapless.encodings.bagpipe.machine import Machine
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import checked_method
from gapless.encodings.bagpipe.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.resuming import Begun, begun, share_of
from gapless.encodings.bagpipe.run import Run, plan_run, written_back
from gapless.encodings.bagpipe.run_file import RunPlan
from gapless.encodings.bagpipe.run_reader import RunFile
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["machine_for", "solve"]

_WITH_WRITING = 1.5
"""Of the time to lower and replay a batch: with writing it."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Plan the run. With too little time, or interrupted, batches that were planned are a run themselves.

    `parameters`: all defaults if None.
    """
    deadline, parameters, pace, first = Deadline(options), parameters or Parameters(), Pace(), None
    checked_method(problem.planning.objective, problem.planning.method, options.solver)
    if options.time_limit_s is not None:
        first, pace = _first_batch(problem, options, parameters, deadline)
        if deadline.over or (problem.batch_count != 1 and deadline.remaining_s <= 2 * (pace.plan_s + pace.finish_s)):
            deadline.strike()
            return first
    with begun(problem, options.unfinished) as begin:
        run = Run(begin.writer, problem.planning.trainers, problem.planning.design)
        plan_run(run, problem, options, parameters, deadline, Budget(deadline, pace), begin.known)
        if run.rows:
            return _ended(problem, run, begin, options, deadline)
    return first or _first_batch(problem, options, parameters, deadline)[0]


def _first_batch(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline
) -> tuple[Plan, Pace]:  # fmt: skip
    """The run of the first batch alone in the quickest partition, and what a batch takes therefore."""
    alone = replace(problem, planning=replace(problem.planning, batches=1, method="contiguous"), resume=None)
    begin_s, unlimited = deadline.elapsed_s, SolveOptions()
    with begun(alone, None) as begin:
        run = Run(begin.writer, problem.planning.trainers, problem.planning.design)
        plan_run(run, alone, unlimited, parameters, deadline, Budget(Deadline(unlimited), Pace()))
        run.optimised = int(problem.planning.method == "contiguous")
        planned_s = deadline.elapsed_s - begin_s
        plan = _ended(problem, run, begin, options, deadline)
    if not deadline.over:
        assert plan.windows is not None
        plan.windows.replay()
    return plan, Pace(planned_s, _WITH_WRITING * (deadline.elapsed_s - begin_s - planned_s))


def _ended(problem: Problem, run: Run, begin: Begun, options: SolveOptions, deadline: Deadline) -> Plan:
    """The run, laid out in time."""
    run.writer.close()
    file = RunFile(problem.trace.name, begin.kept())
    counts, back = written_back(run, file)
    times = pipeline(counts, problem.cluster, problem.planning.design)
    plan = RunPlan(file, times, machine_for(problem, counts), back, begin.path, partial(_say, options, deadline))
    solution = Solution(
        Status.FEASIBLE, StopReason.INTERRUPTED if options.stop.is_set() else StopReason.FINISHED,
        f"lookahead+{problem.planning.objective}", __version__, options.seed, deadline.elapsed_s,
        objective=times.makespan_s,
    )  # fmt: skip
    details = _details(run, file, counts, times)
    return Plan(solution, plan.schedule(), details, run.timings, windows=plan)


def _say(options: SolveOptions, deadline: Deadline, done: int, total: int) -> None:
    if options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, None, None, "batches replayed", done=done, total=total))


def machine_for(problem: Problem, counts: Counts) -> Machine:
    """The machine of a run: with the cache that was given, or one that holds just what the lookahead counts."""
    planning = problem.planning
    return Machine(problem.cluster, share_of(problem), planning.cache_rows or int(counts.cache_rows.max()))


def _details(run: Run, file: RunFile, counts: Counts, times: Pipeline) -> dict[str, Any]:
    cost, bound, max_load = np.array(run.measured).T
    batches = {
        "fetched_rows": counts.prefetched.astype(np.float64),
        "sync_now_rows": times.rows.sync_now.astype(np.float64),
        "sync_later_rows": times.rows.sync_later.astype(np.float64),
        "peer_rows": times.rows.peer_rows.astype(np.float64),
        "evicted_rows": counts.evicted.astype(np.float64),
        "partition_cost": cost,
        "max_load_rows": max_load,
    }
    totals = {name: float(values.sum()) for name, values in batches.items()}
    return {
        **{name: round(total) for name, total in totals.items()},
        "max_load_rows": int(max_load.max()),
        "partition_bound": None if np.isnan(bound).any() else round(float(bound.sum())),
        "median": {name: float(np.median(values)) for name, values in batches.items()},
        "cache_rows_peak": int(counts.cache_rows.max()),
        "smallest_lookahead": int(counts.lookahead.min()),
        "batches_planned": counts.batches,
        "batches_optimised": run.optimised,
        "examples": int(file.examples.sum()),
        "iteration_s": times.iteration_s,
        "stall_s": times.stall_s,
    }
