"""In which other ways a plan's question is asked: what any system has for free, and what it names itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gapless.challenges.parameters import ChallengeParameters
from gapless.fields import Choice
from gapless.io.plan import SavedPlan
from gapless.options import SolveOptions
from gapless.questions import said_of
from gapless.schedule import Schedule
from gapless.simulate import retime
from gapless.solution import PlanClass
from gapless.system import Challenge, System

__all__ = ["asked_class", "challenges_of"]

_METHOD = "method"
"""The field by which systems with several methods name one."""
_OTHER_SOLVER = {"highs": "cpsat", "cpsat": "highs"}


def challenges_of(
    system: System, problem: Any, plan: SavedPlan, parameters: ChallengeParameters, seed: int = 0
) -> list[Challenge]:
    """All attempts, the cheapest kinds first: the plan's own events, the system's own, wider questions, other methods,
    another solver, other seeds, from `seed` behind the plan's on.
    """
    said = said_of(problem)
    found = [*_from_events(plan)]
    found += [_weighted(each, parameters.own) for each in system.challenges(problem, plan)]
    if said is not None:
        found += [_weighted(each, parameters.wider) for each in _wider(system, said)]
        found += [_weighted(each, parameters.methods) for each in _other_methods(system, said)]
    found += [_weighted(each, parameters.solvers) for each in _other_solver(plan)]
    found += list(_other_seeds(plan, parameters.seeds, seed))
    return [each for each in found if said is not None or not each.values]


def asked_class(system: System, said: Mapping[str, Any] | None) -> PlanClass:
    """The narrowest class that a question asks for."""
    found = PlanClass.QUESTION
    for name, fields in system.narrowing.items():
        if any(field in (said or {}) for field in fields):
            found = PlanClass(name)
    return found


def _weighted(challenge: Challenge, weight: float) -> Challenge:
    return replace(challenge, weight=weight * challenge.weight)


def _from_events(plan: SavedPlan) -> Iterator[Challenge]:
    """The plan's events in their order, each as early as possible."""
    if plan.windows is None:
        yield Challenge("the plan's events, each as early as possible", search=_retimed)


def _retimed(problem: Any, plan: SavedPlan, options: SolveOptions, share: float) -> Schedule:
    return retime(plan.schedule)


def _wider(system: System, said: Mapping[str, Any]) -> Iterator[Challenge]:
    """Without the fields that ask for a narrower class, the narrowest first, then with all that are wider."""
    dropped: list[str] = []
    for names in reversed(list(system.narrowing.values())):
        given = [name for name in names if name in said]
        if given:
            dropped += given
            options = ", ".join(f"--{name.replace('_', '-')}" for name in dropped)
            left = {name: value for name, value in said.items() if name not in dropped}
            yield Challenge(f"without {options}", asked_class(system, left), dict.fromkeys((*dropped, _METHOD)))


def _other_methods(system: System, said: Mapping[str, Any]) -> Iterator[Challenge]:
    for field in system.fields:
        if field.name == _METHOD and isinstance(field.kind, Choice):
            for method in field.kind.choices:
                if method != said.get(_METHOD, field.default):
                    yield Challenge(f"{field.option} {method}", values={_METHOD: method})


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
