"""`gapless check`, `show` and `export`: what can be done with a plan that exists."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gapless.cli import arguments as shared
from gapless.cli.views import busiest, device_names, read_any_plan
from gapless.errors import InputError

if TYPE_CHECKING:
    from gapless.checker import Report
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


def add_commands(commands: Any) -> None:
    """Add `check`, `show` and `export`."""
    check = _command(
        commands, "check", "replay a saved plan, or execute a TACCL-EF XML file or an MSCCL++ plan", _CHECK_EXAMPLE
    )
    check.add_argument("file", metavar="FILE", help="a plan (.json, .npz), TACCL-EF (.xml), or an MSCCL++ plan (.json)")
    shared.add_ef_check_options(check)
    shared.add_output_options(check)
    check.set_defaults(run=_check)
    show = _command(commands, "show", "print a summary of a plan", _SHOW_EXAMPLE)
    show.add_argument("file", metavar="PLAN")
    show.add_argument("--events", type=shared.Whole(0), default=0, metavar="N", help="also list the first N events")
    show.set_defaults(run=_show)
    export = _command(commands, "export", "write a plan in the format of a runtime or a viewer", _EXPORT_EXAMPLE)
    export.add_argument("file", metavar="PLAN")
    export.add_argument("--format", choices=sorted(_EXPORTS), required=True)
    export.add_argument("-o", "--output", metavar="FILE", required=True, help="for chakra, FILE.0.et and so on by rank")
    shared.add_ef_options(export)
    export.set_defaults(run=_export)


def _command(commands: Any, name: str, help_text: str, example: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help_text, epilog=example, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def _check(arguments: argparse.Namespace) -> int:
    if str(arguments.file).endswith(".xml"):
        return _check_xml(arguments)
    from gapless.cli.output import EXIT_VIOLATIONS, print_json, report_data
    from gapless.io import mscclpp

    if mscclpp.is_plan(arguments.file):
        return _check_mscclpp(arguments)

    plan = read_any_plan(arguments.file)
    report = _replay(plan)
    if arguments.json:
        data = {"problem": plan.system, "file": arguments.file, **report_data(report), "events": report.event_count}
        print_json({**data, "messages": [violation.message for violation in report.violations]})
    elif not arguments.quiet:
        print(report.summary())
    return 0 if report.valid else EXIT_VIOLATIONS


def _check_xml(arguments: argparse.Namespace) -> int:
    from gapless.io.taccl_ef import judge, read_program

    program, warnings = read_program(arguments.file)
    verdict = judge(
        program, arguments.runtime, collective=arguments.collective, root=arguments.root, warnings=tuple(warnings)
    )
    judged = {"executed": verdict.executed, "root": verdict.root, "warnings": list(verdict.warnings)}
    return _print_verdict(arguments, verdict, judged)


def _check_mscclpp(arguments: argparse.Namespace) -> int:
    from gapless.io import mscclpp

    if arguments.root is not None:
        raise InputError(f"--root: the collectives of MSCCL++ plans that can be judged have none, got {arguments.root}")
    verdict = mscclpp.judge(mscclpp.read_plan(arguments.file), arguments.collective)
    return _print_verdict(
        arguments, verdict, {"executed": verdict.executed, "root": None, "warnings": list(verdict.warnings)}
    )


def _print_verdict(arguments: argparse.Namespace, verdict: Any, data: dict[str, Any]) -> int:
    """What was found in a runtime's program, whichever format it has."""
    from gapless.cli.output import EXIT_VIOLATIONS, print_json

    if arguments.json:
        judged = None if verdict.collective is None else verdict.collective.name
        head = {"file": arguments.file, "valid": verdict.is_valid, "collective": judged}
        print_json({**head, **data, "violations": [str(problem) for problem in verdict.problems]})
    elif not arguments.quiet:
        for line in data["warnings"]:
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
    from gapless.io.plan import RUN, run_of
    from gapless.text import described, words

    plan = read_any_plan(arguments.file)
    report = _replay(plan)
    for title, section in (("problem", plan.problem), ("claim", plan.claim), ("details", plan.details)):
        print(f"{title} ({plan.system})" if title == "problem" else title)
        for name, value in section.items():
            if name != RUN:
                print(f"  {words(name):<16} {described(name, value)}")
    if "command" in run_of(plan):
        print(f"made by\n  {run_of(plan)['command']}")
    print("replay")
    for line in report.summary().splitlines():
        print(f"  {line}")
    if Rule.UNKNOWN_ID in report.violation_counts:  # views and lines of events look up what the events name
        return EXIT_VIOLATIONS
    _VIEWS.get(plan.system, _print_busiest)(plan, report)
    for number in range(min(arguments.events, len(plan.schedule))):
        print(f"  {_event_line(plan, number)}")
    return 0 if report.valid else EXIT_VIOLATIONS


def _print_memory(plan: SavedPlan, report: Report) -> None:
    from gapless.encodings.monet.timeline import memory_timeline, render

    print(render(memory_timeline(plan.schedule)))


def _print_fusion(plan: SavedPlan, report: Report) -> None:
    from gapless.encodings.cupcake.summary import render_baselines, render_groups

    print(render_groups(plan.schedule))
    baselines_s = plan.details.get("baselines_s")
    if isinstance(baselines_s, dict) and all(isinstance(step_s, float) for step_s in baselines_s.values()):
        print(render_baselines(baselines_s, report.makespan_s))


def _print_busiest(plan: SavedPlan, report: Report) -> None:
    print("busiest")
    for name, share in busiest(plan, report)[:_SHOWN_RESOURCES]:
        print(f"  {name:<28} {100 * share:5.1f} % of the makespan")


_VIEWS: dict[str, Callable[[SavedPlan, Report], None]] = {"monet": _print_memory, "cupcake": _print_fusion}
"""What `show` prints of a system's plans, where it isn't the busiest links and engines."""


def _event_line(plan: SavedPlan, number: int) -> str:
    from gapless.schedule import EventKind
    from gapless.units import format_seconds

    event, schedule = plan.schedule.event(number), plan.schedule
    times = f"{format_seconds(event.start_s):>10} .. {format_seconds(event.end_s):>10}"
    if event.kind is EventKind.TRANSFER:
        chunks = ", ".join(schedule.graph.tensor_name(tensor) for tensor in event.moves)
        return f"{times}  {schedule.topology.link_name(event.place):<8} {chunks}"
    return f"{times}  {schedule.graph.ops[event.op].name}"


def _export(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import EXIT_VIOLATIONS

    plan = read_any_plan(arguments.file)
    system, write = _EXPORTS[arguments.format]
    if system is not None and plan.system != system:
        raise InputError(
            f"{arguments.file}: --format {arguments.format} takes plans of {system}, got one of {plan.system}"
        )
    report = _replay(plan)
    if not report.valid:
        print(f"gapless: not exported: {report.summary()}", file=sys.stderr)
        return EXIT_VIOLATIONS
    print(f"{arguments.output}: {write(arguments, plan)}")
    return 0


def _write_taccl_ef(arguments: argparse.Namespace, plan: SavedPlan) -> str:
    from gapless.encodings.taccl.programs.export import write_taccl_ef

    program = write_taccl_ef(arguments.output, plan.schedule, plan.problem, **shared.ef_options(arguments))
    blocks = max(len(gpu.threadblocks) for gpu in program.gpus)
    size = f"{program.ngpus} GPUs, {program.nchannels} channels, at most {blocks} thread blocks a GPU"
    return f"{program.coll} on {size}"


def _write_mscclpp(arguments: argparse.Namespace, plan: SavedPlan) -> str:
    from gapless.encodings.taccl.programs.export import write_mscclpp

    if arguments.proto != "Simple":
        raise InputError(f"--proto: MSCCL++ plans are written with Simple, got {arguments.proto}")
    options = shared.ef_options(arguments)
    how = {key: options[key] for key in ("instances", "min_bytes", "max_bytes", "sm_count")}
    # A plan serves one placement; the default of TACCL-EF, both, is taken as the one that is always right to call.
    placement = "in-place" if arguments.placement == "in-place" else "out-of-place"
    written = write_mscclpp(arguments.output, plan.schedule, plan.problem, placement=placement, **how)
    blocks = max(len(gpu.threadblocks) for gpu in written.gpus)
    return f"{written.collective} on {len(written.gpus)} GPUs {placement}, at most {blocks} thread blocks a GPU"


def _write_chakra(arguments: argparse.Namespace, plan: SavedPlan) -> str:
    from gapless.io.chakra import write_traces

    traces = write_traces(arguments.output, plan.schedule)
    count = sum(len(nodes) for nodes in traces)
    return f"{count} sends and receives in {len(traces)} files, {arguments.output}.RANK.et"


def _write_ddp_buckets(arguments: argparse.Namespace, plan: SavedPlan) -> str:
    from gapless.encodings.cupcake.ddp_buckets import export_ddp_buckets
    from gapless.units import format_bytes

    buckets = export_ddp_buckets(arguments.output, plan.problem, plan.details, where=arguments.file)
    held = f"{len(buckets.parameter_names)} gradients of {buckets.profile}, {format_bytes(sum(buckets.bucket_bytes))}"
    return f"{len(buckets.groups)} buckets for {held}"


def _write_perfetto(arguments: argparse.Namespace, plan: SavedPlan) -> str:
    from gapless import __version__
    from gapless.io.perfetto import write_perfetto

    about = {"gapless": __version__, "system": plan.system, "problem": plan.problem, "claim": plan.claim}
    count = write_perfetto(arguments.output, plan.schedule, device_names(plan), about)
    return f"{count} trace events of {len(plan.schedule)} events, for ui.perfetto.dev or chrome://tracing"


_EXPORTS: dict[str, tuple[str | None, Callable[[argparse.Namespace, SavedPlan], str]]] = {
    "chakra": ("taccl", _write_chakra),
    "taccl-ef": ("taccl", _write_taccl_ef),
    "mscclpp": ("taccl", _write_mscclpp),
    "ddp-buckets": ("cupcake", _write_ddp_buckets),
    "perfetto": (None, _write_perfetto),
}
"""For each format, the system whose plans it takes (None: any), and what writes it and says what was written."""


def _replay(plan: SavedPlan) -> Report:
    from gapless.checker import check

    return check(plan.schedule)
