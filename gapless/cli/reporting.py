"""`gapless report`: one HTML page that says all about a plan."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io.html_page import Page, Picture, Table
    from gapless.io.plan import SavedPlan

__all__ = ["add_commands"]

_EXAMPLE = """\
example:
  gapless report plan.json -o report.html
"""

_CAPTIONS = {
    "gantt": "When each link and each stream is busy.",
    "memory": "The memory that is held over time, as the replay has it.",
    "topology": "How much of the time each link is in use.",
    "resources": "When each exclusive resource is held, and for what share of the makespan.",
    "convergence": "How incumbent and bound converged while it was solved.",
}
_MOST_RESOURCES = 8


def add_commands(commands: Any) -> None:
    """Add `report`."""
    parser = commands.add_parser(
        "report",
        help="one HTML page that says all about a plan (needs the extra `plot`)",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="PLAN")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the page to write, such as report.html")
    parser.add_argument("--no-pictures", action="store_true", help="words and numbers only: needs no extra")
    parser.add_argument("--quiet", action="store_true", help="print nothing")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    from gapless.checker import check
    from gapless.cli.output import EXIT_VIOLATIONS
    from gapless.io.atomic import check_writable
    from gapless.io.html_page import write_page
    from gapless.plot.style import check_plot
    from gapless.result import read_saved

    check_writable(arguments.output)
    if not arguments.no_pictures:
        check_plot()
    plan = read_saved(arguments.file)
    report = check(plan.schedule)
    write_page(arguments.output, _page(plan, report, [] if arguments.no_pictures else _pictures(plan)))
    if not arguments.quiet:
        print(f"{arguments.output}: {report.summary().splitlines()[0]}")
    return 0 if report.valid else EXIT_VIOLATIONS


def _pictures(plan: SavedPlan) -> list[Picture]:
    from gapless.io.html_page import Picture
    from gapless.plot.pictures import draw, pictures_of
    from gapless.plot.style import svg_text

    return [Picture(svg_text(draw(plan, kind).figure, kind), _CAPTIONS.get(kind, kind)) for kind in pictures_of(plan)]


def _page(plan: SavedPlan, report: Report, pictures: Sequence[Picture]) -> Page:
    from gapless import __version__
    from gapless.io.html_page import Page, Table
    from gapless.units import format_seconds

    verdict = f"Replays clean: {report.event_count} events, makespan {format_seconds(report.makespan_s)}."
    if not report.valid:
        verdict = f"Does not replay clean: {report.violation_count} violations in {report.event_count} events."
    command = plan.run.get("command")
    versions = plan.run.get("versions")
    tables = [
        Table("What was asked", _rows(plan.problem)),
        Table("What the solver claims", _rows(plan.claim)),
        Table("What the replay found", _replayed(report)),
        Table("Details", _rows(plan.details)),
        _busiest(plan, report),
        Table("Made with", _rows(versions if isinstance(versions, Mapping) else {"gapless": None})),
    ]
    return Page(
        title=f"{plan.system}: {plan.schedule.name or 'plan'}",
        verdict=verdict,
        is_good=report.valid,
        messages=report.summary().splitlines()[2:],
        tables=[table for table in tables if table.rows],
        pictures=pictures,
        command=command if isinstance(command, str) else "",
        footer=f"Replayed and written by gapless {__version__}.",
    )


def _rows(section: Mapping[str, Any]) -> list[tuple[str, str]]:
    from gapless.text import described, words

    return [(words(name), described(name, value)) for name, value in section.items()]


def _replayed(report: Report) -> list[tuple[str, str]]:
    from gapless.result import replay_data

    found = replay_data(report)
    violations = found.pop("violations") or {}
    broken = ", ".join(f"{rule} {count}" for rule, count in violations.items()) or "none"
    return [("valid", "yes" if found.pop("valid") else "no"), ("violations", broken), *_rows(found)]


def _busiest(plan: SavedPlan, report: Report) -> Table:
    from gapless.io.html_page import Table
    from gapless.plot.names import busiest

    rows = [(name, f"{100 * share:.1f} % of the makespan") for name, share in busiest(plan, report)[:_MOST_RESOURCES]]
    return Table("Busiest", rows)
