"""The sweep: what has no result yet goes to the engine; every result becomes a row of the table."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from gapless.errors import GaplessError, InputError
from gapless.io.atomic import check_writable
from gapless.options import Progress
from gapless.sweeps.instances import Instance
from gapless.sweeps.local import Engine, Local, Task
from gapless.sweeps.results import FAILED, WAITING, Row, read_row
from gapless.sweeps.summary import SUMMARY_JSON, write_summary

__all__ = ["bare_row", "known_rows", "sweep"]


def sweep(
    instances: Sequence[Instance],
    folder: str | Path,
    engine: Engine | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: threading.Event | None = None,
) -> list[Row]:
    """Solve every instance that has no result in `folder` yet; returns a row for each, in the order of `instances`.

    `engine`: None for processes on this machine. `on_progress` hears of each instance that ends. `stop` ends the sweep:
    nothing more is begun, and what is at work hands over its best plan so far. The folder is made if it isn't there; it
    gets a plan and a result for each instance, named by its hash, and the table.

    Raises `InputError` before anything is solved for an instance that `gapless solve` would refuse, for an engine
    that can't work with its options, and for a folder that can't be written to. An instance that fails later is a row.
    As with every spawned process, a script that calls this needs its `if __name__ == "__main__":`.
    """
    engine, stop = engine or Local(), stop or threading.Event()
    engine.check()
    root = Path(folder).absolute()
    rows = known_rows(instances, root)
    tasks = [
        Task(place, instance, instance.check())
        for place, instance in enumerate(instances)
        if (row := rows.get(place)) is None or row.is_interrupted
    ]
    _prepare(root)
    begin_s, open_places = time.monotonic(), {task.place for task in tasks}

    def report(phase: str, row: Row | None) -> None:
        if on_progress is not None:
            done, wall_s = len(instances) - len(open_places), time.monotonic() - begin_s
            on_progress(_progress(wall_s, phase, row, done, len(instances)))

    if len(tasks) < len(instances):
        report("known from before", None)
    if tasks:
        for place, outcome in engine.run(tasks, root, stop):
            if outcome is None:
                continue
            rows[place] = _row(instances[place], outcome, rows.get(place))
            open_places.discard(place)
            report(f"{instances[place].title}: {rows[place].verdict}", rows[place])
    if stop.is_set():
        ended = known_rows(instances, root)  # without a word, some of them
        rows |= {place: row for place, row in ended.items() if place in open_places}
    found = [rows[place] if place in rows else bare_row(instance) for place, instance in enumerate(instances)]
    write_summary(root, found)
    return found


def known_rows(instances: Sequence[Instance], folder: Path) -> dict[int, Row]:
    """The results of earlier sweeps, by place; those that were interrupted too."""
    read = ((place, read_row(folder, instance)) for place, instance in enumerate(instances))
    return {place: row for place, row in read if row is not None}


def _prepare(folder: Path) -> None:
    """Make the folder, and see whether it can be written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}; choose another one") from None
    check_writable(folder / SUMMARY_JSON)


def _row(instance: Instance, outcome: Row | GaplessError, earlier: Row | None) -> Row:
    """The row of an outcome; the plan of an earlier one that was interrupted outlives an error."""
    if isinstance(outcome, Row):
        return outcome
    return replace(earlier or bare_row(instance, FAILED), error=str(outcome))


def bare_row(instance: Instance, status: str = WAITING) -> Row:
    """The row of an instance that nothing is known of."""
    return Row(instance.hash, instance.system, dict(instance.values), instance.swept, status)


def _progress(wall_s: float, phase: str, row: Row | None, done: int, total: int) -> Progress:
    if row is None:
        return Progress(wall_s, None, None, phase, done=done, total=total)
    if row.objective_j is not None or row.bound_j is not None:
        return Progress(wall_s, row.objective_j, row.bound_j, phase, "j", done, total)
    return Progress(wall_s, row.objective_s, row.bound_s, phase, "s", done, total)
