"""The solver of a run: every batch is looked at, partitioned, counted and filed; then all are laid out in time."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from gapless import __version__
from gapless.encodings.bagpipe.advice.memory import fits, within_memory
from gapless.encodings.bagpipe.advice.replication import Replication, choose_replicated
from gapless.encodings.bagpipe.baselines import compare, plannings
from gapless.encodings.bagpipe.batch_plans import Budget, Pace
from gapless.encodings.bagpipe.cluster import places_of
from gapless.encodings.bagpipe.designs.bound import first_uses, run_bound_s
from gapless.encodings.bagpipe.designs.counts import Counts
from gapless.encodings.bagpipe.designs.pipeline import Pipeline, pipeline
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition.methods import checked_choice
from gapless.encodings.bagpipe.problem import Problem, RunDecision
from gapless.encodings.bagpipe.question import SHARDED
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.run.reader import RunFile
from gapless.encodings.bagpipe.run.run import Begun, Run, begun, begun_by, plan_run, share_of, written_back
from gapless.io.reading import Limits
from gapless.methods.compiled import compilation_reported
from gapless.options import Deadline, Progress, SolveOptions
from gapless.solution import Bound, PlanClass, StopReason, claim_of
from gapless.system import Plan

__all__ = ["machine_for", "solve"]

_DECIDED = ("design", "objective", "method", "lookahead", "cache_rows")
"""Of a planning, what differs among the baselines."""
_WITH_WRITING = 1.5
"""Of the time to lower and replay a batch: with writing it."""


def solve(problem: Problem, options: SolveOptions, parameters: Parameters | None = None) -> Plan:
    """Plan the run. With too little time, or interrupted, batches that were planned are a run themselves. Without a
    time limit it is held against the baselines where the problem says so, and planned as the fastest if one is faster.

    `parameters`: all defaults if None.
    """
    deadline = Deadline(options)
    with compilation_reported(lambda line: _say(options, deadline, line)):
        return _compared(problem, options, parameters or Parameters())


def _compared(problem: Problem, options: SolveOptions, parameters: Parameters) -> Plan:
    """The plan of the run, or of the baseline that is faster."""
    if problem.memory_bytes is not None:
        deadline = Deadline(options)
        chosen, shared = within_memory(problem, deadline)
        plan = solve(chosen, deadline.stage(), parameters)
        if isinstance(plan.problem, Problem) and not fits(plan.problem, shared):  # a baseline whose gradients take more
            plan = solve(replace(chosen, compares=False), deadline.stage(), parameters)
        memory = {f"memory_{name}": size for name, size in vars(shared).items()}
        plan = _with_gradients(plan, shared.gradient_bytes)
        return replace(plan, details={**plan.details, **memory}, problem=plan.problem or chosen)
    if problem.compares and problem.resume is not None:
        problem = _begun_as(problem, problem.resume)
    plan, baselines = _solved(problem, options, parameters), parameters.baselines.batches
    if not (problem.compares and baselines) or options.time_limit_s is not None or options.stop.is_set():
        return plan
    own = plan.windows
    assert isinstance(own, RunPlan)
    assert isinstance(own.times, Pipeline)
    compared = compare(problem, own.times, own.machine.cache_rows, parameters)
    if compared.faster is None:
        seconds = {"this plan": compared.own_s, **compared.others_s}
        return replace(plan, details={**plan.details, "compared_batches": compared.batches, "compared_s": seconds})
    if own.unfinished is not None:
        own.unfinished.unlink(missing_ok=True)
    planning, others = compared.faster
    other = replace(problem, planning=planning, compares=False, resume=None)
    faster = replace(_solved(other, options, others), problem=other)
    return min(plan, faster, key=lambda each: (-_planned(each), each.solution.objective or 0.0))


def _with_gradients(plan: Plan, gradient_bytes: int) -> Plan:
    """The plan on a machine that counts gradients, which must stay within these bytes on each trainer."""
    run = plan.windows
    assert isinstance(run, RunPlan)
    run = replace(run, machine=replace(run.machine, gradient_bytes=gradient_bytes))
    return replace(plan, schedule=run.schedule(), windows=run)


def _begun_as(problem: Problem, resume: str) -> Problem:
    """What is gone on with: the baseline that the run in the file is, if it is one."""
    begun_as = begun_by(resume)
    cache_rows = begun_as.get("cache_rows")
    baselines = plannings(problem.planning, cache_rows if isinstance(cache_rows, int) else 1).values()
    same = (each for each in baselines if all(begun_as.get(name) == getattr(each, name) for name in _DECIDED))
    planning = next(same, None)
    return problem if planning is None else replace(problem, planning=planning, compares=False)


def _planned(plan: Plan) -> int:
    return plan.windows.count if plan.windows is not None else 0


def _solved(problem: Problem, options: SolveOptions, parameters: Parameters) -> Plan:
    deadline, pace, first = Deadline(options), Pace(), None
    checked_choice(problem.planning.objective, problem.planning.method, options.solver, parameters)
    problem, replicated = _with_replicated(problem, parameters, deadline)
    if options.time_limit_s is not None:
        first, pace = _first_batch(problem, options, parameters, deadline, replicated)
        if deadline.over or (problem.batch_count != 1 and deadline.remaining_s <= 2 * (pace.plan_s + pace.finish_s)):
            deadline.strike()
            return first
    with begun(problem, options.unfinished) as begin:
        run = Run(begin.writer, problem.planning)
        plan_run(run, problem, options, parameters, deadline, Budget(deadline, pace), begin.known)
        if run.rows:
            return _ended(problem, run, begin, options, deadline, replicated)
    return first or _first_batch(problem, options, parameters, deadline, replicated)[0]


def _with_replicated(
    problem: Problem, parameters: Parameters, deadline: Deadline
) -> tuple[Problem, Replication | None]:  # fmt: skip
    """The problem with the tables that stay on every trainer, and the choice where one was asked for."""
    if problem.replicate_budget_bytes is None:
        return problem, None
    chosen = choose_replicated(
        problem.trace, problem.planning, problem.cluster, problem.replicate_budget_bytes, parameters, deadline
    )
    return replace(problem, planning=replace(problem.planning, replicated=chosen.tables)), chosen


def _first_batch(
    problem: Problem, options: SolveOptions, parameters: Parameters, deadline: Deadline, replicated: Replication | None
) -> tuple[Plan, Pace]:  # fmt: skip
    """The run of the first batch alone in the quickest partition, and what a batch takes therefore."""
    alone = replace(problem, planning=replace(problem.planning, batches=1, method="contiguous"))
    begin_s, unlimited = deadline.elapsed_s, SolveOptions()
    with begun(replace(problem, resume=None), None) as begin:
        run = Run(begin.writer, problem.planning)
        plan_run(run, alone, unlimited, parameters, deadline, Budget(Deadline(unlimited), Pace()))
        run.optimised = int(problem.planning.method == "contiguous")
        planned_s = deadline.elapsed_s - begin_s
        plan = _ended(problem, run, begin, options, deadline, replicated)
    if not deadline.over:
        assert plan.windows is not None
        plan.windows.replay()
    return plan, Pace(planned_s, _WITH_WRITING * (deadline.elapsed_s - begin_s - planned_s))


def _ended(
    problem: Problem, run: Run, begin: Begun, options: SolveOptions, deadline: Deadline, replicated: Replication | None
) -> Plan:
    """The run, laid out in time."""
    run.writer.close()
    file = RunFile(problem.trace.name, begin.kept(), Limits.none(problem.trace.name))
    counts, back = written_back(run, file)
    times = pipeline(counts, problem.cluster, problem.planning.design)
    say = partial(_say, options, deadline, "batches replayed")
    plan = RunPlan(file, times, machine_for(problem, counts), back, begin.path, say)
    bound_s = _bound_s(problem, file)
    solution = claim_of(
        times.makespan_s, bound_s, options, solver=f"lookahead+{problem.planning.objective}", version=__version__,
        wall_s=deadline.elapsed_s, source="run", narrower=_of_partitions(run, problem.planning.objective),
        otherwise=StopReason.INTERRUPTED if options.stop.is_set() else StopReason.FINISHED,
    )  # fmt: skip
    names = problem.trace.table_names
    on_all = tuple(names[table] for table in problem.planning.replicated)
    decision = RunDecision(problem.planning.design, counts.batches, on_all)
    details = _details(run, file, counts, times, decision)
    if replicated is not None:
        details |= {
            "replicated_tables": list(on_all), "replicated_bytes": replicated.size_bytes,
            "replication_saved_s": replicated.saved_s, "replication_bound_s": replicated.bound_s,
        }  # fmt: skip
    return Plan(solution, plan.schedule(), details, windows=plan, decision=decision)


def _bound_s(problem: Problem, file: RunFile) -> float:
    """What no run of these batches is faster than; with tables on the trainers, none of those with them there."""
    planning, numbers = problem.planning, range(file.batches)
    first = last = np.zeros(file.batches, dtype=np.int64)
    if planning.design not in SHARDED:  # there no row has to come from servers, or go there
        first, last = (
            np.fromiter(first_uses(file.actions(number).ids for number in order), np.int64, file.batches)
            for order in (numbers, numbers[::-1])
        )
    asked = planning.batch_size, planning.trainers, planning.shares
    most = [int(places_of(count, *asked).max()) for count in file.examples.tolist()]
    return run_bound_s(np.array(most), first, last[::-1], problem.cluster)


def _of_partitions(run: Run, objective: str) -> list[Bound]:
    """What is proven of the partitions, where each batch has a bound: it holds after the batches before it alone."""
    cost, bound, _ = np.array(run.measured).T
    if np.isnan(bound).any():
        return []
    name = "of each batch after those before it, in partition cost"
    return [Bound(PlanClass.HISTORY, round(float(bound.sum())), objective, name, round(float(cost.sum())), "rows")]


def _say(
    options: SolveOptions, deadline: Deadline, phase: str, done: int | None = None, total: int | None = None
) -> None:  # fmt: skip
    if options.on_progress is not None:
        options.on_progress(Progress(deadline.elapsed_s, None, None, phase, done=done, total=total))


def machine_for(problem: Problem, counts: Counts) -> Machine:
    """The machine of a run: with the cache that was given, or one that holds just what the lookahead counts."""
    planning = problem.planning
    rows = problem.trace.table_rows
    replicated = sum(rows[table] for table in planning.replicated) if rows is not None else 0
    cached = planning.cache_rows or int(counts.cache_rows.max())
    sharding = (planning.design, problem.trace.table_count) if planning.design in SHARDED else ()
    return Machine(problem.cluster, share_of(problem), replicated + cached, *sharding)


def _details(
    run: Run, file: RunFile, counts: Counts, times: Pipeline, decision: RunDecision
) -> dict[str, object]:  # fmt: skip
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
        "partition_bound_after_history": None if np.isnan(bound).any() else round(float(bound.sum())),
        "median": {name: float(np.median(values)) for name, values in batches.items()},
        "cache_rows_peak": int(counts.cache_rows.max()),
        "smallest_lookahead": int(counts.lookahead.min()),
        "batches_planned": decision.batches_planned,
        "batches_optimised": run.optimised,
        "examples": int(file.examples.sum()),
        "iteration_s": times.iteration_s,
        "stall_s": times.stall_s,
    }
