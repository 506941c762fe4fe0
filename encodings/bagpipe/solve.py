"""The solver of a run: every batch is looked at, partitioned and counted; then all of them are laid out in time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gapless import __version__
from gapless.checker import check
from gapless.encodings.bagpipe.actions import BY_ROW, RowGroups
from gapless.encodings.bagpipe.budget import Budget, Pace
from gapless.encodings.bagpipe.costs import capacities
from gapless.encodings.bagpipe.counts import Counts
from gapless.encodings.bagpipe.lowering import to_schedule
from gapless.encodings.bagpipe.machine import Machine
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import checked_method
from gapless.encodings.bagpipe.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.problem import Problem
from gapless.encodings.bagpipe.replication import choose_replicated
from gapless.encodings.bagpipe.run import Run, plan_run
from gapless.encodings.bagpipe.run_file import Product
from gapless.options import Deadline, SolveOptions
from gapless.solution import Solution, Status, StopReason
from gapless.system import Plan

__all__ = ["machine_for", "solve"]

_SAMPLE = 2**13
"""Rows of the first batch on which it is measured what lowering and replaying take where every row goes alone."""

_WITH_WRITING = 1.5
"""Of the time to lower and replay a batch: with writing it."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Plan the run and lower it. With too little time, or interrupted, batches that were planned are a run themselves.

    `parameters`: all defaults if None.
    """
    deadline, parameters, pace = Deadline(options), parameters or Parameters(), Pace()
    checked_method(problem.planning.objective, problem.planning.method, options.solver)
    problem, replication = _with_replicated(problem, parameters, deadline)
    if options.time_limit_s is not None:
        first, pace = _first_batch(problem, options, parameters, deadline)
        if deadline.over or (
            problem.batch_count != 1 and deadline.remaining_s <= pace.read_s + 2 * (pace.plan_s + pace.finish_s)
        ):
            deadline.strike()
            return replace(first, details={**first.details, **replication})
    run = Run(design=problem.planning.design)
    budget = Budget(deadline, pace, problem.batch_count)

    def offer(batches: int) -> None:
        if options.on_plan is not None:
            options.on_plan(-float(batches), partial(_plan, problem, run, batches, options, deadline))

    plan_run(run, problem, options, parameters, deadline, budget, offer)
    plan = _plan(problem, run, len(run.rows), options, deadline)
    return replace(plan, details={**plan.details, **replication})


def _with_replicated(
    problem: Problem, parameters: Parameters, deadline: Deadline
) -> tuple[Problem, dict[str, Any]]:  # fmt: skip
    """The problem with the tables that stay on every trainer, and what is said of the choice."""
    if problem.replicate_budget_bytes is None:
        return problem, {}
    found = choose_replicated(
        problem.trace, problem.planning, problem.cluster, problem.replicate_budget_bytes, parameters, deadline
    )
    names = problem.trace.table_names
    return replace(problem, planning=replace(problem.planning, replicated=found.tables)), {
        "replicated_tables": [names[table] for table in found.tables],
        "replicated_bytes": found.size_bytes,
        "replication_saved_s": found.saved_s,
        "replication_bound_s": found.bound_s,
    }


def _first_batch(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline
) -> tuple[Plan, Pace]:  # fmt: skip
    """The run of the first batch alone in the quickest partition, and what a batch takes therefore."""
    alone = replace(problem, planning=replace(problem.planning, batches=1, method="contiguous"))
    run, begin_s, unlimited = Run(design=problem.planning.design), deadline.elapsed_s, SolveOptions()
    plan_run(run, alone, unlimited, parameters, deadline, Budget(Deadline(unlimited), Pace(), 1))
    run.optimised = int(problem.planning.method == "contiguous")
    planned_s = deadline.elapsed_s - begin_s
    plan = _plan(problem, run, 1, options, deadline)
    if deadline.over:
        return plan, Pace()
    assert plan.schedule is not None
    check(plan.schedule)
    read_s = min(run.timings["lookahead"], planned_s)
    finish_s = deadline.elapsed_s - begin_s - planned_s
    batch = run.actions[0]
    rows = np.arange(0, len(batch.ids), -(-len(batch.ids) // _SAMPLE))
    sample = replace(batch, **{name: getattr(batch, name)[rows] for name in (*BY_ROW, "users")})
    assert plan.product is not None
    check(to_schedule([sample], plan.product.times, plan.product.machine, RowGroups.finest(sample)))
    alone_s = (deadline.elapsed_s - begin_s - planned_s - finish_s) * len(batch.ids) / len(rows)
    return plan, Pace(read_s, planned_s - read_s, _WITH_WRITING * finish_s, alone_s)


def _plan(problem: Problem, run: Run, batches: int, options: SolveOptions, deadline: Deadline) -> Plan:
    """The run that ends after so many batches, lowered."""
    ended = run.first(batches)
    counts = ended.counts
    times = pipeline(counts, problem.cluster, problem.planning.design)
    machine = machine_for(problem, counts)
    schedule = to_schedule(ended.actions, times, machine)
    solution = Solution(
        Status.FEASIBLE, StopReason.INTERRUPTED if options.stop.is_set() else StopReason.FINISHED,
        f"lookahead+{problem.planning.objective}", __version__, options.seed, deadline.elapsed_s,
        objective=float(schedule.end_s.max()),
    )  # fmt: skip
    product = Product(ended.actions, ended.users, ended.trainer, times, machine)
    return Plan(solution, schedule, _details(ended, counts, times), run.timings, product)


def machine_for(problem: Problem, counts: Counts) -> Machine:
    """The machine of a run: with the cache that was given, or one that holds just what the lookahead counts."""
    planning = problem.planning
    share = capacities(planning.batch_size, planning.trainers, planning.shares)
    rows = problem.trace.table_rows
    replicated = sum(rows[table] for table in planning.replicated) if rows is not None else 0
    return Machine(problem.cluster, share, replicated + (planning.cache_rows or int(counts.cache_rows.max())))


def _details(run: Run, counts: Counts, times: Pipeline) -> dict[str, Any]:
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
        "examples": sum(int(batch.examples.sum()) for batch in run.actions),
        "iteration_s": times.iteration_s,
        "stall_s": times.stall_s,
    }
