"""`gapless plot`: a plan or a sweep as a picture."""

from __future__ import annotations

import argparse
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

from gapless.cli.options import add_batches, add_quiet, add_time_limit
from gapless.cli.parser import Commands
from gapless.cli.signals import Listening
from gapless.errors import InputError
from gapless.units import format_count

if TYPE_CHECKING:
    from gapless.checker.inspection import Inspection
    from gapless.cli.patience import Patience
    from gapless.io.plan import SavedPlan

__all__ = ["add_commands"]

_MOST_REPLAYED = 500_000
"""Copies that events name, beyond which a picture doesn't wait for the replay, which takes seconds for each million."""

_PLOT_EXAMPLE = """\
Without --kind it draws what suits the plan best, such as the Gantt chart of links and streams, or the memory over the
step. For the summary.json of a sweep that is the trade-off curve; --x and --y choose what is drawn over what, with a
curve for each combination of the rest. A plan that does not replay clean is drawn, and ends with exit code 5. One of
millions of transfers is drawn without replaying it.

example:
  gapless plot plan.json -o plan.svg
  gapless plot plan.json --kind topology -o links.png
  gapless plot plan.json --beside default.json -o both.svg
  gapless plot curve/summary.json -o curve.pdf
  gapless plot results/summary.json --x batch --y peak_bytes -o memory.png
"""


def add_commands(commands: Commands) -> None:
    """Add `plot`."""
    plot = commands.add_parser(
        "plot",
        help="draw a plan or a sweep (needs the extra `plot`)",
        epilog=_PLOT_EXAMPLE,
    )
    plot.add_argument("file", metavar="FILE", help="a plan, or the summary.json of a sweep")
    plot.add_argument("-o", "--output", metavar="FILE", required=True, help="the picture to write: .png, .svg or .pdf")
    plot.add_argument(
        "--kind",
        default="auto",
        metavar="KIND",
        help="auto (default), gantt, resources, memory, topology, convergence, tradeoff, or a system's own (loads)",
    )
    plot.add_argument("--x", metavar="FIELD", help="of a sweep's file: the field along the axis (default: by values)")
    plot.add_argument(
        "--y", metavar="COLUMN", help="of a sweep's file: makespan_s, peak_bytes, details.NAME, ... (default: the cost)"
    )
    plot.add_argument(
        "--beside",
        metavar="PLAN",
        help="of a plan: another one, drawn above it on the same axis of time (gantt, memory)",
    )
    add_quiet(plot)
    add_batches(plot)
    add_time_limit(plot, "of a plan: seconds of wall time, after which it isn't replayed (default: none)")
    plot.set_defaults(run=_plot)


def _plot(arguments: argparse.Namespace) -> int:
    from gapless.cli.patience import Patience
    from gapless.io.record import suggestion
    from gapless.plot.pictures import is_sweep, kinds
    from gapless.plot.style import check_plot

    kind = arguments.kind
    if kind not in ("auto", *kinds()):
        hint = suggestion(kind, kinds())
        rule = f"must be one of auto, {', '.join(kinds())}"
        raise InputError(f"--kind: {rule}, got {kind!r}" + (f"; {hint}" if hint else ""))
    check_plot(arguments.output)
    sweep = is_sweep(arguments.file)
    for option, is_for in (("x", sweep in ("file", "measured")), ("y", sweep not in ("", "budgets"))):
        if not is_for and getattr(arguments, option) is not None:
            raise InputError(f"--{option}: goes with the summary.json of a sweep's file, got {arguments.file}")
    if arguments.beside is not None and (sweep or arguments.batches is not None):
        raise InputError("--beside: goes with a whole plan, not with --batches or the table of a sweep")
    if sweep:
        return _plot_sweep(arguments, sweep)
    if kind == "tradeoff":
        raise InputError(f"{arguments.file}: --kind tradeoff takes the summary.json of a sweep, got a plan")
    stop = threading.Event()
    with Listening(stop, "stopping: what isn't finished is left out"):
        draws = _plot_plan if arguments.beside is None else _plot_beside
        return draws(arguments, Patience(arguments.time_limit, stop))


def _plot_plan(arguments: argparse.Namespace, patience: Patience) -> int:
    """The picture first, then the replay, which a picture of the memory shares."""
    from gapless.cli.output import EXIT_CODES, EXIT_VIOLATIONS
    from gapless.cli.plan_to_view import keep_seen, look
    from gapless.io.atomic import write_bytes
    from gapless.io.kept import copies_named
    from gapless.plot.pictures import pictures_of
    from gapless.report.headline import verdict_of
    from gapless.solution import Status

    kind, parts = arguments.kind, arguments.batches
    if parts is not None and kind == "memory":
        raise InputError(f"{arguments.file}: --batches: the memory is drawn of whole plans, got {parts}")
    looked = patience.given(lambda: look(arguments.file, parts, kind == "memory"))
    seen, picture = None if looked is None else looked.seen, None
    if looked is not None:
        plan = looked.plan
        kind = next(iter(pictures_of(plan)), "gantt") if kind == "auto" else kind
        if kind == "memory" and seen is None:
            seen = patience.given(lambda: _seen(plan))
        is_replayed = seen is not None or (
            parts is None and not looked.is_kept and copies_named(plan.schedule) <= _MOST_REPLAYED
        )
        said = verdict_of(plan, None if seen is None else seen.report) if parts is None else f"batches {parts}"
        verdict = said if is_replayed else f"{said}, not replayed"
        picture = patience.given(lambda: _picture(plan, kind, arguments.output, seen, verdict))
    if looked is None or picture is None:
        print(f"gapless: no picture: {patience.why_over} before it was finished", file=sys.stderr)
        return EXIT_CODES[Status.NO_SOLUTION]
    write_bytes(arguments.output, picture)
    if seen is None and is_replayed:
        seen = patience.given(lambda: _seen(plan))
        if seen is not None and verdict != (verdict := verdict_of(plan, seen.report)):  # the replay knows better
            write_bytes(arguments.output, _picture(plan, kind, arguments.output, seen, verdict))
    if parts is None:
        keep_seen(looked, seen)
    if not arguments.quiet:
        left_out = "; not replayed, `gapless check` does that" if seen is None else ""
        print(f"{arguments.output}: {kind} of {format_count(len(plan.schedule))} events{left_out}")
    if seen is not None and not seen.report.valid:
        print(f"gapless: drawn, but it does not replay clean: {seen.report.summary()}", file=sys.stderr)
        return EXIT_VIOLATIONS
    return 0


def _plot_beside(arguments: argparse.Namespace, patience: Patience) -> int:
    """Two plans, both replayed, on one axis of time."""
    from gapless.cli.output import EXIT_CODES, EXIT_VIOLATIONS
    from gapless.cli.plan_to_view import look
    from gapless.plot.pictures import draw_beside
    from gapless.plot.style import save
    from gapless.solution import Status

    looked = [patience.given(partial(look, path)) for path in (arguments.beside, arguments.file)]
    seen = [None if one is None else one.seen or patience.given(partial(_seen, one.plan)) for one in looked]
    found = [(one.plan, replay) for one, replay in zip(looked, seen, strict=True) if one and replay]
    if len(found) < len(looked):
        print(f"gapless: no picture: {patience.why_over} before it was finished", file=sys.stderr)
        return EXIT_CODES[Status.NO_SOLUTION]
    plans, replays = zip(*found, strict=True)
    save(draw_beside(plans, replays, arguments.kind), arguments.output)
    if not arguments.quiet:
        counts = [format_count(len(plan.schedule)) for plan in plans]
        print(f"{arguments.output}: {len(plans)} plans, {' and '.join(counts)} events")
    broken = [replay.report.summary() for replay in replays if not replay.report.valid]
    for summary in broken:
        print(f"gapless: drawn, but it does not replay clean: {summary}", file=sys.stderr)
    return EXIT_VIOLATIONS if broken else 0


def _picture(plan: SavedPlan, kind: str, path: str, seen: Inspection | None, verdict: str) -> bytes:
    from gapless.plot.pictures import draw
    from gapless.plot.style import rendered

    return rendered(draw(plan, kind, seen=seen, verdict=verdict).figure, path)


def _seen(plan: SavedPlan) -> Inspection:
    from gapless.checker.inspection import inspected

    return inspected(plan.schedule)


def _plot_sweep(arguments: argparse.Namespace, sweep: str) -> int:
    from gapless.plot import write_plot
    from gapless.plot.measured_front import plot_front, read_measured
    from gapless.plot.pictures import read_sweep, tables
    from gapless.plot.style import save
    from gapless.plot.sweep_curves import draw_sweep
    from gapless.sweeps.summary import read_summary

    if arguments.kind not in ("auto", "tradeoff"):
        raise InputError(f"{arguments.file}: --kind {arguments.kind} takes a plan, got the table of a sweep")
    if sweep == "file":
        rows = read_summary(arguments.file)
        save(draw_sweep(rows, arguments.x, arguments.y), arguments.output)
        drawn = f"curves of {len(rows)} instances"
    elif sweep == "measured":
        table = read_measured(arguments.file)
        save(plot_front(table, arguments.x, arguments.y).figure, arguments.output)
        drawn = f"front of {len(table.points)} configurations"
    elif sweep in tables():
        figure, drawn = tables()[sweep](arguments.file, arguments.y)
        save(figure, arguments.output)
    else:
        points = read_sweep(arguments.file)
        write_plot(arguments.output, points)
        drawn = f"trade-off curve of {format_count(len(points))} rows"
    if not arguments.quiet:
        print(f"{arguments.output}: {drawn}")
    return 0
