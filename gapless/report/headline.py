"""What stands at the head of pictures and pages: a plan's question, its answer, and how far it is from optimal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gapless.io.plan import claimed_bounds
from gapless.options import relative_gap
from gapless.report.text import described, words
from gapless.solution import PROVEN_GAP, Bound, PlanClass, Status, StopReason
from gapless.system import known_system
from gapless.units import UNITS, format_joules, format_seconds

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.plan import SavedPlan

__all__ = [
    "answer_of",
    "claim_rows",
    "claimed",
    "is_timed",
    "length_of",
    "narrower_of",
    "question_of",
    "verdict_of",
    "verdicts_of",
    "wider_of",
]

_LONGEST = 60
"""Letters of a value, which a file may give at any length."""


def question_of(system: str, problem: Mapping[str, object], otherwise: str = "plan") -> str:
    """What was asked, in a line: the parts of the system's question of which the problem has every field.

    `otherwise`: for systems without such parts, and problems that have none of their fields.
    """
    known = known_system(system)
    parts = [_filled(part, problem) for part in (() if known is None else known.headline)]
    return ", ".join(filter(None, parts)) or otherwise


def _filled(part: str, problem: Mapping[str, object]) -> str:
    """A part with the fields that it names in braces; empty where one is missing, None or False."""
    values = {name: problem.get(name) for name in re.findall(r"{(\w+)}", part)}
    if any(value is None or value is False or value == {} for value in values.values()):
        return ""
    return re.sub(r"{(\w+)}( [\w-]+s\b)?", lambda found: _counted(found[1], values[found[1]], found[2] or ""), part)


def _counted(name: str, value: object, noun: str) -> str:
    """A value and what follows it: one rank, two ranks."""
    return _said(name, value) + (re.sub(r"(?<=ch)es$|s$", "", noun) if value == 1 else noun)


def _said(name: str, value: object) -> str:
    """A value in words, without zeros at its end, and short."""
    text = " ".join(described(name, value).split())
    if isinstance(value, float) and text == f"{value:.4f}":
        text = f"{value:g}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}\u2026"


def answer_of(plan: SavedPlan, report: Report) -> str:
    """What the plan costs, by what was minimised: times and energies as replayed."""
    if "objective_span_s" in plan.claim:
        return f"span {format_seconds(plan.schedule.span_s)}"
    if "objective_error" in plan.claim:
        return f"{described('objective_error', plan.claim['objective_error'])} error"
    if "objective_cost" in plan.claim:
        return f"cost {described('objective_cost', plan.claim['objective_cost'])}"
    if "objective_j" in plan.claim and report.energy_j is not None:
        return f"{format_joules(report.energy_j)}, {format_seconds(report.makespan_s)}"
    return format_seconds(report.makespan_s)


def verdict_of(plan: SavedPlan, report: Report | None = None) -> str:
    """How far from optimal the plan can be, by its claim: of all plans of the question first, then of narrower classes.

    With a `report`, by the bounds and what was replayed.
    """
    widest, narrower = verdicts_of(plan, report)
    return "; ".join([widest, *(said for _, said in narrower)])


def verdicts_of(plan: SavedPlan, report: Report | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The same apart: of the question, and with its bound of each narrower class; none for what is optimal anyway."""
    claim = plan.claim
    unit = _unit_of(claim)
    cost = claim.get(f"objective_{unit}") if report is None else _replayed(unit, plan, report)
    if report is not None and not report.valid:
        return "does not replay clean", []
    widest = _verdict(claim, unit, cost)
    return widest, [] if widest.startswith("optimal") else narrower_of(claim, cost)


def claim_rows(claim: Mapping[str, object]) -> list[tuple[str, str]]:
    """What a solver claims, by name, in words; each narrower class with its bound in a row of its own."""
    rows = []
    for name, value in claim.items():
        if name != "bounds":
            rows.append((words(name), claimed(name, value)))
        else:
            rows += [("narrower bound", f"{bound}: {said}") for bound, said in narrower_of(claim)]
    return rows


def claimed(name: str, value: object) -> str:
    """A named value of a claim in words: statuses and reasons to stop for people, the rest with its unit."""
    if name == "stop_reason" and value in {reason.value for reason in StopReason}:
        return StopReason(value).sentence
    return described(name, value).replace("_", " ") if name == "status" else described(name, value)


def is_timed(claim: Mapping[str, object]) -> bool:
    """Whether the plan's schedule is of seconds; where a cost was minimised, it is of the instants of an instance."""
    return "objective_cost" not in claim


def length_of(claim: Mapping[str, object], makespan_s: float) -> str:
    """How long a plan of this claim is, in words."""
    return f"makespan {format_seconds(makespan_s)}" if is_timed(claim) else f"{makespan_s:,.0f} time points"


def _verdict(claim: Mapping[str, Any], unit: str, cost: object) -> str:
    """Of any plan of the question."""
    bound = claim.get(f"bound_{unit}")
    if not (isinstance(bound, (int, float)) and isinstance(cost, (int, float))):
        return "no bound"
    # Of the time nothing is said.
    of = {"span_s": " in span", "j": " in energy", "error": " in error", "cost": " in cost"}.get(unit, "")
    if cost < bound * (1 - PROVEN_GAP):
        return f"below its bound of {described(f'bound_{unit}', bound)}, which is false"
    if claim.get("status") == Status.OPTIMAL.value and cost <= claim[f"objective_{unit}"] * (1 + PROVEN_GAP):
        return f"optimal{of}"
    return f"gap {described('gap', (cost - bound) / cost if cost else 0.0)}{of}"


def narrower_of(claim: Mapping[str, object], cost: object = None) -> list[tuple[str, str]]:
    """Of each narrower class that a claim has a bound for, that bound, and how far from optimal the plan is within it.

    `cost`: what was replayed, None for what is claimed.
    """
    try:
        bounds = claimed_bounds(claim)
    except (KeyError, TypeError, ValueError):  # whatever a file says
        return []
    unit = _unit_of(claim)
    cost = claim.get(f"objective_{unit}") if cost is None else cost
    return [
        (_bound_in_words(one, unit), f"{_gap_in_words(one, cost)} among plans {one.name}")
        for one in bounds
        if one.plans is not PlanClass.QUESTION
    ]


def _unit_of(claim: Mapping[str, object]) -> str:
    """The ending of the names of objective and bound."""
    return next((unit for unit in UNITS if f"objective_{unit}" in claim), "s")


def _bound_in_words(one: Bound, unit: str) -> str:
    return f"{one.value:,.0f} {one.unit}" if one.unit else described(f"bound_{unit}", one.value)


def _gap_in_words(one: Bound, cost: object) -> str:
    """How near a plan comes to the bound of a class; as large a cost as an optimum has is one."""
    found = cost if one.objective is None else one.objective
    if not isinstance(found, (int, float)):
        return "unknown"
    if found < one.value * (1 - PROVEN_GAP):
        return f"below the bound of {one.value:g}, which is false,"
    gap = relative_gap(found, one.value)
    return "optimal" if gap is not None and gap <= PROVEN_GAP else described("gap", gap)


def wider_of(details: Mapping[str, object]) -> str:
    """That a wider question has a better plan, in a line; empty where none is known."""
    wider = details.get("wider")
    if not isinstance(wider, Mapping):
        return ""
    name = next((name for name in wider if str(name).startswith("objective")), "")
    return f"{wider.get('asked')}: {described(name, wider[name])}" if name else ""


def _replayed(unit: str, plan: SavedPlan, report: Report) -> object:
    """What the replay says of the objective; what it can't see, the claim."""
    if unit == "span_s":
        return plan.schedule.span_s
    found = {"s": report.makespan_s, "j": report.energy_j}.get(unit)
    return plan.claim.get(f"objective_{unit}") if found is None else found
