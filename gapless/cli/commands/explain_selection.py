"""`gapless explain-selection`: which file of several a runtime takes for a call, and why none of the others."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gapless.cli.options import add_fields, add_output_options, naming_options, values_of
from gapless.cli.parser import Commands
from gapless.errors import InputError
from gapless.io.formats.ef_options import SELECTING

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.io.taccl_ef import Candidate, Selection

__all__ = ["add_commands"]

_EXAMPLE = """\
exit codes: 0 a file is taken, 2 bad input, 5 none is

example:
  gapless explain-selection small.xml large.xml --runtime original --collective allgather --size 1MiB --ranks 8
"""


def add_commands(commands: Commands) -> None:
    """Add `explain-selection`."""
    parser = commands.add_parser(
        "explain-selection",
        help="which of several TACCL-EF files a runtime takes for a call, and why not the others",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="TACCL-EF files, in the order in which the runtime's list has them"
    )
    add_fields(parser, SELECTING)
    add_output_options(parser)
    parser.set_defaults(run=_explain)


def _explain(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import EXIT_VIOLATIONS, print_json
    from gapless.io.taccl_ef import Call, select
    from gapless.ir.collective import COLLECTIVES

    values = values_of(arguments, SELECTING)
    runtime, max_scratch = values.pop("runtime"), values.pop("max_scratch")
    with naming_options(SELECTING):
        if values["collective"] not in COLLECTIVES:
            known = ", ".join(sorted(COLLECTIVES))
            raise InputError(f"collective: must be one of {known}, got {values['collective']!r}")
        values["size_bytes"] = values.pop("size")
        found = select([_candidate(path) for path in arguments.files], Call(**values), runtime, max_scratch)
    if arguments.json:
        rows = [
            {"file": each.path, "taken": number == found.taken, "rule": reason and reason.rule,
             "reason": reason and reason.message}
            for number, (each, reason) in enumerate(zip(found.tried, found.reasons, strict=True))
        ]  # fmt: skip
        print_json({"runtime": runtime, "taken": _taken(found), "files": rows})
    elif not arguments.quiet:
        print("\n".join(_lines(found)))
    return 0 if found.taken is not None else EXIT_VIOLATIONS


def _candidate(path: str) -> Candidate:
    from gapless.io.taccl_ef import Candidate, read_program

    try:
        return Candidate(path, read_program(path)[0])
    except InputError as error:
        return Candidate(path, None, str(error))


def _taken(found: Selection) -> str | None:
    return None if found.taken is None else found.tried[found.taken].path


def _lines(found: Selection) -> list[str]:
    """The file that is taken, then why not each of the others, in the runtime's order."""
    taken = _taken(found)
    lines = [f"{taken}: taken" if taken is not None else "no file is taken: NCCL's own algorithm runs"]
    if found.stopped_by is not None:
        lines = [f"no file is taken: the runtime stops at {found.tried[found.stopped_by].path}"]
    for candidate, reason in zip(found.tried, found.reasons, strict=True):
        if reason is not None:
            lines.append(f"{candidate.path}: not taken, {reason.message} [{reason.rule}]")
    program = None if found.taken is None else found.tried[found.taken].program
    if program is not None:
        channels = program.nchannels
        lines.append(f"it needs {channels} channels: NCCL_MIN_NCHANNELS={channels} where NCCL sets up fewer")
    return lines
