"""How a running solve is reported: a live line on a terminal, plain lines into a pipe, nothing with --quiet."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import Any

from gapless.options import Progress
from gapless.processes.exit import undone_on_leaving
from gapless.report.text import described

__all__ = ["progress_on_stderr"]

Report = Callable[[Progress], None]


@contextmanager
def progress_on_stderr(quiet: bool) -> Iterator[Report | None]:
    """What to call with each report; the live line (extra `cli`) disappears when the block is left."""
    if quiet:
        yield None
    elif sys.stderr.isatty() and find_spec("rich") is not None:
        with _live_line() as report:
            yield report
    else:
        yield _Lines()


@contextmanager
def _live_line(console: Any = None) -> Iterator[Report]:
    """A line that is written over: the time runs on between reports; a bar where instances are counted."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (TimeElapsedColumn(), BarColumn(bar_width=20), TextColumn("{task.description}"))
    console = console or Console(stderr=True)
    with (
        undone_on_leaving(partial(console.show_cursor, True)),
        Display(*columns, console=console, transient=True) as display,
    ):
        task = display.add_task("starting", total=None)

        def report(progress: Progress) -> None:
            display.update(task, total=progress.total, completed=progress.done or 0, description=_described(progress))

        yield report


class _Lines:
    """A line for every news."""

    def __init__(self) -> None:
        self._last = ""

    def __call__(self, progress: Progress) -> None:
        news = _described(progress)
        if news != self._last:
            self._last = news
            print(f"{progress.wall_s:7.2f} s  {news}", file=sys.stderr, flush=True)


def _described(progress: Progress) -> str:
    """Phase, incumbent, bound and gap, in columns of one width; where things are counted, the count before it."""
    if progress.total is not None and progress.incumbent is None and progress.bound is None:
        return f"{progress.done}/{progress.total}  {progress.phase}"
    parts = [
        f"{progress.phase:<11}",
        f"incumbent {described(f'incumbent_{progress.unit}', progress.incumbent):>9}",
        f"bound {described(f'bound_{progress.unit}', progress.bound):>9}",
        f"gap {described('gap', progress.gap)}",
    ]
    if progress.total is not None:
        parts.insert(0, f"{progress.done}/{progress.total}")
    return "  ".join(parts)
