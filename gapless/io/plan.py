"""Plan files: a schedule with all that is needed to replay it, what its solver claimed, and what it was made for.

JSON, format `gapless.plan`, version 1. Columns of numbers stand as lists; a list of lists is `start` and `values`
(list i is `values[start[i]:start[i + 1]]`); a set of contributions is a hexadecimal number, bit i for contribution i.
The sets of many copies stand once each, in `sets`, and copy k has the one with the number `of[k]`. An implementation
has `power_w` only where its power is known. Graph and topology are in `plan_sections.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gapless.checker import Report, check
from gapless.errors import InputError
from gapless.io.atomic import write_lines
from gapless.io.columns import float_column, int_column, json_pieces, ragged_data, read_ragged
from gapless.io.plan_sections import graph_data, read_graph, read_topology, topology_data
from gapless.io.record import Record, load_record
from gapless.ir.schedule import Schedule
from gapless.ir.switch_ops import SwitchOps
from gapless.ir.windows import Windows
from gapless.report.short_repr import Brief
from gapless.solution import Bound, PlanClass, Solution, Status, StopReason
from gapless.units import UNITS, Unit

__all__ = [
    "SavedPlan",
    "claim_data",
    "claimed_bounds",
    "excerpt_of",
    "given_plan",
    "judged",
    "plan_data",
    "plan_of",
    "plan_text",
    "read_plan",
    "replay_of",
    "solution_of",
    "write_plan",
]

FORMAT, VERSION = "gapless.plan", 1


@dataclass(frozen=True, repr=False)
class SavedPlan(Brief):
    """The content of a plan file.

    `system` names the encoding; `problem` says, in its words, what was asked; `claim` is what the solver said of the
    schedule (status, objective_s, bound_s, solver, ...; objective_span_s and bound_span_s for the longest span of a
    device or link, objective_j and bound_j for joules, objective_error and bound_error for errors, objective_cost and
    bound_cost for whole numbers); `details` is the encoding's own account,
    for people. `decision`: what was decided, as `gapless.decision` reads it; empty in files of before. `run`: how the
    plan was made, which differs from run to run (command, versions, solve_s, timings, convergence), as far as is known.
    `product`: what the schedule was made from, where the system's files hold that. `windows`: what replays a plan that
    may be too long for one schedule; its `schedule` then has no events.
    """

    system: str
    problem: Mapping[str, Any]
    claim: Mapping[str, Any]
    details: Mapping[str, object]
    schedule: Schedule
    run: Mapping[str, object] = field(default_factory=dict)
    product: object = None
    windows: Windows | None = None
    decision: Mapping[str, object] = field(default_factory=dict)

    @property
    def solve_s(self) -> float | None:
        """How long the solve took, None where the plan doesn't say."""
        found = self.run.get("solve_s")
        return float(found) if isinstance(found, int | float) else None


def replay_of(schedule: Schedule, windows: Windows | None) -> Report:
    """What the checker finds in a plan, which may be long."""
    return check(schedule) if windows is None else windows.replay()


def excerpt_of(plan: SavedPlan, parts: str | None) -> SavedPlan:
    """The plan with the events that are to be looked at: `FIRST:STOP` of a plan of many parts, all of them if None.

    Raises `InputError` for parts that aren't there, too many of them, and parts of a plan that has none.
    """
    windows = plan.windows
    if windows is None:
        if parts is not None:
            raise InputError(f"batches: goes with a plan of many batches, got one of {plan.system} without")
        return plan
    if parts is None:
        return plan if len(plan.schedule) else replace(plan, schedule=windows.excerpt(0, windows.count))
    first, colon, stop = parts.partition(":")
    if not (colon and first.isdecimal() and stop.isdecimal()):
        raise InputError(f"batches: must be FIRST:STOP, such as 0:{min(10, windows.count)}, got {parts!r}")
    return replace(plan, schedule=windows.excerpt(int(first), int(stop)))


def claim_data(solution: Solution) -> dict[str, object]:
    """What the solver claims, for the JSON object and the plan file."""
    return {
        "status": solution.status.value,
        "stop_reason": solution.stop_reason.value,
        f"objective_{solution.unit}": solution.objective,
        f"bound_{solution.unit}": solution.bound,
        "gap": solution.gap,
        "bounds": [_bound_data(solution, bound) for bound in solution.bounds],
        "solver": solution.solver,
        "solver_version": solution.version,
        "seed": solution.seed,
    }


def _bound_data(solution: Solution, bound: Bound) -> dict[str, object]:
    of = {} if bound.objective is None else {"objective": bound.objective, "unit": bound.unit}
    plans = "any plan of this question" if not bound.name else f"plans {bound.name}"
    gap = solution.gap_of(bound)
    return {
        "class": bound.plans.value, "plans": plans, "bound": bound.value, "gap": gap, "source": bound.source, **of
    }  # fmt: skip


def claimed_bounds(claim: Mapping[str, Any]) -> tuple[Bound, ...]:
    """The bounds by class that a claim lists; files of before say only that of the question.

    Raises `KeyError`, `TypeError` or `ValueError` for what can't be such a list.
    """
    return tuple(
        Bound(
            PlanClass(one["class"]),
            float(one["bound"]),
            str(one["source"]),
            str(one["plans"]).removeprefix("plans ") if one["class"] != PlanClass.QUESTION.value else "",
            None if one.get("objective") is None else float(one["objective"]),
            str(one.get("unit", "")),
        )
        for one in claim.get("bounds", [])
    )


def solution_of(claim: Mapping[str, Any], wall_s: float = 0.0) -> Solution:
    """The solution that a saved claim describes, without its values. Raises `InputError` for what can't be one."""
    unit: Unit = next((each for each in UNITS if f"objective_{each}" in claim), "s")
    try:
        bounds = claimed_bounds(claim)
        return Solution(
            status=Status(claim["status"]),
            stop_reason=StopReason(claim["stop_reason"]),
            solver=str(claim["solver"]),
            version=str(claim["solver_version"]),
            seed=int(claim["seed"]),
            wall_s=wall_s,
            objective=claim[f"objective_{unit}"],
            bound=claim[f"bound_{unit}"],
            unit=unit,
            bound_source=next((bound.source for bound in bounds if bound.plans is PlanClass.QUESTION), ""),
            narrower=tuple(bound for bound in bounds if bound.plans is not PlanClass.QUESTION),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"claim: must say status, stop_reason, solver and the like, got {error}") from None


def judged(plan: SavedPlan, report: Report) -> SavedPlan:
    """The plan with what its replay leaves of its claim: of one that breaks a rule neither optimum, bound nor gap."""
    if report.valid:
        return plan
    claim: dict[str, object] = {
        name: [] if name == "bounds" else None if name == "gap" or name.startswith("bound_") else value
        for name, value in plan.claim.items()
    }
    return replace(plan, claim={**claim, "status": Status.INVALID.value})


def write_plan(path: str | Path, plan: SavedPlan) -> None:
    """Write a plan file, whole or not at all. Raises `InputError` where the place can't be written to."""
    write_lines(path, _pieces(plan))


def plan_text(plan: SavedPlan) -> str:
    """The plan as JSON, one line for each section; equal plans give equal text."""
    return "".join(_pieces(plan))


def _pieces(plan: SavedPlan) -> Iterator[str]:
    """The text of a plan, so that of a large one no more than a column is in memory."""
    for number, (key, data) in enumerate(_sections(plan).items()):
        yield (",\n " if number else "{") + json.dumps(key) + ": "
        yield from json_pieces(data())
    yield "}\n"


def plan_data(plan: SavedPlan) -> dict[str, object]:
    """What `plan_of` reads back: what is in a plan file, with columns of numbers as arrays."""
    return {key: data() for key, data in _sections(plan).items()}


def _sections(plan: SavedPlan) -> dict[str, Callable[[], object]]:
    """What is in a plan file, each part made when it is wanted."""
    return {
        "format": lambda: FORMAT,
        "version": lambda: VERSION,
        "system": lambda: plan.system,
        "problem": lambda: dict(plan.problem),
        "claim": lambda: dict(plan.claim),
        "details": lambda: dict(plan.details),
        **({"decision": lambda: dict(plan.decision)} if plan.decision else {}),
        "run": lambda: dict(plan.run),
        "graph": lambda: graph_data(plan.schedule.graph),
        "topology": lambda: topology_data(plan.schedule.topology),
        "schedule": lambda: _schedule_data(plan.schedule),
    }


def read_plan(path: str | Path) -> SavedPlan:
    """Read a plan file. Raises `InputError` naming file and field; whether the schedule is true is `check`'s to say."""
    return plan_of(load_record(path), str(path))


def given_plan(plan: object, system: str, field: str) -> tuple[str, SavedPlan]:
    """A plan that is given as a path, a `SavedPlan` or a `Result`, and what errors call it: its path, or `field`.

    Raises `InputError` for anything else, and for a plan of another system.
    """
    name = plan if isinstance(plan, str) else field
    saved = read_plan(plan) if isinstance(plan, str) else getattr(plan, "plan", plan)
    if isinstance(saved, SavedPlan) and saved.system == system:
        return name, saved
    got = f"one of {saved.system}" if isinstance(saved, SavedPlan) else type(saved).__name__
    raise InputError(f"{name}: must be a plan of {system}, got {got}")


def plan_of(record: Record, where: str = "plan") -> SavedPlan:
    """The plan that a record holds. Raises `InputError` as `read_plan` does."""
    record.of_format(FORMAT, VERSION)
    try:
        schedule = _read_schedule(record)
    except InputError as error:  # the graph, topology and schedule name the field, not the file
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {message}") from None
    plan = SavedPlan(
        system=record.text("system"),
        problem=_mapping(record, "problem"),
        claim=_mapping(record, "claim"),
        details=_mapping(record, "details"),
        schedule=schedule,
        run=_mapping(record, "run"),
        decision=_mapping(record, "decision") if "decision" in record else {},
    )
    record.close()
    return plan


def _mapping(record: Record, key: str) -> dict[str, object]:
    nested = record.record(key)
    return {name: nested.raw(name) for name in nested.names()}


def _schedule_data(schedule: Schedule) -> dict[str, object]:
    data: dict[str, object] = {"name": schedule.name}
    for column in ("kind", "start_s", "end_s", "place", "op", "implementation", "reduces"):
        data[column] = getattr(schedule, column)
    for column in ("moves", "freed_tensor", "freed_device"):
        data[column] = ragged_data(getattr(schedule, column))
    if (switch_ops := schedule.switch_ops) is not None:
        data["switch_ops"] = {"of_event": switch_ops.of_event, "group": switch_ops.group}
    return data


def _read_schedule(plan: Record) -> Schedule:
    graph, topology = read_graph(plan.record("graph")), read_topology(plan.record("topology"))
    record = plan.record("schedule")
    reduces = record.array("reduces")
    if not set(map(type, reduces)) <= {bool}:
        raise record.fail("reduces", "a list of true and false", reduces)
    schedule = Schedule(
        graph=graph,
        topology=topology,
        kind=int_column(record, "kind"),
        start_s=float_column(record, "start_s"),
        end_s=float_column(record, "end_s"),
        place=int_column(record, "place"),
        op=int_column(record, "op"),
        implementation=int_column(record, "implementation"),
        reduces=np.array(reduces, dtype=np.bool_),
        moves=read_ragged(record.record("moves")),
        freed_tensor=read_ragged(record.record("freed_tensor")),
        freed_device=read_ragged(record.record("freed_device")),
        name=record.text("name"),
        switch_ops=_read_switch_ops(record.record("switch_ops", default=None)),
    )
    record.close()
    return schedule


def _read_switch_ops(record: Record | None) -> SwitchOps | None:
    if record is None:
        return None
    switch_ops = SwitchOps(int_column(record, "of_event"), int_column(record, "group"))
    record.close()
    return switch_ops
