"""The recipe of every solve: the problem's system makes a plan, the replay says whether it is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

from gapless import __version__
from gapless.anytime.convergence import ProgressLog
from gapless.anytime.incumbents import INTERVAL_S, Incumbents
from gapless.anytime.overtime import Overtime
from gapless.errors import lacks_memory, must_be
from gapless.installation.extras import library_versions
from gapless.io.plan import replay_of
from gapless.methods.ledger import Ledger, spent_s
from gapless.options import Deadline, SolveOptions
from gapless.question.recorded import kept_question
from gapless.result import Asked, Result
from gapless.solution import Solution, Status, StopReason, refuted
from gapless.system import Plan, Problem, find_system

__all__ = ["solve"]


def solve(
    problem: Problem,
    options: SolveOptions | None = None,
    parameters: Any = None,
    command: str = "",
    on_result: Callable[[Result], None] | None = None,
) -> Result:
    """Solve a problem and replay its schedule.

    `options`: None for `problem.default_options`, whose gap also stands where the options state none; their time limit
    stands as it is, None for no limit. `parameters`: what the system's searches may be tuned by; None for its defaults.
    `command`: what somebody typed, for the plan file. `on_result`: called from a thread of its own with the best plan
    so far, replayed clean, at most every 30 s, for whatever may end this process. That nothing was found, or that there
    is nothing to find, is said by `result.status`; a solve that runs out of memory, or is interrupted by Ctrl-C, ends
    with the best plan that its system has offered; Ctrl-C is raised where there is none. Raises `InputError` for
    options or a problem that make no sense, `SolverError` where a backend is missing or fails.
    """
    is_problem = all(hasattr(problem, name) for name in ("system", "description")) and not isinstance(problem, Asked)
    must_be("problem", is_problem, "what gapless.<system>.problem(...) returns", problem)
    must_be("options", options is None or isinstance(options, SolveOptions), "SolveOptions or None", options)
    default = problem.default_options
    options = default if options is None else options.for_problem(default)
    deadline = Deadline(options)
    log = ProgressLog(options.on_progress, lambda: deadline.elapsed_s)
    question = kept_question(problem)
    made = {**({"command": command} if command else {}), **({} if question is None else {"question": question})}

    def offer(cost: float, make: Callable[[], Plan]) -> None:
        incumbents.offer(cost, lambda: _result(problem, _ended(make(), StopReason.INTERRUPTED), log, made, ledger))

    def keep(result: Result) -> None:
        if result.valid and on_result is not None:
            on_result(result)

    overtime = Overtime(deadline, lambda: not incumbents.is_empty)
    with Ledger() as ledger, closing(Incumbents(None if on_result is None else keep, INTERVAL_S)) as incumbents:
        try:
            asked, plan = replace(deadline.stage(), on_progress=log, on_plan=offer), None
            with overtime:
                plan = find_system(problem.system).plan(problem, asked, parameters)
            incumbents.close()  # none is replayed and written beside the answer
            if plan is None:
                return _late(incumbents.best(), options, ledger)
            claim = plan.solution
            says_more = claim.status is Status.INFEASIBLE or claim.stop_reason is StopReason.CONTRADICTED
            is_cut = deadline.has_struck and not says_more and not options.stop.is_set()
            return _result(problem, _ended(plan, StopReason.TIME_LIMIT) if is_cut else plan, log, made, ledger)
        except KeyboardInterrupt:  # as in a notebook: the first one ends the solve, with what there is
            best = None if options.stop.is_set() else incumbents.best()
            if best is None:
                raise
            return best
        except Exception as error:
            if not lacks_memory(error):
                raise
    best = incumbents.best()  # what the solve held is free again, now that the error is gone
    if best is not None:
        return replace(best, solution=replace(best.solution, stop_reason=StopReason.OUT_OF_MEMORY))
    nothing = Solution(Status.NO_SOLUTION, StopReason.OUT_OF_MEMORY, "", __version__, options.seed, 0.0)
    return _result(problem, Plan(nothing, None), log, made, ledger)


def _late(best: Result | None, options: SolveOptions, ledger: Ledger) -> Result:
    """The best plan of a solve that had to be cut short."""
    assert best is not None, "nothing is cut short before there is a plan"
    timings = ledger.rows
    claim = replace(best.solution, wall_s=spent_s(timings))
    if claim.status is not Status.OPTIMAL:
        reason = StopReason.INTERRUPTED if options.stop.is_set() else StopReason.TIME_LIMIT
        claim = replace(claim, stop_reason=reason)
    run = {**best.run, "solve_s": claim.wall_s, "timings": timings}
    return replace(best, solution=claim, timings=timings, run=run)


def _ended(plan: Plan, reason: StopReason) -> Plan:
    return replace(plan, solution=replace(plan.solution, stop_reason=reason))


def _result(problem: Problem, plan: Plan, log: ProgressLog, made: Mapping[str, object], ledger: Ledger) -> Result:
    timings = ledger.rows  # before the replay, which isn't part of the solve
    claim = replace(plan.solution, wall_s=spent_s(timings))
    report = None if plan.schedule is None else replay_of(plan.schedule, plan.windows)
    run = {
        **made,
        "versions": library_versions(),
        "solve_s": claim.wall_s,
        "timings": timings,
        "convergence": None if log.convergence is None else log.convergence.data,
    }
    asked = plan.problem or problem
    solution = claim if report is None or report.valid else refuted(claim)
    return Result(
        asked, solution, plan.schedule, report, plan.details, timings, plan.product, run, plan.windows,
        plan.decision,
    )  # fmt: skip
