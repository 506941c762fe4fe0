"""`gapless solve`: one subcommand a system."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gapless.cli.options import add_fields, add_output_options, add_solve_options, naming_options, values_of
from gapless.cli.parser import Commands
from gapless.cli.running import STOPPING, finish, run, write
from gapless.cli.signals import Listening
from gapless.errors import InputError
from gapless.question.fields import Field, Text
from gapless.system import Export, System, find_system, system_names

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.result import Result

__all__ = ["add_commands"]

_OUTPUT = Field("output", Text(), "the plan to write", metavar="FILE", short="-o")
_MODEL = Field("write_model", Text(), "also write the model, as .lp or .mps", metavar="FILE")


def add_commands(commands: Commands) -> None:
    """Add `solve` with its systems."""
    systems = [find_system(name) for name in system_names()]
    examples = "".join(system.example for system in systems)
    parser = commands.add_parser(
        "solve",
        help="solve a problem, replay the schedule, write the plan",
        epilog=f"example (`gapless solve SYSTEM --help` has more):\n{examples}",
    )
    choices = parser.add_subparsers(metavar="system", required=True)
    for system in systems:
        _add_system(choices, system)


def _add_system(choices: Commands, system: System) -> None:
    parser = choices.add_parser(
        system.name,
        help=system.what,
        epilog=f"{system.notes}\nexample:\n{system.example}".lstrip("\n"),
    )
    add_fields(parser, [*system.fields, _OUTPUT, *_outputs(system)])
    add_solve_options(parser)
    for export in system.exports:
        if export.beside:
            add_fields(parser, export.fields)
    add_output_options(parser)
    parser.set_defaults(run=partial(_solve, system))


def _outputs(system: System) -> list[Field]:
    """The files that can be written beside the plan."""
    besides = [
        Field(export.beside, Text(), f"also write {export.what}", metavar="FILE")
        for export in system.exports
        if export.beside
    ]
    return [*besides, *([] if system.model is None else [_MODEL])]


def _solve(system: System, arguments: argparse.Namespace) -> int:
    from gapless.io.atomic import check_writable

    begin_s = time.monotonic()
    files = [_OUTPUT, *_outputs(system)]
    with naming_options([*system.fields, *files]):
        problem = system.ask(values_of(arguments, system.fields))
        if arguments.output is not None and not arguments.output.endswith(system.ending) and system.write is not None:
            raise InputError(f"output: a plan of {system.name} is a {system.ending} file, got {arguments.output!r}")
    for field in files:
        if getattr(arguments, field.name) is not None:
            check_writable(getattr(arguments, field.name))
    if system.model is not None and arguments.write_model is not None:
        model = system.model(problem)
        write_model(model, arguments.write_model)
        if not arguments.quiet:
            print(f"gapless: {arguments.write_model}: {model.summary()}", file=sys.stderr)
    stop = threading.Event()
    with Listening(stop, STOPPING):
        result = run(system, problem, arguments, stop, time.monotonic() - begin_s)
        with Listening(stop, "writing what was found"):
            written, code = _write(system, result, arguments)
            return max(finish(result, arguments, written), code)


def _write(system: System, result: Result, arguments: argparse.Namespace) -> tuple[dict[str, str | None], int]:
    """Write the plan if it replayed clean, first, then in the other formats that were asked for.

    Returns the files by option, None where there is none, and the exit code.
    """
    writers: dict[str, tuple[str | None, Callable[[str], object]]] = {"plan": (arguments.output, result.save)}
    for export in system.exports:
        if export.beside:
            export_to = partial(_export, result, export, values_of(arguments, export.fields), arguments.quiet)
            writers[export.beside] = (getattr(arguments, export.beside), export_to)
    files, codes = dict[str, str | None](), [0]
    for option, (path, write_to) in writers.items():
        files[option] = None
        if path is not None and result.valid:
            files[option], code = write(path, write_to)
            codes.append(code)
    return files, max(codes)


def _export(result: Result, export: Export, values: Mapping[str, object], is_quiet: bool, path: str) -> None:
    written = export.write(path, result.plan, values)
    if not is_quiet:
        print(f"gapless: {path}: {written}", file=sys.stderr)


def write_model(model: Any, path: str) -> None:
    """Write a model to a file, in the format that its name ends in."""
    from gapless.model.lp import write_lp
    from gapless.model.mps import write_mps

    writers = {".lp": write_lp, ".mps": write_mps}
    if Path(path).suffix not in writers:
        raise InputError(f"--write-model: the file must end in .lp or .mps, got {path!r}")
    writers[Path(path).suffix](model, path)
