"""The curve of overhead against memory, and a step run with PyTorch, as people ask for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import budget_bytes, find_graph
from gapless.encodings.monet.sweep import sweep
from gapless.encodings.monet.tradeoff import Row
from gapless.parameters import parameters_of
from gapless.plot import check_plot, write_plot
from gapless.sweeps.summary import table_files
from gapless.system import Answer, Session
from gapless.text import described, table

__all__ = ["curve"]

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
