"""Sweeps: one training graph under many budgets, for the curve of overhead against memory.

Budgets are solved in the order of a bisection: first the middle one, then the middles of both halves, and so on. Each
starts from the plans of the nearest smaller and larger budgets before it in that order: the same starts, however many
processes work side by side.

Every answer is a file of its own in the folder: a plan, or the record that nothing fits. Its name holds a hash of the
graph and the options, so that a sweep goes on where an earlier one ended. Rows are always read from these files.

A plan whose solve was interrupted is a row too, but no answer: the next sweep starts from it, and keeps the better one.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from gapless import __version__
from gapless.checker import Report, check
from gapless.encodings.monet.keepset import KeepSet
from gapless.encodings.monet.objective import UNITS, Objective
from gapless.encodings.monet.problem import Problem
from gapless.encodings.monet.tradeoff import Row, write_table
from gapless.errors import InputError
from gapless.io.atomic import write_text
from gapless.io.plan import SavedPlan, plan_text, read_plan
from gapless.io.record import Record, load_record
from gapless.jobs import Answer, Job, Jobs, shares, solving
from gapless.options import Progress, SolveOptions, relative_gap
from gapless.profiles.training.baseline import peak_without_saving_bytes
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.graph_file import training_graph_text
from gapless.schedule import Schedule
from gapless.solution import Status, StopReason
from gapless.units import Unit, format_bytes

__all__ = ["keep_set_of", "sweep"]

_INFEASIBLE_FORMAT, _INFEASIBLE_VERSION = "gapless.monet-infeasible", 1


@dataclass
class _Sweep:
    """What is asked, and what is known by now, by place in `budgets`.

    `open`: the places that this sweep has no answer for yet. `begun`: the plans of interrupted solves, to go on from.
    """

    graph: TrainingGraph
    budgets: list[int]
    options: SolveOptions
    objective: Objective
    folder: Path
    peak_bytes: int
    key: str
    begin_s: float = field(default_factory=time.monotonic)
    rows: dict[int, Row] = field(default_factory=dict)
    keeps: dict[int, KeepSet] = field(default_factory=dict)
    begun: dict[int, SavedPlan] = field(default_factory=dict)
    open: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.open = set(range(len(self.budgets)))

    @property
    def unit(self) -> Unit:
        """What the objective is counted in."""
        return UNITS[self.objective]

    def path(self, place: int) -> Path:
        """The file of an answer."""
        name = re.sub(r"[^A-Za-z0-9._-]+", "_", self.graph.name)
        return self.folder / f"{name}-{self.budgets[place]}-{self.key}.json"

    def done(self, place: int) -> None:
        """Tell the caller that one more budget is done."""
        self.open.discard(place)
        if self.options.on_progress is not None:
            row, total = self.rows[place], len(self.budgets)
            phase = f"{format_bytes(self.budgets[place])}: {row.verdict}"
            cost, bound = (row.cost_s, row.bound_s) if self.unit == "s" else (row.energy_j, row.bound_j)
            elapsed_s, done = time.monotonic() - self.begin_s, total - len(self.open)
            self.options.on_progress(Progress(elapsed_s, cost, bound, phase, self.unit, done, total))


def sweep(
    graph: TrainingGraph, budgets: Sequence[int], options: SolveOptions, workers: int, folder: str | Path,
    objective: Objective = "time",
) -> list[Row]:  # fmt: skip
    """Solve every budget that has no answer in `folder` yet; returns the rows by ascending budget.

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

    Raises `InputError` for budgets below 1, for threads and workers beyond the cores, for a folder that can't be
    written to, and for energy where an implementation's power is unknown. As with every spawned process, a script that
    calls this needs its `if __name__ == "__main__":`.
    """
    if not budgets or min(budgets) < 1:
        raise InputError(f"budgets must hold at least one, each >= 1 byte, got {list(budgets)}")
    Problem(graph, min(budgets), objective=objective)  # refuses what it must before the folder is made
    shares(options.threads, workers, len(budgets))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    asked = sorted(set(budgets))
    peak_bytes, key = peak_without_saving_bytes(graph), _key(graph, options, objective)
    state = _Sweep(graph, asked, options, objective, Path(folder), peak_bytes, key)
    for place in range(len(asked)):
        if _recall(state, place) and place not in state.begun:
            state.done(place)
    _solve_the_rest(state, workers)
    rows = [state.rows[place] for place in sorted(state.rows)]
    write_table(state.folder, rows)
    return rows


def _key(graph: TrainingGraph, options: SolveOptions, objective: Objective) -> str:
    """A hash of all that an answer depends on, except for threads: more of them only save time."""
    asked = [__version__, options.time_limit_s, options.gap, options.seed, options.solver, objective]
    content = training_graph_text(replace(graph, source="")) + json.dumps(asked)
    return hashlib.sha256(content.encode()).hexdigest()[:12]


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


def _solve_the_rest(state: _Sweep, workers: int) -> None:
    """Keep all processes busy with budgets whose neighbours are done, until all are, or the caller says stop."""
    waiting = [(place, near) for place, near in bisection(len(state.budgets)) if place in state.open]
    if not waiting:
        return
    threads, workers = shares(state.options.threads, workers, len(waiting))
    options = replace(state.options, threads=threads, on_progress=None)
    jobs: Jobs[Answer] = Jobs()
    with closing(jobs):
        while (waiting or jobs.running) and not state.options.stop.is_set():
            ready = [(place, near) for place, near in waiting if state.open.isdisjoint(near)]
            for place, near in ready[: workers - jobs.running]:
                waiting.remove((place, near))
                starts = tuple(state.keeps[other] for other in (place, *near) if other in state.keeps)
                problem = Problem(state.graph, state.budgets[place], starts, state.objective)
                jobs.start(Job(place, f"budget {problem.budget_bytes}", solving(problem, options)))
            _take_finished(state, jobs)
        jobs.stop()
        while jobs.running:
            _take_finished(state, jobs)


def _take_finished(state: _Sweep, jobs: Jobs[Answer]) -> None:
    for place, answer in jobs.finished():
        _take(state, place, answer)
        state.done(place)


def _take(state: _Sweep, place: int, answer: Answer) -> None:
    """Write an answer to its file and read it back; one that isn't for the files becomes a row only."""
    budget_bytes = state.budgets[place]
    plan = _joined(state.begun[place], answer, state) if place in state.begun else answer.plan
    if answer.status is Status.INFEASIBLE:
        head = {"format": _INFEASIBLE_FORMAT, "version": _INFEASIBLE_VERSION, "budget_bytes": budget_bytes}
        text = json.dumps({**head, "solve_s": answer.solve_s, **answer.details}) + "\n"
    elif plan is not None:
        text = plan_text(plan)
    else:
        state.rows[place] = Row(
            budget_bytes,
            budget_bytes / state.peak_bytes,
            answer.status,
            solve_s=answer.solve_s,
            violations=answer.violations,
            stop_reason=answer.stop_reason,
        )
        return
    write_text(state.path(place), text)
    recalled = _recall(state, place)
    assert recalled, "an answer that was just written holds"


def _joined(begun: SavedPlan, answer: Answer, state: _Sweep) -> SavedPlan:
    """The better plan of an interrupted solve and of the one that went on from it, with what both have proven."""
    objective, bound = f"objective_{state.unit}", f"bound_{state.unit}"
    later = begun if answer.plan is None else answer.plan
    best = begun if begun.claim[objective] < later.claim[objective] else later
    bounds = [its.claim[bound] for its in (begun, later) if its.claim[bound] is not None]
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
            state.rows[place] = _infeasible_row(state, record)
        else:
            plan = read_plan(state.path(place))
            report = check(plan.schedule)
            if not report.valid or max(report.peak_bytes) > state.budgets[place]:
                return False
            row, keep = _row(state, place, plan, report), keep_set_of(state.graph, plan.schedule)
            if row.is_interrupted:
                float(plan.claim[f"objective_{state.unit}"])  # a claim that can't be compared is damage, too
                state.begun[place] = plan
            state.rows[place], state.keeps[place] = row, keep
    except (InputError, LookupError, TypeError, ValueError):  # a damaged file is as good as none: it is replaced
        return False
    return True


def _infeasible_row(state: _Sweep, record: Record) -> Row:
    record.integer("version", _INFEASIBLE_VERSION, _INFEASIBLE_VERSION)
    budget_bytes = record.integer("budget_bytes", 1)
    return Row(
        budget_bytes=budget_bytes,
        memory_ratio=budget_bytes / state.peak_bytes,
        status=Status.INFEASIBLE,
        solve_s=record.number("solve_s", minimum=0),
        stop_reason=StopReason.FINISHED,
    )


def _row(state: _Sweep, place: int, plan: SavedPlan, report: Report) -> Row:
    """Costs and the peak are the replay's; the bound is the solver's claim."""
    unit, cost = state.unit, report.makespan_s if state.unit == "s" else report.energy_j
    if cost is None:
        raise InputError("a plan of least energy must say the power of every op")
    unlimited, bound = float(plan.details[f"unlimited_{unit}"]), plan.claim[f"bound_{unit}"]
    return Row(
        budget_bytes=state.budgets[place],
        memory_ratio=state.budgets[place] / state.peak_bytes,
        status=Status(plan.claim["status"]),
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


def keep_set_of(graph: TrainingGraph, schedule: Schedule) -> KeepSet:
    """The keep-set that a schedule of this graph follows, or comes closest to: where another search can begin."""
    nodes = len(graph.forward)
    held: set[int] = set()
    made_at: dict[int, int] = {}  # the stage of a recomputation whose tensor nobody has read yet
    stage, lead = 1, np.zeros(nodes, dtype=np.int64)
    kept, again = np.zeros(nodes, dtype=np.bool_), np.zeros(nodes, dtype=np.int64)
    variant = np.zeros(len(graph.backward), dtype=np.int64)
    is_forward = True
    for number in range(len(schedule)):
        event = schedule.event(number)
        op = schedule.graph.ops[event.op]
        impl = op.implementations[event.implementation]
        for tensor in op.reads(event.implementation):
            if tensor in made_at:
                lead[tensor - 1] = max(lead[tensor - 1], stage - made_at.pop(tensor))
        if op.kind == "backward":
            place = op.outputs[0] - 1 - nodes
            stage = place + 2
            variant[place] = _variant(graph, place, op.reads(event.implementation), impl.duration_s)
        elif op.kind == "forward" and not is_forward:
            again[op.outputs[0] - 1] += 1
            made_at[op.outputs[0]] = stage
        held |= set(op.outputs)
        held -= {*impl.overwrites, *(tensor for tensor, _ in event.frees)}
        if op.kind == "loss" and is_forward:
            kept[[tensor - 1 for tensor in held]] = True
            is_forward = False
    return KeepSet(kept, again > np.where(kept, 0, 1), variant, lead)


def _variant(graph: TrainingGraph, place: int, reads: Sequence[int], duration_s: float) -> int:
    """The variant of a backward node that reads these tensors, apart from the gradients, for so long."""
    needs = {tensor - 1 for tensor in reads if tensor <= graph.loss}
    for number, variant in enumerate(graph.backward[place].variants):
        if set(variant.needs) == needs and any(impl.duration_s == duration_s for impl in variant.implementations):
            return number
    raise InputError(f"the schedule is of another graph: backward node {graph.backward[place].name!r} can't run so")
