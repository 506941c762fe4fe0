"""Results: what came of each question, in the file HASH.json of the sweep's folder, beside its plan.

A result stands until its question has another hash, or its plan is no longer the file that it was. An interrupted one
is no answer, and solved again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from gapless.errors import InputError
from gapless.installation.extras import library_versions
from gapless.io.atomic import write_text
from gapless.io.plan import claim_data
from gapless.io.record import Record, load_record
from gapless.options import relative_gap
from gapless.question.recorded import file_digest
from gapless.report.headline import narrower_of, wider_of
from gapless.report.short_repr import Brief
from gapless.result import Result
from gapless.solution import Status, StopReason
from gapless.sweeps.question import Question
from gapless.sweeps.sweep_file import Value
from gapless.system import system_names
from gapless.units import UNITS, Unit

__all__ = ["Row", "joined", "read_row", "result_path", "row_from", "row_of", "write_row"]

T = TypeVar("T")

FORMAT, VERSION = "gapless.sweep-result", 1

WAITING, FAILED = "waiting", "failed"
"""The status of a question that was not begun, and of one whose solve ended with an error."""
_STATUSES = (*(status.value for status in Status), WAITING, FAILED)
_ANSWERS = (Status.OPTIMAL.value, Status.FEASIBLE.value, Status.INFEASIBLE.value)
_NUMBERS = (
    "objective_s", "bound_s", "objective_span_s", "bound_span_s", "objective_j", "bound_j", "objective_error",
    "bound_error", "objective_cost", "bound_cost", "gap", "makespan_s", "energy_j", "peak_bytes", "solve_s",
)  # fmt: skip
_TEXTS = ("stop_reason", "solver", "plan", "error")


@dataclass(frozen=True, repr=False)
class Row(Brief):
    """What came of a question; None stands for what is not known, or not there.

    `fields`: as the file gives them. `objective_s`, `bound_s` (or `_span_s`, `_j`, `_error`, `_cost`) and `gap`: the
    solver's claim, of any plan of the question. `makespan_s`, `energy_j`, `peak_bytes`: as replayed; `violations`:
    rules that the replay found broken, which leaves the plan unwritten. `plan`: its file's name in the folder. `error`:
    of a question whose status is `failed`. `details`: the plain values of the encoding's own account; `narrower`, the
    gaps within narrower classes of plans, and `wider`, a better plan of a wider question, are words there.
    """

    hash: str
    system: str
    fields: Mapping[str, Value]
    swept: tuple[str, ...]
    status: str = WAITING
    stop_reason: str | None = None
    objective_s: float | None = None
    bound_s: float | None = None
    objective_span_s: float | None = None
    bound_span_s: float | None = None
    objective_j: float | None = None
    bound_j: float | None = None
    objective_error: float | None = None
    bound_error: float | None = None
    objective_cost: float | None = None
    bound_cost: float | None = None
    gap: float | None = None
    violations: int | None = None
    makespan_s: float | None = None
    energy_j: float | None = None
    peak_bytes: float | None = None
    solve_s: float | None = None
    solver: str | None = None
    plan: str | None = None
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody stopped the solver: its plan is the best so far and no answer."""
        return self.stop_reason == StopReason.INTERRUPTED.value

    @property
    def is_answer(self) -> bool:
        """Whether there is a plan, or proof that there is none, and the solver was not interrupted."""
        return self.status in _ANSWERS and not self.is_interrupted and not self.violations

    @property
    def unit(self) -> Unit:
        """What the objective is counted in."""
        known = (
            each
            for each in UNITS
            if self._claimed("objective", each) is not None or self._claimed("bound", each) is not None
        )
        return next(known, "s")

    @property
    def objective(self) -> float | None:
        """What was minimised, as claimed."""
        return self._claimed("objective", self.unit)

    @property
    def bound(self) -> float | None:
        """What is proven of it, as claimed."""
        return self._claimed("bound", self.unit)

    def _claimed(self, title: str, unit: Unit) -> float | None:
        found: float | None = getattr(self, f"{title}_{unit}")
        return found

    def is_better_than(self, other: Row) -> bool:
        """Whether there is a plan, and none as good in the other row."""
        own, others = (
            math.inf if row.plan is None or row.objective is None else row.objective for row in (self, other)
        )
        return own < others

    @property
    def verdict(self) -> str:
        """The status in a word for people."""
        return "interrupted" if self.is_interrupted else self.status

    @property
    def data(self) -> dict[str, object]:
        """The row in plain values, for files."""
        return asdict(self)


def result_path(folder: Path, question: Question) -> Path:
    """The file of a question's result."""
    return folder / f"{question.hash}.json"


def row_of(question: Question, result: Result, plan: str | None) -> Row:
    """What a solve and its replay have found."""
    report = result.report
    replayed: dict[str, object] = {}
    if report is not None:
        peak_bytes = max(report.peak_bytes, default=0)
        replayed = {"makespan_s": report.makespan_s, "energy_j": report.energy_j, "peak_bytes": peak_bytes}
    found: dict[str, Any] = {**claim_data(result.solution), "solve_s": round(result.solution.wall_s, 6), **replayed}
    plain = {name: value for name, value in result.details.items() if isinstance(value, (str, int, float))}
    narrower = "; ".join(f"{said}, {bound}" for bound, said in narrower_of(found))
    said = {"narrower": narrower, "wider": wider_of(result.details)}
    plain |= {name: text for name, text in said.items() if text}
    return Row(
        hash=question.hash,
        system=question.system,
        fields=dict(question.values),
        swept=question.swept,
        status=result.status.value,
        stop_reason=result.solution.stop_reason.value,
        violations=None if report is None else report.violation_count,
        solver=result.solution.solver,
        plan=plan,
        details={name: _finite(value) for name, value in plain.items()},
        **{name: _finite(found[name]) for name in _NUMBERS if name in found},
    )


def joined(earlier: Row, later: Row) -> Row:
    """The better plan of a solve that was no answer yet and of the one after it, with what both have proven."""
    if earlier.plan is None or later.violations or later.status == Status.INFEASIBLE.value:
        return later
    best = earlier if earlier.is_better_than(later) else later
    bound = max((row.bound for row in (earlier, later) if row.bound is not None), default=None)
    proven: dict[str, Any] = {f"bound_{best.unit}": bound, "gap": _finite(relative_gap(best.objective, bound))}
    solve_s = round((earlier.solve_s or 0.0) + (later.solve_s or 0.0), 6)
    return replace(best, stop_reason=later.stop_reason, solve_s=solve_s, **proven)


def _finite(value: T) -> T | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_row(folder: Path, question: Question, row: Row) -> None:
    """Write a result, whole or not at all; its plan must be there already."""
    data = {
        "format": FORMAT,
        "version": VERSION,
        **row.data,
        "files": dict(question.files),
        "plan_sha256": None if row.plan is None else file_digest(folder / row.plan),
        "command": question.command,
        "versions": library_versions(),
    }
    write_text(result_path(folder, question), json.dumps(data, allow_nan=False, indent=1) + "\n")


def read_row(folder: Path, question: Question) -> Row | None:
    """The result of an earlier sweep, None if there is none that holds: a damaged one is as good as none."""
    path = result_path(folder, question)
    if not os.path.exists(path):
        return None
    try:
        record = load_record(path)
        record.of_format(FORMAT, VERSION)
        row = row_from(record)
        if row.plan is not None and file_digest(folder / row.plan) != record.text("plan_sha256"):
            return None
    except InputError:
        return None
    # Names that mean the same, such as 1MB and 1000KB, are reported as this sweep's file has them.
    is_its = row.hash == question.hash and row.stop_reason is not None
    return replace(row, fields=dict(question.values), swept=question.swept) if is_its else None


def row_from(record: Record) -> Row:
    """A row in plain values. Raises `InputError` for one that is none."""
    record.text("status", choices=_STATUSES)
    plain: dict[str, Any] = {name: None if record.raw(name) is None else record.text(name) for name in _TEXTS}
    if plain["plan"] is not None and Path(plain["plan"]).name != plain["plan"]:
        raise record.fail("plan", "the name of a file in the folder", plain["plan"])
    plain |= {name: None if record.raw(name) is None else record.number(name) for name in _NUMBERS}
    fields, details = record.record("fields"), record.record("details")
    for name in record.array("swept"):
        if name not in fields.names():
            raise record.fail("swept", "a list of fields", name)
    return Row(
        hash=record.text("hash"),
        system=record.text("system", choices=system_names()),
        fields={name: _plain(fields, name) for name in fields.names()},
        swept=record.texts("swept"),
        status=record.text("status"),
        violations=None if record.raw("violations") is None else record.integer("violations", 0),
        details={name: None if details.raw(name) is None else _plain(details, name) for name in details.names()},
        **plain,
    )


def _plain(record: Record, name: str) -> Value:
    value = record.raw(name)
    if not isinstance(value, (str, int, float)):
        raise record.fail(name, "a text or a number", value)
    if not isinstance(value, (str, bool)):
        record.number(name)  # refuses what does not fit into 64 bits
    return value
