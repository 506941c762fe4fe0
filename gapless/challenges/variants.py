"""In which other ways a plan's question is asked: what any system has for free, and what it names itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from gapless.challenges.parameters import ChallengeParameters
from gapless.challenges.reordering import reordered
from gapless.io.plan import SavedPlan
from gapless.ir.schedule import Schedule
from gapless.ir.simulate import retime
from gapless.options import SolveOptions
from gapless.question.fields import Choice
from gapless.question.recorded import said_of
from gapless.solution import PlanClass
from gapless.system import Challenge, Narrowing, Problem, System

__all__ = ["asked_class", "challenges_of"]

_METHOD = "method"
"""The field by which systems with several methods name one."""
_OTHER_SOLVER = {"highs": "cpsat", "cpsat": "highs"}


def challenges_of(
    system: System, problem: Problem, plan: SavedPlan, parameters: ChallengeParameters, seed: int = 0
) -> list[Challenge]:
    """All attempts: the plan's own events, the system's own, wider questions, other methods, another solver, other
    seeds, from `seed` behind the plan's on.
    """
    said = said_of(problem)
    found = [*_from_events(plan, parameters.events)]
    found += [_weighted(each, parameters.own) for each in system.challenges(problem, plan)]
    if said is not None:
        narrowing = system.narrowing(problem, said)
        found += [_weighted(each, parameters.wider) for each in _wider(narrowing, said)]
        around = asked_class([each for each in narrowing if each.plans is not PlanClass.METHOD])
        found += [_weighted(each, parameters.methods) for each in _other_methods(system, said, around)]
    found += [_weighted(each, parameters.solvers) for each in _other_solver(plan)]
    found += list(_other_seeds(plan, parameters.seeds, seed))
    return [each for each in found if said is not None or not each.values]


def asked_class(narrowing: Sequence[Narrowing]) -> PlanClass:
    """The narrowest class that a question asks for."""
    return narrowing[-1].plans if narrowing else PlanClass.QUESTION


def _weighted(challenge: Challenge, weight: float) -> Challenge:
    return replace(challenge, weight=weight * challenge.weight)


def _from_events(plan: SavedPlan, most_events: int) -> Iterator[Challenge]:
    """The plan as a start: its events as early as possible, in their order and in others, where time is the cost."""
    if plan.windows is not None or "objective_s" not in plan.claim:
        return
    yield Challenge("the plan's events as early as possible", search=_retimed)

    def search(problem: Problem, plan: SavedPlan, options: SolveOptions, share: float) -> Schedule | None:
        return reordered(plan.schedule, options, int(share * most_events))

    yield Challenge("the plan's events in other orders", search=search)


def _retimed(problem: Problem, plan: SavedPlan, options: SolveOptions, share: float) -> Schedule:
    return retime(plan.schedule)


def _wider(narrowing: Sequence[Narrowing], said: Mapping[str, object]) -> Iterator[Challenge]:
    """Without the fields that ask for a narrower class, the narrowest first, then with all that are wider."""
    values: dict[str, object] = {_METHOD: None}  # a method may be one for the narrower class only
    for number in reversed(range(len(narrowing))):
        values |= narrowing[number].without
        left_out = [name for name, value in values.items() if value is None and name in said]
        if left_out:  # a class that a question asks for by saying nothing is for the system's own challenges
            options = ", ".join(f"--{name.replace('_', '-')}" for name in left_out)
            yield Challenge(f"without {options}", asked_class(narrowing[:number]), dict(values))


def _other_methods(system: System, said: Mapping[str, object], around: PlanClass) -> Iterator[Challenge]:
    """Every other method; `around`: the class of plans that the question asks for by anything else."""
    for field in system.fields:
        if field.name == _METHOD and isinstance(field.kind, Choice):
            for method in field.kind.choices:
                if method != said.get(_METHOD, field.default):
                    yield Challenge(f"{field.option} {method}", around, {_METHOD: method})


def _other_solver(plan: SavedPlan) -> Iterator[Challenge]:
    """The other exact solver of models in whole numbers, where one of the two took part in the plan."""
    took_part = str(plan.claim.get("solver", "")).split("+")
    for name, other in _OTHER_SOLVER.items():
        if name in took_part and other not in took_part:
            yield Challenge(f"--solver {other}", options={"solver": other})


def _other_seeds(plan: SavedPlan, count: int, behind: int) -> Iterator[Challenge]:
    """Seeds after the plan's own; the last one also without presolve."""
    first = plan.claim.get("seed", 0)
    for number in range(1, count + 1):
        seed = (int(first) + behind + number) % 2**31
        is_last = number == count
        yield Challenge(
            f"--seed {seed}{', without presolve' if is_last else ''}", options={"seed": seed, "presolve": not is_last}
        )
