"""What stands at the head of pictures and pages: a plan's question, its answer, and how far it is from optimal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.solution import PROVEN_GAP, Status
from gapless.system import known_system
from gapless.text import described
from gapless.units import UNITS, format_joules, format_seconds

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = ["answer_of", "question_of", "verdict_of"]

_LONGEST = 60
"""Letters of a value, which a file may give at any length."""


def question_of(system: str, problem: Mapping[str, Any], otherwise: str = "plan") -> str:
    """What was asked, in a line: the parts of the system's question of which the problem has every field.

    `otherwise`: for systems without such parts, and problems that have none of their fields.
    """
    known = known_system(system)
    parts = [_filled(part, problem) for part in (() if known is None else known.headline)]
    return ", ".join(filter(None, parts)) or otherwise


def _filled(part: str, problem: Mapping[str, Any]) -> str:
    """A part with the fields that it names in braces; empty where one is missing, None or False."""
    values = {name: problem.get(name) for name in re.findall(r"{(\w+)}", part)}
    if any(value is None or value is False or value == {} for value in values.values()):
        return ""
    return re.sub(r"{(\w+)}", lambda found: _said(found[1], values[found[1]]), part)


def _said(name: str, value: Any) -> str:
    """A value in words, without zeros at its end, and short."""
    text = " ".join(described(name, value).split())
    if isinstance(value, float) and text == f"{value:.4f}":
        text = f"{value:g}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def answer_of(plan: SavedPlan, report: Report) -> str:
    """What the plan costs, by what was minimised: times and energies as replayed."""
    if "objective_error" in plan.claim:
        return f"{described('objective_error', plan.claim['objective_error'])} error"
    if "objective_j" in plan.claim and report.energy_j is not None:
        return f"{format_joules(report.energy_j)}, {format_seconds(report.makespan_s)}"
    return format_seconds(report.makespan_s)


def verdict_of(plan: SavedPlan, report: Report | None = None) -> str:
    """How far from optimal the plan can be, by its claim; with a `report`, by the bound and what was replayed."""
    claim = plan.claim
    unit = next((unit for unit in UNITS if f"objective_{unit}" in claim), "s")
    bound = claim.get(f"bound_{unit}")
    cost = claim.get(f"objective_{unit}") if report is None else _replayed(unit, claim, report)
    if report is not None and not report.valid:
        return "does not replay clean"
    if not (isinstance(bound, (int, float)) and isinstance(cost, (int, float))):
        return "no bound"
    of = {"j": " in energy", "error": " in error"}.get(unit, "")  # of the time nothing is said then
    if cost < bound * (1 - PROVEN_GAP):
        return f"below its bound of {described(f'bound_{unit}', bound)}, which is false"
    if claim.get("status") == Status.OPTIMAL.value and cost <= claim[f"objective_{unit}"] * (1 + PROVEN_GAP):
        return f"optimal{of}"
    return f"gap {described('gap', (cost - bound) / cost if cost else 0.0)}{of}"


def _replayed(unit: str, claim: Mapping[str, Any], report: Report) -> Any:
    """What the replay says of the objective; what it can't see, the claim."""
    found = {"s": report.makespan_s, "j": report.energy_j}.get(unit)
    return claim.get(f"objective_{unit}") if found is None else found
