"""Plans that are to be run: read, replayed, and refused where they are another system's."""

from __future__ import annotations

from gapless.checker import Report, check
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.result import read_saved
from gapless.system import Answer

__all__ = ["not_run", "plan_to_run"]


def plan_to_run(path: str, system: str) -> tuple[SavedPlan, Report]:
    """A system's plan, and what its replay finds. Raises `InputError` for the plan of another system."""
    plan = read_saved(path)
    if plan.system != system:
        raise InputError(f"{path}: run takes a plan of {system}, got one of {plan.system}")
    return plan, check(plan.schedule)


def not_run(report: Report) -> Answer:
    """The answer for a plan that doesn't replay clean."""
    return Answer({"valid": False}, f"not run: {report.summary()}", is_valid=False)
