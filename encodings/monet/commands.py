"""The curve of overhead against memory, a step run with PyTorch, and challenges, as people ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.encodings.monet.curve.rows import Row
from gapless.encodings.monet.curve.sweep import sweep
from gapless.encodings.monet.lowering import keep_set_of
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import Problem, budget_bytes, find_graph
from gapless.plot import check_plot, write_plot
from gapless.question.parameters import parameters_of
from gapless.report.text import described, table
from gapless.solution import PlanClass, Status
from gapless.sweeps.summary import table_files
from gapless.system import Answer, Challenge, Narrowing, Session
from gapless.torch.joint_graph import CLOSE

if TYPE_CHECKING:
    from gapless.io.plan import SavedPlan

__all__ = ["challenges", "curve", "execute", "narrowing"]

_COSTS = {
    "time": {"cost_s": "cost", "bound_s": "bound"},
    "energy": {"cost_s": "time", "energy_j": "energy", "bound_j": "bound"},
}
"""The columns of the table that depend on the objective."""


def curve(values: Mapping[str, Any], session: Session) -> Answer:
    """Solve every budget, and what came of it as data and as a table."""
    if values["plot"] is not None:
        check_plot(values["plot"])
    graph, objective = find_graph(values["graph"], values["batch"], values["device"]), values["objective"]
    budgets = sorted({budget_bytes(budget, graph) for budget in values["budgets"]})
    folder = Path(values["output"])
    parameters = parameters_of(Parameters, session.parameters)
    rows = sweep(
        graph, budgets, session.options, values["workers"], folder, objective, values["methods"], parameters
    )  # fmt: skip
    if values["plot"] is not None:
        write_plot(values["plot"], rows, "energy" if objective == "energy" else "compute")
    data = {
        "problem": "monet", "objective": objective, **table_files(folder), "plot": values["plot"],
        "rows": [row.data for row in rows],
    }  # fmt: skip
    answered, asked = sum(row.is_answer for row in rows), len(budgets) * len(set(values["methods"]))
    is_complete, is_valid = answered == asked, not any(row.violations for row in rows)
    notes = () if is_complete or not is_valid else (_missing(rows, answered, asked),)
    return Answer(data, _text(rows, objective), notes, is_complete, is_valid)


def _missing(rows: Sequence[Row], answered: int, asked: int) -> str:
    begun = sum(row.is_interrupted and row.plan is not None for row in rows)
    return f"{answered} of {asked} budgets have an answer" + (f", {begun} more a plan to go on from" if begun else "")


def _text(rows: Sequence[Row], objective: str) -> str:
    columns = {
        "method": "method", "budget_bytes": "budget", "memory_ratio": "ratio", "status": "status", **_COSTS[objective],
        "gap": "gap", "overhead": "overhead", "peak_bytes": "peak", "solve_s": "solved in",
        "plan_budget_bytes": "plan of",
    }  # fmt: skip
    if all(row.method == "auto" for row in rows):
        del columns["method"]
    if all(row.plan_budget_bytes is None for row in rows):
        del columns["plan_budget_bytes"]
    lines = [list(columns.values())]
    for row in rows:
        overhead = None if row.overhead is None else f"{100 * row.overhead:.2f} %"
        data = {**row.data, "status": row.verdict, "overhead": overhead}
        lines.append([described(name, data[name]) for name in columns])
    return table(lines)


def execute(values: Mapping[str, Any], session: Session) -> Answer:
    """The measured methods, the plan last. Needs the extra `torch`."""
    from gapless.torch.run import load_workload, reason_without_plan, run_and_compare

    found = run_and_compare(
        load_workload(values["model"]), Problem, values["budget"], session.options,
        name=values["model"], close=CLOSE if "all" in values["close"] else values["close"], cache=values["cache"],
        steps=values["steps"], tolerance=values["tolerance"], parameters=session.parameters, command=session.command,
        output=values["output"], report=session.say,
    )  # fmt: skip
    result = found.result
    return Answer(
        found.data,
        found.text,
        tuple(filter(None, ("" if result.valid else reason_without_plan(result), found.refusal))),
        is_complete=result.valid,
        is_valid=result.schedule is None or (result.valid and not found.refusal),
        is_infeasible=result.status is Status.INFEASIBLE,
    )


def narrowing(problem: Problem, said: Mapping[str, Any]) -> list[Narrowing]:
    """A method of a narrower kind of plans; the others are tried in any case."""
    return [] if problem.method == "auto" else [Narrowing(PlanClass.METHOD, {})]


def challenges(problem: Problem, plan: SavedPlan) -> list[Challenge]:
    """The search from the plan's own keep-set on."""
    return [Challenge("the plan as a start", PlanClass.QUESTION, restarted=_from_plan)]


def _from_plan(problem: Problem, plan: SavedPlan) -> Problem:
    return replace(problem, method="auto", starts=(keep_set_of(problem.graph, plan.schedule),))
