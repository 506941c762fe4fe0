"""The curve: one training graph under many budgets, by one method or several, for overhead against memory.

Budgets are solved in the order of a bisection: first the middle one, then the middles of both halves, and so on. Each
starts from the plans of the nearest smaller and larger budgets before it in that order: the same starts, however many
processes work side by side (`gapless.jobs`). In the end the rows are closed: see `tradeoff.closed`.

Every answer is a file of its own in the folder: a plan, or the record that nothing fits. Its name holds a hash of the
graph, the method and the options, so that a sweep goes on where an earlier one ended. Rows are always read from these
files. A plan whose solve was interrupted is a row too, but no answer: the next sweep starts from it, and keeps the
better one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gapless import __version__
from gapless.checker import Report, check
from gapless.encodings.monet.objective import UNITS, Objective
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.reading import keep_set_of
from gapless.encodings.monet.search.keepset import KeepSet
from gapless.encodings.monet.tradeoff import Row, closed, write_table
from gapless.errors import GaplessError, InputError
from gapless.io.atomic import write_text
from gapless.io.plan import SavedPlan, plan_text, read_plan
from gapless.io.record import Record, load_record
from gapless.jobs import Answer, Job, in_order, shares, solving
from gapless.options import Progress, SolveOptions, relative_gap
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import training_graph_text
from gapless.solution import Status, StopReason
from gapless.units import Unit, format_bytes

__all__ = ["sweep"]

_INFEASIBLE_FORMAT, _INFEASIBLE_VERSION = "gapless.monet-infeasible", 1


@dataclass
class _Sweep:
    """What is asked, and what is known by now, by place in `asked`: pairs of a method and a budget.

    `open`: the places that this sweep has no answer for yet. `begun`: the plans of interrupted solves, to go on from.
    """

    graph: TrainingGraph
    asked: list[tuple[str, int]]
    options: SolveOptions
    objective: Objective
    folder: Path
    peak_bytes: int
    content: str
    begin_s: float = field(default_factory=time.monotonic)
    rows: dict[int, Row] = field(default_factory=dict)
    keeps: dict[int, KeepSet] = field(default_factory=dict)
    begun: dict[int, SavedPlan] = field(default_factory=dict)
    open: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.open = set(range(len(self.asked)))

    @property
    def unit(self) -> Unit:
        """What the objective is counted in."""
        return UNITS[self.objective]

    def path(self, place: int) -> Path:
        """The file of an answer, named by all that it depends on."""
        method, budget_bytes = self.asked[place]
        key = hashlib.sha256((self.content + method).encode()).hexdigest()[:12]
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", self.graph.name)
        return self.folder / f"{name}-{budget_bytes}-{key}.json"

    def row(self, place: int, status: Status, **known: Any) -> Row:
        """A row of an answer."""
        method, budget_bytes = self.asked[place]
        return Row(budget_bytes, budget_bytes / self.peak_bytes, status, method=method, **known)

    def done(self, place: int) -> None:
        """Report that one more answer is there."""
        self.open.discard(place)
        if self.options.on_progress is not None:
            row, total = self.rows[place], len(self.asked)
            head = "" if row.method == "auto" else f"{row.method}, "
            phase = f"{head}{format_bytes(row.budget_bytes)}: {row.verdict}"
            elapsed_s, done = time.monotonic() - self.begin_s, total - len(self.open)
            progress = Progress(elapsed_s, row.cost(self.unit), row.bound(self.unit), phase, self.unit, done, total)
            self.options.on_progress(progress)


def sweep(
    graph: TrainingGraph, budgets: Sequence[int], options: SolveOptions, workers: int, folder: str | Path,
    objective: Objective = "time", methods: Sequence[str] = ("auto",),
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
        Made if it isn't there. Gets a file for each answer, and the table as `summary.csv` and `summary.json`. A budget
        for which nothing was found within the time limit gets a row and no file: a later sweep tries it again.
    objective
        What each step is to take the least of, as in `Problem`.
    methods
        What decides, as in `Problem`: a curve each, one after the other in the rows.

    Raises `InputError` for budgets below 1, for threads and workers beyond the cores, for a folder that can't be
    written to, and for energy where an implementation's power is unknown. As with every spawned process, a script that
    calls this needs its `if __name__ == "__main__":`.
    """
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets must hold at least one, each >= 1 byte, got {list(budgets)}")
    for method in methods:
        Problem(graph, min(budgets), objective=objective, method=method)  # refuses before the folder is made
    ascending = sorted(set(budgets))
    asked = [(method, budget_bytes) for method in dict.fromkeys(methods) for budget_bytes in ascending]
    shares(options.threads, workers, len(asked))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    settings = [__version__, options.time_limit_s, options.gap, options.seed, options.solver, objective]
    content = training_graph_text(replace(graph, source="")) + json.dumps(settings)  # more threads only save time
    peak_bytes = peak_without_saving_bytes(graph)
    state = _Sweep(graph, asked, options, objective, Path(folder), peak_bytes, content)
    for place in range(len(asked)):
        if _recall(state, place) and place not in state.begun:
            state.done(place)
    _solve_the_rest(state, workers, len(ascending))
    rows = closed((state.rows[place] for place in sorted(state.rows)), state.unit)
    write_table(state.folder, rows)
    return rows


# -- solving -----------------------------------------------------------------------------------------------------------


def bisection(count: int) -> list[tuple[int, tuple[int, ...]]]:
    """The order of the places 0 .. count - 1, each with those before it that enclose it most closely."""
    order, ranges = [], [(0, count)]
    for low, high in ranges:
        if low < high:
            middle = (low + high) // 2
            order.append((middle, tuple(place for place in (low - 1, high) if 0 <= place < count)))
            ranges += [(low, middle), (middle + 1, high)]
    return order


def _solve_the_rest(state: _Sweep, workers: int, count: int) -> None:
    """Keep all processes busy with budgets whose neighbours are done, until all are, or the caller says stop."""
    near = {
        first + place: tuple(first + other for other in others)
        for first in range(0, len(state.asked), count)
        for place, others in bisection(count)
        if first + place in state.open
    }
    if not near:
        return
    threads, workers = shares(state.options.threads, workers, len(near))
    options = replace(state.options, threads=threads, on_progress=None)

    def job_of(place: int) -> Job[Answer]:
        method, budget_bytes = state.asked[place]
        starts = tuple(state.keeps[other] for other in (place, *near[place]) if other in state.keeps)
        problem = Problem(state.graph, budget_bytes, starts, state.objective, method)
        return Job(place, f"budget {budget_bytes}", solving(problem, options))

    for place, outcome in in_order(near.items(), workers, job_of, state.options.stop):
        if isinstance(outcome, GaplessError):
            raise outcome
        _take(state, place, outcome)
        state.done(place)


def _take(state: _Sweep, place: int, answer: Answer) -> None:
    """Write an answer to its file and read it back; one that isn't for the files becomes a row only."""
    plan = _joined(state.begun[place], answer, state) if place in state.begun else answer.plan
    if answer.status is Status.INFEASIBLE:
        head = {"format": _INFEASIBLE_FORMAT, "version": _INFEASIBLE_VERSION, "budget_bytes": state.asked[place][1]}
        text = json.dumps({**head, "solve_s": answer.solve_s, **answer.details}) + "\n"
    elif plan is not None:
        text = plan_text(plan)
    else:
        known = {"solve_s": answer.solve_s, "violations": answer.violations, "stop_reason": answer.stop_reason}
        state.rows[place] = state.row(place, answer.status, **known)
        return
    write_text(state.path(place), text)
    recalled = _recall(state, place)
    assert recalled, "an answer that was just written holds"


def _joined(begun: SavedPlan, answer: Answer, state: _Sweep) -> SavedPlan:
    """The better plan of an interrupted solve and of the one that went on from it, with what both have proven."""
    objective, bound = f"objective_{state.unit}", f"bound_{state.unit}"
    later = begun if answer.plan is None else answer.plan
    best = begun if begun.claim[objective] < later.claim[objective] else later
    bounds = [plan.claim[bound] for plan in (begun, later) if plan.claim[bound] is not None]
    claim = {
        **best.claim,
        bound: max(bounds, default=None),
        "stop_reason": answer.stop_reason.value,
    }
    solve_s = round((begun.solve_s or 0.0) + answer.solve_s, 6)
    claim["gap"] = relative_gap(claim[objective], claim[bound])
    return replace(best, claim=claim, run={**best.run, "solve_s": solve_s})


# -- answers from files ------------------------------------------------------------------------------------------------


def _recall(state: _Sweep, place: int) -> bool:
    """Fill in a row from the file of an earlier answer; False where there is none, or none that holds.

    One that was interrupted goes to `begun` as well.
    """
    state.begun.pop(place, None)
    try:
        if not state.path(place).exists():
            return False
        record = load_record(state.path(place))
        if record.raw("format") == _INFEASIBLE_FORMAT:
            state.rows[place] = _infeasible_row(state, place, record)
        else:
            plan = read_plan(state.path(place))
            report = check(plan.schedule)
            if not report.valid or max(report.peak_bytes) > state.asked[place][1]:
                return False
            row, keep = _row(state, place, plan, report), keep_set_of(state.graph, plan.schedule)
            if row.is_interrupted:
                float(plan.claim[f"objective_{state.unit}"])  # a claim that can't be compared is damage, too
                state.begun[place] = plan
            state.rows[place], state.keeps[place] = row, keep
    except (InputError, LookupError, TypeError, ValueError):  # a damaged file is as good as none: it is replaced
        return False
    return True


def _infeasible_row(state: _Sweep, place: int, record: Record) -> Row:
    record.integer("version", _INFEASIBLE_VERSION, _INFEASIBLE_VERSION)
    record.integer("budget_bytes", state.asked[place][1], state.asked[place][1])
    solve_s = record.number("solve_s", minimum=0)
    return state.row(place, Status.INFEASIBLE, solve_s=solve_s, stop_reason=StopReason.FINISHED)


def _row(state: _Sweep, place: int, plan: SavedPlan, report: Report) -> Row:
    """Costs and the peak are the replay's; the bound is the solver's claim."""
    unit, cost = state.unit, report.makespan_s if state.unit == "s" else report.energy_j
    if cost is None:
        raise InputError("a plan of least energy must say the power of every op")
    unlimited, bound = float(plan.details[f"unlimited_{unit}"]), plan.claim[f"bound_{unit}"]
    return state.row(
        place,
        Status(plan.claim["status"]),
        cost_s=report.makespan_s,
        energy_j=report.energy_j,
        bound_s=bound if unit == "s" else None,
        bound_j=bound if unit == "j" else None,
        gap=plan.claim["gap"],
        overhead=cost / unlimited - 1 if unlimited else 0.0,
        overhead_bound=None if bound is None else max(bound / unlimited - 1, 0.0) if unlimited else 0.0,
        peak_bytes=max(report.peak_bytes),
        solve_s=plan.solve_s or 0.0,
        plan=state.path(place).name,
        stop_reason=StopReason(plan.claim["stop_reason"]),
    )
