"""The recipe of a challenge: the question again, what the file claims, then one attempt after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from gapless.challenges.attempts import Attempt, Challenged, attempted
from gapless.challenges.claims import claim_of_plan, false_claims
from gapless.challenges.parameters import ChallengeParameters
from gapless.challenges.report import ChallengeReport
from gapless.challenges.variants import asked_class, challenges_of
from gapless.checker import Report
from gapless.errors import InputError, must_be
from gapless.io.plan import SavedPlan, replay_of
from gapless.options import Deadline, SolveOptions
from gapless.question.parameters import parameters_of
from gapless.question.recorded import kept_question, said_of
from gapless.result import Asked, Result, read_saved
from gapless.system import Challenge, Problem, System, known_system, system_names

__all__ = ["challenge"]

_WHOLE = 100
"""Hundredths of the work of a solve."""


def challenge(
    plan: str | Path | SavedPlan | Result,
    *,
    work: int | None = None,
    time_limit: float | None = None,
    seed: int = 0,
    parameters: ChallengeParameters | Mapping[str, object] | str | Path | None = None,
    options: SolveOptions | None = None,
    on_attempt: Callable[[int, int, Attempt], None] | None = None,
) -> ChallengeReport:
    """Try to refute what a plan claims: ask its question otherwise, and look for a plan that is better.

    `plan`: a file, what `load` returns, or the result of a solve. `work`: as in `ChallengeParameters`. `time_limit`:
    seconds for all attempts; the report says which ones it cut short. `seed`: added to those of the attempts.
    `on_attempt` is called with the number of attempts that are made, that of all, and the last one. Ctrl-C ends it with
    what was found. `options`: how each attempt is solved, but for limit, gap and seed. Raises `InputError` for a file
    that is no plan, a system that isn't there, and a question that can't be asked again.
    """
    chosen = parameters_of(ChallengeParameters, parameters)
    chosen = chosen if work is None else replace(chosen, work=work)
    options = replace(options or SolveOptions(threads=1), gap=0.0, time_limit_s=time_limit, seed=seed)
    asked, report = _asked_again(plan)
    found = ChallengeReport(
        asked.where, asked.plan.system, asked.claim, report.valid, tuple(false_claims(asked.claim, report)), ()
    )
    challenges = challenges_of(asked.system, asked.problem, asked.plan, chosen, seed)
    return _made(found, asked, challenges, chosen, options, on_attempt)


def _made(
    report: ChallengeReport, asked: Challenged, challenges: list[Challenge], parameters: ChallengeParameters,
    options: SolveOptions, on_attempt: Callable[[int, int, Attempt], None] | None,
) -> ChallengeReport:  # fmt: skip
    """All attempts in turn, each with its share of the work, and of the time that is left."""
    deadline, total = Deadline(options), sum(each.weight for each in challenges)
    attempts: list[Attempt] = []
    why, left = "", list(challenges)
    while left and not why:
        first, rest = left[0], sum(each.weight for each in left)
        if deadline.over:
            break
        share_s = deadline.remaining_s * first.weight / rest
        stage = options.within(share_s if options.time_limit_s is not None else None)
        try:
            made = attempted(asked, first, parameters.work / _WHOLE * first.weight / total, stage, parameters)
        except KeyboardInterrupt:
            why = "interrupted"
            break
        attempts.append(made)
        left.pop(0)
        if on_attempt is not None:
            on_attempt(len(attempts), len(challenges), made)
    if options.stop.is_set():
        why = "interrupted"
    elif not why and (left or any(each.is_cut_short for each in attempts)):
        why = "time limit"
    return replace(report, attempts=tuple(attempts), left_out=tuple(each.name for each in left), why_ended=why)


def _asked_again(plan: str | Path | SavedPlan | Result) -> tuple[Challenged, Report]:
    """The plan with its question, which is asked in the words of the file unless it is there, and its replay."""
    where, saved, problem = _read(plan)
    system = known_system(saved.system)
    if system is None:
        known = ", ".join(system_names())
        raise InputError(f"{where}: system: must be one of {known}, got {saved.system!r}")
    if problem is None:
        problem = _question(where, system, saved)
    report = replay_of(saved.schedule, saved.windows)
    claim = claim_of_plan(where, system, problem, saved, report)
    plans = asked_class(system.narrowing(problem, said_of(problem) or {}))
    return Challenged(where, system, problem, saved, report.valid, claim, plans), report


def _read(plan: str | Path | SavedPlan | Result) -> tuple[str, SavedPlan, Problem | None]:
    if isinstance(plan, Result):
        is_asked = "question" not in plan.run or said_of(plan.problem) is not None
        known = plan.problem if is_asked and not isinstance(plan.problem, Asked) else None
        return plan.problem.system, plan.plan, known
    if isinstance(plan, SavedPlan):
        return plan.system, plan, None
    must_be("plan", isinstance(plan, str | Path), "a file, a plan or the result of a solve", plan)
    return str(plan), read_saved(plan), None


def _question(where: str, system: System, plan: SavedPlan) -> Problem:
    """The question in the words that the file keeps. Raises `InputError` without them, or if they mean another."""
    kept = plan.run.get("question")
    if not isinstance(kept, Mapping) or not isinstance(kept.get("fields"), Mapping):
        rule = "must be kept in the file in words, as `gapless solve` does"
        raise InputError(f"{where}: question: {rule}; it was asked with objects of Python, or by an older gapless")
    try:
        problem: Problem = system.ask({str(name): value for name, value in kept["fields"].items()})
    except InputError as error:
        raise InputError(f"{where}: question: can't be asked again: {error}") from None
    again = kept_question(problem)
    if again is None or again["sha256"] != kept.get("sha256"):
        raise InputError(f"{where}: question: is another one now: gapless or a file that it names has changed since")
    return problem
