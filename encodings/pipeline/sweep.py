"""The sweep: one question under several limits of memory, from the tightest on, each with the plan before as a start.

A plan that keeps to a limit keeps to every looser one: it is a start of the search there, and stands where that finds
nothing faster. So more memory never gives a slower plan within a sweep. Answers are kept by `gapless.sweeps`, in files
whose names hold a hash of the question, of the tighter limits, and of how it is solved.
"""

from __future__ import annotations

import hashlib
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gapless import __version__
from gapless.encodings.pipeline.parameters import Parameters
from gapless.encodings.pipeline.problem import Problem, problem_of
from gapless.encodings.pipeline.programs.start import Start, start_of
from gapless.encodings.pipeline.question import LIMITS, Question
from gapless.errors import GaplessError, InputError, SolverError
from gapless.options import SolveOptions, relative_gap
from gapless.question import fields_of
from gapless.question.parameters import parameters_of
from gapless.question.recorded import remember
from gapless.report.text import described, table
from gapless.solution import PROVEN_GAP, Status
from gapless.sweeps.local import Local, Outcome, Task
from gapless.sweeps.question import Given, limits_of
from gapless.sweeps.results import Row, read_row
from gapless.sweeps.run import Rows, answers
from gapless.sweeps.summary import table_files, write_summary
from gapless.sweeps.sweep_file import Value
from gapless.system import Answer, Session

__all__ = ["answer", "closed", "sweep"]


def answer(values: Mapping[str, Any], session: Session) -> Answer:
    """Solve the question within every limit; what came of it as data and as a table."""
    given = {name: values[name] for name in LIMITS if values[name] is not None}
    if len(given) != 1:
        raise InputError(f"memory, in_flight: must be one of both, got {' and '.join(given) or 'neither'}")
    [(name, limits)] = given.items()
    asked = {key: value for key, value in values.items() if key not in (*LIMITS, "output")}
    parameters = parameters_of(Parameters, session.parameters)
    rows = sweep(asked, name, limits, session.options, values["output"], parameters)
    data = {"problem": "pipeline", **table_files(Path(values["output"])), "rows": [row.data for row in rows]}
    answered = sum(row.is_answer for row in rows)
    is_complete = answered == len(rows)
    notes = () if is_complete else (f"{answered} of {len(rows)} limits have an answer",)
    return Answer(data, _text(rows, name), notes, is_complete, not any(row.violations for row in rows))


def sweep(
    asked: Mapping[str, Any], limit: str, limits: Sequence[int], options: SolveOptions, folder: str | Path,
    parameters: Parameters | None = None,
) -> Rows:  # fmt: skip
    """Solve a question within every limit that has no answer in `folder` yet; returns a row for each, in their order.

    Parameters
    ----------
    asked
        The fields of the question but for its limits of memory, as Python's `gapless.pipeline.problem` takes them.
    limit
        What is swept: `memory`, bytes of a rank, or `in_flight`, micro-batches.
    limits
        In any order; of two that are equal the first.
    options
        For each limit by itself. `stop` ends the sweep: what is at work hands over its best plan so far.
    folder
        Made if it isn't there. Gets a plan and a result for each limit, and the table as `summary.csv` and
        `summary.json`.
    parameters
        Of the searches; None for the defaults.

    Raises `InputError` for what `gapless solve` would refuse, and for a folder that can't be written to.
    """
    limits = list(dict.fromkeys(limits))
    if not limits:
        raise InputError(f"{limit}: must be at least one limit, got none")
    questions = _questions(asked, limit, limits, options, parameters or Parameters())
    order = tuple(sorted(range(len(limits)), key=limits.__getitem__))
    found = answers(questions, folder, _Curve(asked, tuple(questions), order, options.threads), options.on_progress,
                    options.stop)  # fmt: skip
    rows = Rows(closed(found, order, limit))
    write_summary(Path(folder), rows)
    return rows


def _questions(
    asked: Mapping[str, Any], limit: str, limits: Sequence[int], options: SolveOptions, parameters: Parameters
) -> list[Given]:
    """In the order of the limits. Tighter ones are in the hash: their plans are starts."""
    known = limits_of(options)
    settings = repr((__version__, {name: value for name, value in known.items() if name != "threads"}, parameters))
    made = []
    for most in limits:
        problem = _problem(asked, {limit: most})
        tighter = sorted(other for other in limits if other < most)
        content = settings.encode() + pickle.dumps((problem, tighter))
        values: dict[str, Value] = {limit: most}
        made.append(Given(problem, known, f"{limit}-{most}-{hashlib.sha256(content).hexdigest()[:12]}",
                          f"{limit} {most}", values, (limit,), parameters=parameters))  # fmt: skip
    return made


def _problem(asked: Mapping[str, Any], limit: Mapping[str, Value], starts: tuple[Start, ...] = ()) -> Problem:
    """The question within a limit, which knows in which words it was asked."""
    fields: dict[str, Any] = {**asked, **limit}
    question = Question(**fields)
    return remember(replace(problem_of(question), starts=starts), fields_of(Question), vars(question))


@dataclass(frozen=True)
class _Curve:
    """The engine: one limit after the other, in `order`, on so many threads (0 for all cores). `asked`: what their
    questions have in common."""

    asked: Mapping[str, Any]
    questions: tuple[Given, ...]
    order: tuple[int, ...]
    threads: int

    def check(self) -> None:
        """See `Engine`."""
        self._local.check()

    @property
    def _local(self) -> Local:
        return Local(self.threads, 1)

    def run(self, tasks: Sequence[Task], folder: Path, stop: threading.Event) -> Iterator[tuple[int, Outcome]]:
        """See `Engine`; raises what a solve raises."""
        wanted = {task.place for task in tasks}
        waiting = [place for place in self.order if place in wanted]
        chained = [(place, tuple(waiting[max(at - 1, 0) : at])) for at, place in enumerate(waiting)]

        def question_of(place: int) -> Given:
            question, starts = self.questions[place], self._starts(place, folder)
            return replace(question, problem=_problem(self.asked, question.values, starts))

        for place, outcome in self._local.in_order(chained, question_of, folder, stop):
            if isinstance(outcome, GaplessError):
                raise outcome
            yield place, outcome

    def _starts(self, place: int, folder: Path) -> tuple[Start, ...]:
        """The plan of the loosest of the tighter limits that has one."""
        for other in reversed(self.order[: self.order.index(place)]):
            row = read_row(folder, self.questions[other])
            if row is not None and row.plan is not None:
                return (start_of(str(folder / row.plan)),)
        return ()


def closed(rows: Sequence[Row], order: Sequence[int], limit: str) -> list[Row]:
    """The rows with the plan of a tighter limit where their own is slower, as where time was up, or there is none.

    Raises `SolverError` where a plan refutes what was proven of a looser limit.
    """
    found, best = list(rows), None
    for place in order:
        row = found[place]
        if best is not None and best.is_better_than(row):
            found[place] = row = _with_plan_of(row, best, limit)
        best = row if row.plan is not None else best
    return found


def _with_plan_of(row: Row, best: Row, limit: str) -> Row:
    cost, bound = best.objective, row.bound
    assert cost is not None
    is_refuted = row.status == Status.INFEASIBLE.value or (bound is not None and bound > cost * (1 + PROVEN_GAP))
    if is_refuted:
        proven = "that nothing fits" if bound is None else f"a bound of {bound}"
        raise SolverError(f"{limit} {row.fields[limit]}: a plan of {cost} for {best.fields[limit]} refutes {proven}")
    status = row.status if row.is_interrupted else Status.FEASIBLE.value
    changed: dict[str, Any] = {f"bound_{best.unit}": bound, "gap": relative_gap(cost, bound)}
    return replace(best, hash=row.hash, fields=row.fields, status=status, stop_reason=row.stop_reason,
                   solve_s=row.solve_s, **changed,
                   details={**best.details, "plan_of": best.details.get("plan_of", best.fields[limit])})  # fmt: skip


def _text(rows: Sequence[Row], limit: str) -> str:
    named = f"{limit}_bytes" if limit == "memory" else limit
    lines = [[limit.replace("_", " "), "status", "method", "objective", "bound", "gap", "peak", "solved in"]]
    for row in rows:
        lines.append([
            described(named, row.fields[limit]), row.verdict, str(row.details.get("method", "-")),
            described(f"objective_{row.unit}", row.objective), described(f"bound_{row.unit}", row.bound),
            described("gap", row.gap), described("peak_bytes", row.peak_bytes), described("solve_s", row.solve_s),
        ])  # fmt: skip
    return table(lines)
