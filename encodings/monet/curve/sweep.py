"""The curve: one training graph under many budgets, by one method or several, for overhead against memory.

Budgets are solved in the order of a bisection: first the middle one, then the middles of both halves, and so on. Each
starts from the plans of the nearest smaller and larger budgets before it in that order: the same starts, however many
processes work side by side. In the end the rows are closed: see `rows.closed`.

Answers are kept by `gapless.sweeps`, in files whose names hold a hash of the graph, the method and the options, so that
a sweep goes on where an earlier one ended. A plan whose solve was interrupted is a row too, but no answer: the next
sweep starts from it.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from gapless import __version__
from gapless.encodings.monet.curve.rows import Row, closed
from gapless.encodings.monet.decisions import StepDecision
from gapless.encodings.monet.parameters import Parameters
from gapless.encodings.monet.problem import UNITS, Objective, Problem, budget_bytes, found_graph
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.search.retention import keep_set_of
from gapless.errors import GaplessError, InputError
from gapless.io.plan import read_plan
from gapless.options import SolveOptions
from gapless.plot import check_plot, write_plot
from gapless.processes.jobs import shares
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import training_graph_text
from gapless.question.parameters import parameters_of
from gapless.report.text import described, table
from gapless.solution import Status, StopReason
from gapless.sweeps.local import Local, Outcome, Task
from gapless.sweeps.question import Given, limits_of
from gapless.sweeps.results import WAITING, read_row
from gapless.sweeps.results import Row as Known
from gapless.sweeps.run import answers
from gapless.sweeps.summary import table_files, write_table
from gapless.sweeps.sweep_file import Value
from gapless.system import Answer, Session
from gapless.units import format_bytes

__all__ = ["answer", "sweep"]


_COSTS = {
    "time": {"cost_s": "cost", "bound_s": "bound"},
    "energy": {"cost_s": "time", "energy_j": "energy", "bound_j": "bound"},
}
"""The columns of the table that depend on the objective."""


def answer(values: Mapping[str, Any], session: Session) -> Answer:
    """Solve every budget, and what came of it as data and as a table."""
    if values["plot"] is not None:
        check_plot(values["plot"])
    graph = found_graph(*(values[name] for name in ("graph", "batch", "device", "optimizer", "gradients")))
    objective = values["objective"]
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


def sweep(
    graph: TrainingGraph, budgets: Sequence[int], options: SolveOptions, workers: int, folder: str | Path,
    objective: Objective = "time", methods: Sequence[str] = ("auto",), parameters: Parameters | None = None,
) -> list[Row]:  # fmt: skip
    """Solve every budget by every method that has no answer in `folder` yet; returns the rows by ascending budget.

    Parameters
    ----------
    graph
        The training graph.
    budgets
        In bytes, in any order.
    options
        For each budget by itself. `threads`: of one solve, 0 for an even share of the cores. `on_progress` hears of
        each budget that is done. `stop` ends the sweep: what is at work hands over its best plan so far.
    workers
        Processes side by side, 0 for as many as there are cores for.
    folder
        Made if it isn't there. Gets the files of each answer, and the table as `summary.csv` and `summary.json`. A
        budget for which nothing was found within the time limit is tried again by a later sweep.
    objective
        What each step is to take the least of, as in `Problem`.
    methods
        What decides, as in `Problem`: a curve each, one after the other in the rows.
    parameters
        Of the methods; None for the defaults.

    Raises `InputError` for budgets below 1, for threads and workers beyond the cores, for a folder that can't be
    written to, and for energy where an implementation's power is unknown. As with every spawned process, a script that
    calls this needs its `if __name__ == "__main__":`.
    """
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets must hold at least one, each >= 1 byte, got {list(budgets)}")
    ascending = sorted(set(budgets))
    asked = [
        Problem(graph, budget_bytes, objective=objective, method=method)
        for method in dict.fromkeys(methods)
        for budget_bytes in ascending
    ]
    questions = _questions(asked, options, parameters or Parameters())
    shares(options.threads, workers, len(questions))
    curve = _Curve(tuple(asked), tuple(questions), len(ascending), Local(options.threads, workers))
    found = answers(questions, folder, curve, options.on_progress, options.stop, _is_final)
    peak_bytes = peak_without_saving_bytes(graph)
    pairs = [(problem, known) for problem, known in zip(asked, found, strict=True) if known.status != WAITING]
    rows = closed((_row(problem, known, peak_bytes) for problem, known in pairs), UNITS[objective])
    data = [row.data for row in rows]
    write_table(Path(folder), [column.name for column in fields(Row)], data, data)
    return rows


def _questions(asked: Sequence[Problem], options: SolveOptions, parameters: Parameters) -> list[Given]:
    """The questions, whose hashes hold all that an answer depends on; more threads only save time."""
    graph, objective = asked[0].graph, asked[0].objective
    settings = [
        __version__,
        options.time_limit_s,
        options.gap,
        options.seed,
        options.solver,
        objective,
        repr(parameters),
    ]
    content = training_graph_text(replace(graph, source="")) + json.dumps(settings)
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", graph.name)
    questions = []
    for problem in asked:
        key = hashlib.sha256((content + problem.method).encode()).hexdigest()[:12]
        head = "" if problem.method == "auto" else f"{problem.method}, "
        title = head + format_bytes(problem.budget_bytes)
        values: dict[str, Value] = {"budget": problem.budget_bytes, "method": problem.method}
        file, limits = f"{name}-{problem.budget_bytes}-{key}", limits_of(options)
        questions.append(Given(problem, limits, file, title, values, parameters=parameters))
    return questions


# -- the order, and where a search starts ------------------------------------------------------------------------------


def bisection(count: int) -> list[tuple[int, tuple[int, ...]]]:
    """The order of the places 0 .. count - 1, each with those before it that enclose it most closely."""
    order, ranges = [], [(0, count)]
    for low, high in ranges:
        if low < high:
            middle = (low + high) // 2
            order.append((middle, tuple(place for place in (low - 1, high) if 0 <= place < count)))
            ranges += [(low, middle), (middle + 1, high)]
    return order


@dataclass(frozen=True)
class _Curve:
    """The engine: processes on this machine, kept busy with budgets whose neighbours are done.

    `count`: the budgets of each method, which come one after the other among the questions.
    """

    asked: tuple[Problem, ...]
    questions: tuple[Given, ...]
    count: int
    local: Local

    def check(self) -> None:
        """See `Engine`."""
        self.local.check()

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """See `Engine`; raises what a solve raises."""
        wanted = {task.place for task in tasks}
        near = {
            first + place: tuple(first + other for other in others)
            for first in range(0, len(self.questions), self.count)
            for place, others in bisection(self.count)
            if first + place in wanted
        }

        def question_of(place: int) -> Given:
            known = [self._start(other, folder) for other in (place, *near[place])]
            starts = tuple(start for start in known if start is not None)
            return replace(self.questions[place], problem=replace(self.asked[place], starts=starts))

        for place, outcome in self.local.in_order(list(near.items()), question_of, folder, stop):
            if isinstance(outcome, GaplessError):
                raise outcome
            yield place, outcome

    def _start(self, place: int, folder: Path) -> KeepSet | None:
        """What a plan keeps that is known for this place."""
        row = read_row(folder, self.questions[place])
        if row is None or row.plan is None:
            return None
        graph, plan = self.asked[place].graph, read_plan(folder / row.plan)
        is_start = bool(plan.decision) and plan.problem.get("method") != "gist"  # whose tensors are others
        return keep_set_of(graph, StepDecision.of(plan, row.plan).on(graph)) if is_start else None


# -- rows --------------------------------------------------------------------------------------------------------------


def _is_final(known: Known) -> bool:
    """Whether there is nothing to go on with: a plan, a proof that there is none, or a method that has none."""
    return known.is_answer or known.stop_reason == StopReason.FINISHED.value


def _row(problem: Problem, known: Known, peak_bytes: int) -> Row:
    """Costs and the peak are the replay's; the bound is the solver's claim."""
    row = Row(
        problem.budget_bytes,
        problem.budget_bytes / peak_bytes,
        Status(known.status),
        solve_s=known.solve_s or 0.0,
        violations=known.violations or 0,
        stop_reason=None if known.stop_reason is None else StopReason(known.stop_reason),
        method=problem.method,
    )
    cost, bound = (known.makespan_s, known.bound_s) if problem.unit == "s" else (known.energy_j, known.bound_j)
    if known.plan is None or cost is None or known.peak_bytes is None:
        return row
    unlimited = known.details[f"unlimited_{problem.unit}"]
    return replace(
        row,
        cost_s=known.makespan_s,
        energy_j=known.energy_j,
        bound_s=known.bound_s,
        bound_j=known.bound_j,
        gap=known.gap,
        overhead=cost / unlimited - 1 if unlimited else 0.0,
        overhead_bound=None if bound is None else max(bound / unlimited - 1, 0.0) if unlimited else 0.0,
        peak_bytes=int(known.peak_bytes),
        plan=known.plan,
    )


# -- the answer as text ------------------------------------------------------------------------------------------------


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
