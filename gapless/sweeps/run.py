"""The sweep: what has no result yet goes to the engine; every result becomes a row of the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.errors import GaplessError
from gapless.io.atomic import check_writable, make_folder
from gapless.options import Progress
from gapless.report.short_repr import card_html, one_line, table_of
from gapless.report.text import described
from gapless.sweeps.local import Engine, Local, Task
from gapless.sweeps.question import Question
from gapless.sweeps.results import FAILED, WAITING, Row, read_row
from gapless.sweeps.summary import SUMMARY_JSON, write_summary

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Rows", "answers", "bare_row", "known_rows", "sweep"]

_MOST_SHOWN = 50


class Rows(list[Row]):
    """The rows of a sweep, in the order of its instances; notebooks show a table, and it can be drawn."""

    def __repr__(self) -> str:
        answers = sum(row.is_answer for row in self)
        return f"<sweep: {len(self)} instances, {answers} of them answered>"

    def _repr_html_(self) -> str:
        fields = list(dict.fromkeys(name for row in self for name in row.swept))
        said = [name for name in ("narrower", "wider") if any(name in row.details for row in self)]
        titles = ["system", *fields, "status", "answer", "bound", "gap", *said, "makespan", "peak"]
        lines = [
            [
                row.system,
                *(one_line(str(row.fields.get(name, "")), 40) for name in fields),
                row.status,
                described(f"objective_{row.unit}", row.objective),
                described(f"bound_{row.unit}", row.bound),
                described("gap", row.gap),
                *(str(row.details.get(name, "-")) for name in said),
                *(described(name, getattr(row, name)) for name in ("makespan_s", "peak_bytes")),
            ]
            for row in self[:_MOST_SHOWN]
        ]
        more = f"<div><i>and {len(self) - _MOST_SHOWN} more</i></div>" if len(self) > _MOST_SHOWN else ""
        is_good = all(row.is_answer for row in self)
        return card_html(f"{len(self)} instances", (), is_good, table_of(lines, titles) + more)

    def plot(self, x: str | None = None, y: str | None = None) -> Figure:
        """Draw a column over a swept field, as `gapless plot --x --y` does; returns the figure.

        Raises `InputError` where there is nothing to draw.
        """
        from gapless.plot.sweep_curves import draw_sweep
        from gapless.report.notebook import shown_in_notebooks

        return shown_in_notebooks(draw_sweep(self, x, y), "the sweep")


def sweep(
    instances: Sequence[Question],
    folder: str | Path,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> Rows:
    """`answers`, and their table in `folder`."""
    rows = Rows(answers(instances, folder, engine, on_progress, stop))
    write_summary(Path(folder), rows)
    return rows


def answers(
    questions: Sequence[Question],
    folder: str | Path,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
    is_final: Callable[[Row], bool] = lambda row: not row.is_interrupted,
) -> list[Row]:
    """Solve every question that has no result in `folder` yet; returns a row for each, in the order of `questions`.

    `engine`: None for processes on this machine. `on_progress` hears of each question that ends. `stop` ends the sweep:
    nothing more is begun, and what is at work hands over its best plan so far. `is_final`: whether an earlier result
    stands; where it doesn't, the better plan of both is kept. The folder is made if it isn't there; it gets a plan and
    a result for each question, named by its hash.

    Raises `InputError` before anything is solved for a question that `gapless solve` would refuse, for an engine
    that can't work with its options, and for a folder that can't be written to. A question that fails later is a row.
    """
    engine, stop = engine or Local(), stop or threading.Event()
    engine.check()
    root = Path(folder).absolute()
    rows = known_rows(questions, root)
    tasks = [
        Task(place, question, question.check())
        for place, question in enumerate(questions)
        if place not in rows or not is_final(rows[place])
    ]
    make_folder(root)
    check_writable(root / SUMMARY_JSON)
    begin_s, open_places = time.monotonic(), {task.place for task in tasks}

    def report(phase: str, row: Row | None) -> None:
        if on_progress is not None:
            found = (None, None, "s") if row is None else (row.objective, row.bound, row.unit)
            done, wall_s = len(questions) - len(open_places), time.monotonic() - begin_s
            on_progress(Progress(wall_s, found[0], found[1], phase, found[2], done, len(questions)))

    if len(tasks) < len(questions):
        report("known from before", None)
    if tasks:
        for place, outcome in engine.run(tasks, root, stop):
            if outcome is None:
                continue
            rows[place] = _row(questions[place], outcome, rows.get(place))
            open_places.discard(place)
            report(f"{questions[place].title}: {rows[place].verdict}", rows[place])
    if stop.is_set():
        ended = known_rows(questions, root)  # without a word, some of them
        rows |= {place: row for place, row in ended.items() if place in open_places}
    return [rows[place] if place in rows else bare_row(question) for place, question in enumerate(questions)]


def known_rows(questions: Sequence[Question], folder: Path) -> dict[int, Row]:
    """The results of earlier sweeps, by place; those that were interrupted too."""
    read = ((place, read_row(folder, question)) for place, question in enumerate(questions))
    return {place: row for place, row in read if row is not None}


def _row(question: Question, outcome: Row | GaplessError, earlier: Row | None) -> Row:
    """The row of an outcome; the plan of an earlier one that was interrupted outlives an error."""
    if isinstance(outcome, Row):
        return outcome
    return replace(earlier or bare_row(question, FAILED), error=str(outcome))


def bare_row(question: Question, status: str = WAITING) -> Row:
    """The row of a question that nothing is known of."""
    return Row(question.hash, question.system, dict(question.values), question.swept, status)
