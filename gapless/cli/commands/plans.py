"""`gapless check`, `show` and `export`: what can be done with a plan that exists."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from gapless.cli.options import add_batches, add_fields, add_output_options, add_quiet, naming_options, values_of
from gapless.cli.parser import Commands
from gapless.errors import InputError
from gapless.io.formats.ef_options import JUDGING
from gapless.io.formats.exports import PERFETTO, export_format
from gapless.question.fields import Field, Whole
from gapless.system import find_system, known_system, system_names

if TYPE_CHECKING:
    from gapless.checker import Report
    from gapless.io import mscclpp, taccl_ef
    from gapless.io.plan import SavedPlan

__all__ = ["add_commands"]

_SHOWN_RESOURCES = 8
_SHOWN_PROBLEMS = 20


_CHECK_EXAMPLE = """\
exit codes: 0 replayed clean, 2 bad input, 5 violations

example:
  gapless check plan.json
  gapless check allgather.xml
"""

_SHOW_EXAMPLE = """\
example:
  gapless show plan.json --events 10
"""

_EXPORT_EXAMPLE = """\
example:
  gapless export plan.json --format taccl-ef -o plan.xml --instances 8
  gapless export plan.json --format mscclpp -o allgather.json --placement in-place
"""


def add_commands(commands: Commands) -> None:
    """Add `check`, `show` and `export`."""
    check = _command(
        commands, "check", "replay a saved plan, or execute a TACCL-EF XML file or an MSCCL++ plan", _CHECK_EXAMPLE
    )
    check.add_argument("file", metavar="FILE", help="a plan (.json, .npz), TACCL-EF (.xml), or an MSCCL++ plan (.json)")
    add_fields(check, JUDGING)
    add_output_options(check)
    check.set_defaults(run=_check)
    show = _command(commands, "show", "print a summary of a plan", _SHOW_EXAMPLE)
    show.add_argument("file", metavar="PLAN", help="a plan (.json, .npz)")
    add_fields(show, [Field("events", Whole(0), "also list the first N events", 0, metavar="N", group="output")])
    add_batches(show)
    show.add_argument(
        "--allocator", choices=["cuda"], help="also what PyTorch's allocator would reserve on a GPU; of one device"
    )
    add_quiet(show, "print nothing: the exit code says whether it replays clean")
    show.set_defaults(run=_show)
    export = _command(commands, "export", "write a plan in the format of a runtime or a viewer", _EXPORT_EXAMPLE)
    export.add_argument("file", metavar="PLAN", help="a plan (.json, .npz)")
    formats = {export.name: export for name in system_names() for export in find_system(name).exports}
    known = sorted({*formats, PERFETTO.name})
    export.add_argument("--format", choices=known, required=True, help="what is written; most are of one system")
    export.add_argument("-o", "--output", metavar="FILE", required=True, help="for chakra, FILE.0.et and so on by rank")
    add_fields(export, list({field.name: field for each in formats.values() for field in each.fields}.values()))
    add_batches(export)
    add_quiet(export)
    export.set_defaults(run=_export)


def _command(commands: Commands, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=help_text, epilog=example)
    return parser


def _check(arguments: argparse.Namespace) -> int:
    if str(arguments.file).endswith(".xml"):
        return _check_xml(arguments)
    from gapless.cli.output import EXIT_VIOLATIONS, print_json
    from gapless.io import mscclpp
    from gapless.result import read_saved, replay_data

    if mscclpp.is_plan(arguments.file):
        return _check_mscclpp(arguments)

    plan = read_saved(arguments.file)
    report = _replay(plan)
    if arguments.json:
        data = {"problem": plan.system, "file": arguments.file, **replay_data(report), "events": report.event_count}
        print_json({**data, "messages": [violation.message for violation in report.violations]})
    elif not arguments.quiet:
        print(_summary(plan, report))
    return 0 if report.valid else EXIT_VIOLATIONS


def _check_xml(arguments: argparse.Namespace) -> int:
    from gapless.io.taccl_ef import judge, read_program

    program, warnings = read_program(arguments.file)
    verdict = judge(
        program, arguments.runtime, collective=arguments.collective, root=arguments.root, warnings=tuple(warnings),
        max_scratch_bytes=arguments.max_scratch,
    )  # fmt: skip
    return _print_verdict(arguments, verdict, verdict.root)


def _check_mscclpp(arguments: argparse.Namespace) -> int:
    from gapless.io import mscclpp

    if arguments.root is not None:
        raise InputError(f"--root: the collectives of MSCCL++ plans that can be judged have none, got {arguments.root}")
    verdict = mscclpp.judge(mscclpp.read_plan(arguments.file), arguments.collective)
    return _print_verdict(arguments, verdict, None)


def _print_verdict(arguments: argparse.Namespace, verdict: taccl_ef.Verdict | mscclpp.Verdict, root: int | None) -> int:
    """What was found in a runtime's program, whichever format it has."""
    from gapless.cli.output import EXIT_VIOLATIONS, print_json

    if arguments.json:
        judged = None if verdict.collective is None else verdict.collective.name
        head = {"file": arguments.file, "valid": verdict.is_valid, "collective": judged}
        found = {"executed": verdict.executed, "root": root, "warnings": list(verdict.warnings)}
        print_json({**head, **found, "violations": [str(problem) for problem in verdict.problems]})
    elif not arguments.quiet:
        for line in verdict.warnings:
            print(f"warning: {line}")
        for problem in verdict.problems[:_SHOWN_PROBLEMS]:
            print(problem)
        if len(verdict.problems) > _SHOWN_PROBLEMS:
            print(f"... and {len(verdict.problems) - _SHOWN_PROBLEMS} more")
        print(verdict.summary())
    return 0 if verdict.is_valid else EXIT_VIOLATIONS


def _show(arguments: argparse.Namespace) -> int:
    from gapless.checker import Rule
    from gapless.cli.output import EXIT_VIOLATIONS
    from gapless.io.plan import excerpt_of, judged
    from gapless.report.headline import claim_rows, wider_of
    from gapless.report.text import aligned, described, words
    from gapless.result import read_saved

    plan = read_saved(arguments.file)
    report = _replay(plan)
    if arguments.quiet:
        return 0 if report.valid else EXIT_VIOLATIONS
    plan = judged(plan, report)
    problem, details = (
        [(words(name), described(name, value)) for name, value in section.items() if name != "wider"]
        for section in (plan.problem, plan.details)
    )
    claim = [*claim_rows(plan.claim), *([("wider question", said)] if (said := wider_of(plan.details)) else [])]
    for title, rows in ((f"problem ({plan.system})", problem), ("claim", claim), ("details", details)):
        print(f"{title}\n{aligned(rows, '  ')}")
    if "command" in plan.run:
        print(f"made by\n  {plan.run['command']}")
    print("replay")
    for line in _summary(plan, report).splitlines():
        print(f"  {line}")
    if Rule.UNKNOWN_ID in report.violation_counts:  # views and lines of events look up what the events name
        return EXIT_VIOLATIONS
    if arguments.allocator:
        print(f"  {_reserved_text(plan)}")
    system = known_system(plan.system)
    view = None if system is None else system.view
    print((view or _busiest_text)(plan, report))
    if arguments.events:
        plan = excerpt_of(plan, arguments.batches)
    for number in range(min(arguments.events, len(plan.schedule))):
        print(f"  {_event_line(plan, number)}")
    return 0 if report.valid else EXIT_VIOLATIONS


def _reserved_text(plan: SavedPlan) -> str:
    from gapless.torch.cuda_allocator import reserved_by
    from gapless.units import format_bytes

    found = reserved_by(plan.schedule)
    return (
        f"a GPU's allocator reserves {format_bytes(found.reserved_bytes)} in {found.segment_count} segments for "
        f"{format_bytes(found.peak_bytes)} in use above what is there before ({found.fragmentation:.1%} fragmentation)"
    )


def _busiest_text(plan: SavedPlan, report: Report) -> str:
    from gapless.plot.names import busiest

    lines = [f"  {name:<28} {100 * share:5.1f} % of the makespan" for name, share in busiest(plan, report)]
    return "\n".join(["busiest", *lines[:_SHOWN_RESOURCES]])


def _event_line(plan: SavedPlan, number: int) -> str:
    from gapless.ir.schedule import EventKind
    from gapless.units import format_seconds

    event, schedule = plan.schedule.event(number), plan.schedule
    times = f"{format_seconds(event.start_s):>10} .. {format_seconds(event.end_s):>10}"
    if event.kind is EventKind.TRANSFER:
        chunks = ", ".join(schedule.graph.tensor_name(tensor) for tensor in event.moves)
        return f"{times}  {schedule.topology.link_name(event.place):<8} {chunks}"
    return f"{times}  {schedule.graph.ops[event.op].name}"


def _export(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import EXIT_VIOLATIONS
    from gapless.io.plan import excerpt_of
    from gapless.result import read_saved

    plan = read_saved(arguments.file)
    try:
        export = export_format(plan, arguments.format)
    except InputError as error:
        raise InputError(f"{arguments.file}: {error}") from None
    report = _replay(plan)
    plan = excerpt_of(plan, arguments.batches)
    if not report.valid:
        print(f"gapless: not exported: {_summary(plan, report)}", file=sys.stderr)
        return EXIT_VIOLATIONS
    try:
        with naming_options(export.fields):
            written = export.write(arguments.output, plan, values_of(arguments, export.fields))
    except InputError as error:
        raise InputError(f"{arguments.file}: {error}") from None
    if not arguments.quiet:
        print(f"{arguments.output}: {written}")
    return 0


def _summary(plan: SavedPlan, report: Report) -> str:
    """What the replay found, with devices by the names that the plan's system has for them."""
    from gapless.plot.names import device_names
    from gapless.report.headline import length_of

    return report.summary(device_names(plan), length_of(plan.claim, report.makespan_s))


def _replay(plan: SavedPlan) -> Report:
    from gapless.result import audited

    report, notes = audited(plan)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    return report
