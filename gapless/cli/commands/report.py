"""`gapless report`: one HTML page that says all about a plan."""

from __future__ import annotations

import argparse
import hashlib
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.options import add_quiet, add_time_limit
from gapless.cli.parser import Commands
from gapless.cli.signals import Listening
from gapless.units import format_count

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.checker.inspection import Inspection
    from gapless.cli.patience import Patience
    from gapless.cli.plan_to_view import Looked
    from gapless.io.plan import SavedPlan
    from gapless.ir.windows import Windows
    from gapless.report.html_page import Page, Picture, Table

__all__ = ["add_commands"]

_EXAMPLE = """\
A page whose plan could not be replayed in time says so.

exit codes: 0 replayed clean, 2 bad input, 4 not replayed in time, 5 violations

example:
  gapless report plan.json -o report.html
"""

_CAPTIONS = {
    "gantt": "When each link and each stream is busy.",
    "memory": "The memory that is held over time, as the replay has it.",
    "topology": "How much of the time each link is in use.",
    "resources": "When each exclusive resource is held, and for what share of the makespan.",
    "convergence": "How incumbent and bound converged while it was solved.",
    "front": "The least error of each size, with simpler choices and the plan beside it.",
    "heads": "Which heads of each layer share one's keys.",
    "layouts": "How the tensors of each module are laid out.",
    "loads": "What each rank receives.",
    "density": "Where in the gradient the selected entries lie, with the boundaries of regions.",
    "modes": "The mode of each layer in each epoch.",
    "pipeline": "What each rank computes when, by micro-batch.",
    "usage": "Bytes in use at each time point, with the limit.",
}
_MOST_RESOURCES = 8


def add_commands(commands: Commands) -> None:
    """Add `report`."""
    parser = commands.add_parser(
        "report",
        help="one HTML page that says all about a plan (needs the extra `plot`)",
        epilog=_EXAMPLE,
    )
    parser.add_argument("file", metavar="PLAN", help="a plan (.json, .npz)")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the page to write, such as report.html")
    parser.add_argument("--measured", metavar="FILE", help="what `gapless run ... -o FILE` has measured of this plan")
    parser.add_argument("--no-pictures", action="store_true", help="words and numbers only: needs no extra")
    add_quiet(parser)
    add_time_limit(parser, "seconds of wall time; what isn't finished by then is left out (default: none)")
    parser.set_defaults(run=_report)


def _report(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import EXIT_CODES, EXIT_VIOLATIONS
    from gapless.cli.patience import Patience
    from gapless.cli.plan_to_view import keep_seen, look
    from gapless.io.atomic import check_writable
    from gapless.plot.style import check_plot
    from gapless.report.html_page import write_page
    from gapless.solution import Status

    check_writable(arguments.output)
    measured = None if arguments.measured is None else _measured(arguments.measured, arguments.file)
    if not arguments.no_pictures:
        check_plot()
    stop = threading.Event()
    with Listening(stop, "stopping: what isn't finished is left out"):
        patience = Patience(arguments.time_limit, stop)
        looked = patience.given(lambda: look(arguments.file, is_whole=True))
        if looked is None:
            print(f"gapless: no report: {patience.why_over} before the plan was read", file=sys.stderr)
            return EXIT_CODES[Status.NO_SOLUTION]
        shown = _shown(looked, patience, not arguments.no_pictures)
        write_page(arguments.output, _page(looked.plan, shown, measured))
    if shown.seen is not None:
        keep_seen(looked, shown.seen)
    report = shown.report
    if not arguments.quiet:
        verdict = "not replayed" if report is None else report.summary().splitlines()[0]
        print(f"{arguments.output}: {verdict}")
    if shown.left_out:
        print(f"gapless: {shown.left_out}", file=sys.stderr)
    if report is None:
        return EXIT_CODES[Status.NO_SOLUTION]
    return 0 if report.valid else EXIT_VIOLATIONS


def _measured(path: str, plan: str) -> Table:
    """What a file says that was measured of the plan. Raises `InputError` where it is that of another one."""
    from gapless.errors import InputError
    from gapless.io.formats.measured_file import read_measured
    from gapless.report.html_page import Table

    found = read_measured(path)
    try:
        digest = hashlib.sha256(Path(plan).read_bytes()).hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {plan}: {error.strerror}") from None
    if digest != found.plan_sha256:
        raise InputError(f"{path}: plan_sha256: must be that of {plan}; another plan was measured, or it has changed")
    return Table(f"Measured on {found.ranks} ranks over {found.backend}, {found.date}", found.rows())


@dataclass(frozen=True)
class _Shown:
    """What the page can show of a plan. `report`: None where the replay isn't finished; `left_out`: that, in a line;
    `explorer`: the time line, empty where it is too long; `kept`: the name of an earlier replay, empty for one anew.
    """

    report: Report | None
    pictures: Sequence[Picture]
    left_out: str
    explorer: str = ""
    seen: Inspection | None = None
    kept: str = ""


def _shown(looked: Looked, patience: Patience, with_pictures: bool) -> _Shown:
    """The replay, then the pictures in turn, which look at the same replay."""
    from gapless.plot.pictures import pictures_of
    from gapless.report.explorer import MOST_EVENTS

    plan = looked.plan
    if plan.windows is not None and not len(plan.schedule):
        return _long(plan, plan.windows, patience)
    seen = looked.seen or patience.given(lambda: _seen(plan))
    missing = ["the replay"] if seen is None else []
    is_long = len(plan.schedule) > MOST_EVENTS
    explorer = None if seen is None else patience.given(lambda: "" if is_long else _explorer(plan, seen))
    if seen is not None and explorer is None:
        missing.append("the time line")
    pictures = []
    for kind in pictures_of(plan) if with_pictures else []:
        picture = patience.given(partial(_picture, plan, kind, seen))
        if picture is None:
            missing.append(kind)
        else:
            pictures.append(picture)
    left_out = f"left out, as {patience.why_over}: {', '.join(missing)}" if missing else ""
    if is_long:
        too_long = (
            f"the time line: {len(plan.schedule):,} events are too many; `gapless export --format perfetto` has them"
        )
        left_out = f"{left_out}; {too_long}" if left_out else f"left out: {too_long}"
    report, kept = None if seen is None else seen.report, looked.name if looked.seen is not None else ""
    return _Shown(report, pictures, left_out, explorer or "", seen, kept)


def _seen(plan: SavedPlan) -> Inspection:
    from gapless.checker.inspection import inspected

    return inspected(plan.schedule)


def _explorer(plan: SavedPlan, seen: Inspection) -> str:
    """The time line; empty for a plan whose schedule isn't one of seconds."""
    from gapless.plot.names import device_names
    from gapless.report.explorer import explorer_html
    from gapless.report.headline import is_timed

    return explorer_html(plan.schedule, seen, device_names(plan)) if is_timed(plan.claim) else ""


def _long(plan: SavedPlan, windows: Windows, patience: Patience) -> _Shown:
    """What can be said of a plan that is too long for pictures."""
    report = patience.given(windows.replay)
    missing = f"pictures: {windows.count} {windows.unit} are too many; `gapless plot --batches` draws some of them"
    late = f"the replay, as {patience.why_over}; " if report is None else ""
    return _Shown(report, [], f"left out: {late}{missing}")


def _picture(plan: SavedPlan, kind: str, seen: Inspection | None) -> Picture:
    from gapless.plot.pictures import draw
    from gapless.plot.style import svg_text
    from gapless.report.html_page import Picture

    return Picture(svg_text(draw(plan, kind, seen=seen).figure, kind), _CAPTIONS.get(kind, kind))


def _page(plan: SavedPlan, shown: _Shown, measured: Table | None) -> Page:
    from gapless.io.plan import judged
    from gapless.report.explorer import explorer_script
    from gapless.report.headline import claim_rows, is_timed, question_of
    from gapless.report.html_page import Page, Table

    report = shown.report
    plan = plan if report is None else judged(plan, report)
    command = plan.run.get("command")
    versions = plan.run.get("versions")
    tables = [
        Table("What was asked", _rows(plan.problem)),
        Table("What the solver claims", claim_rows(plan.claim)),
        *([] if report is None else [Table("What the replay found", _replayed(plan, report))]),
        *([] if measured is None else [measured]),
        Table("Details", _rows(plan.details)),
        *([_busiest(plan, report)] if report is not None and is_timed(plan.claim) else []),
        Table("Made with", _rows(versions if isinstance(versions, Mapping) else {"gapless": None})),
    ]
    found = [] if report is None else report.summary().splitlines()[2:]
    return Page(
        title=f"{plan.system}: {question_of(plan.system, plan.problem, plan.schedule.name or 'plan')}",
        facts=_facts(plan, report),
        verdict=_verdict(plan, report),
        is_good=report is not None and report.valid,
        messages=[*found, *([shown.left_out] if shown.left_out else [])],
        tables=[table for table in tables if table.rows],
        pictures=shown.pictures,
        command=command if isinstance(command, str) else "",
        footer=_footer(shown),
        explorer=shown.explorer,
        script=explorer_script() if shown.explorer else "",
    )


def _facts(plan: SavedPlan, report: Report | None) -> list[tuple[str, str]]:
    """The answer, the gap and the narrower ones, with which the page opens below its question.

    What isn't replayed answers nothing.
    """
    from gapless.report.headline import answer_of, verdicts_of, wider_of
    from gapless.report.text import described

    if report is None or not report.valid:
        return []
    gap, narrower = verdicts_of(plan, report)
    bound = next((described(name, plan.claim[name]) for name in plan.claim if name.startswith("bound_")), "-")
    if gap.startswith("optimal"):
        gap = f"{gap}: no better plan is possible"
    elif gap.startswith("gap"):  # neither unknown nor refuted by the replay
        gap = f"{gap}: no plan of this question is better than {bound}"
    facts = [("Answer", answer_of(plan, report)), ("Gap", gap)]
    facts += [("Narrower gap", f"{said}: none of them is better than {bound}") for bound, said in narrower]
    return [*facts, *([("Wider question", said)] if (said := wider_of(plan.details)) else [])]


def _verdict(plan: SavedPlan, report: Report | None) -> str:
    """Whether the plan is valid, and its makespan."""
    from gapless.report.headline import length_of

    if report is None:
        return "Not replayed: whether the plan is valid is not known."
    events = f"{format_count(report.event_count)} events"
    if not report.valid:
        return f"Does not replay clean: {format_count(report.violation_count)} violations in {events}."
    return f"Replays clean: {events}, {length_of(plan.claim, report.makespan_s)}."


def _footer(shown: _Shown) -> str:
    """Who wrote the page, and which replay it shows."""
    from gapless import __version__

    if shown.kept:
        replay = (
            f"of an earlier replay, kept as {shown.kept[:12]} by the hash of the plan; `gapless check` replays it anew"
        )
        return f"Written by gapless {__version__} {replay}."
    return f"{'Not replayed; written' if shown.report is None else 'Replayed and written'} by gapless {__version__}."


def _rows(section: Mapping[str, object]) -> list[tuple[str, str]]:
    from gapless.report.text import described, words

    return [(words(name), described(name, value)) for name, value in section.items()]


def _replayed(plan: SavedPlan, report: Report) -> list[tuple[str, str]]:
    from gapless.report.headline import is_timed
    from gapless.result import replay_data

    found = replay_data(report)
    if not is_timed(plan.claim):
        del found["makespan_s"]
    del found["violations"]
    broken = ", ".join(f"{rule.value} {count}" for rule, count in report.violation_counts.items()) or "none"
    return [("valid", "yes" if found.pop("valid") else "no"), ("violations", broken), *_rows(found)]


def _busiest(plan: SavedPlan, report: Report) -> Table:
    from gapless.plot.names import busiest
    from gapless.report.html_page import Table

    rows = [(name, f"{100 * share:.1f} % of the makespan") for name, share in busiest(plan, report)[:_MOST_RESOURCES]]
    return Table("Busiest", rows)
