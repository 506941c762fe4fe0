"""`gapless sweep`: the instances of a file, of any system, on any engine, and what systems bring to answer one question
many times.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli import sweep_choice
from gapless.cli.commands.systems import add_command
from gapless.cli.options import add_fields, add_output_options
from gapless.cli.parser import Commands
from gapless.cli.signals import Listening
from gapless.errors import InputError
from gapless.question.fields import Choice, Field, Text, Whole
from gapless.system import find_system, system_names

if TYPE_CHECKING:  # imported by the command itself: --help stays fast
    from gapless.sweeps.instances import Instance
    from gapless.sweeps.local import Engine
    from gapless.sweeps.results import Row

__all__ = ["add_commands"]

_NAME = "file"
_ENDINGS = (".toml", ".json")
"""A file that ends so needs no `file` before it."""

_SWEEP_EXAMPLE = """\
A file in TOML or JSON lists instances of any system: `gapless sweep file --help`.

example (`gapless sweep SYSTEM --help` has more):
  gapless sweep grid.toml -o results
"""

_EXAMPLE = """\
A file in TOML or JSON lists grids. A grid's fields are the options of `gapless solve SYSTEM`, a list is swept:

  format = "gapless.sweep"
  version = 1

  [[grid]]
  system = "..."
  size = ["1KB", "1MB"]
  nodes = [1, 2, 4]
  gap = 0.05

The folder gets the table as summary.csv and summary.json, and a result and a plan for each instance. These are named by
a hash of the instance's fields, of the files that they name, and of gapless's version. The same command again solves
what has no result yet. Ctrl-C keeps the finished results and the best plans so far.

A file of measured commands (format gapless.measure, see `gapless list schemas`) has its configurations measured again
and again until --choose is answered. Measurements go to measurements.jsonl, the table is as above.

exit codes: 0 every instance is answered, or one is chosen; 2 bad input; 3 all that was measured breaks a limit; 4 some
have no answer, none is chosen, or it was stopped; 5 a replay found violations

example:
  gapless sweep file grid.toml -o results
  gapless sweep file grid.toml -o results --engine slurm --engine-option slurm_partition=cpu --threads 4
  gapless sweep file measure.toml --choose max:throughput --subject-to "memory<=1GiB" -o results
"""


_FIELDS = (
    Field("output", Text(), "folder for results, plans and the table", is_required=True, metavar="DIR", short="-o"),
    Field(
        "engine", Choice(("local", "slurm", "ray")), "processes here, or the extra `slurm` or `ray`", "local",
        group="engine",
    ),
    Field(
        "threads", Whole(0), "of each instance", 0, otherwise="local an even share of the cores, else 1", metavar="N",
        group="engine",
    ),
    Field(
        "workers", Whole(0), "instances at once", 0,
        otherwise="local as many as cores allow, measured commands 1, else no limit", metavar="N", group="engine",
    ),
)  # fmt: skip


def add_commands(commands: Commands) -> None:
    """Add `sweep` with the sweeps of the systems."""
    parser = commands.add_parser(
        "sweep",
        help="solve the instances of a file, or a question for many sizes or budgets",
        epilog=_SWEEP_EXAMPLE,
    )
    parser.takes_files = dict.fromkeys(_ENDINGS, _NAME)
    choices = parser.add_subparsers(metavar="system", required=True)
    _add_file_command(choices)
    for system in map(find_system, system_names()):
        for command in system.sweeps:
            add_command(choices, command)


def _add_file_command(systems: Commands) -> None:
    """Add `file` to what `sweep` takes."""
    parser = systems.add_parser(
        _NAME,
        help="the instances of a sweep file, of any system (`gapless sweep FILE` will do)",
        epilog=_EXAMPLE,
    )
    parser.add_argument("file", metavar="FILE", help="the sweep file: .toml, or .json")
    add_fields(parser, _FIELDS)
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--engine-option", action="append", default=[], metavar="NAME=VALUE",
        help="for submitit's executor, such as slurm_partition=cpu, or for ray.init, such as address=auto",
    )  # fmt: skip
    sweep_choice.add_options(parser)
    group.add_argument("--dry-run", action="store_true", help="check the file, list its instances, solve nothing")
    add_output_options(parser)
    parser.set_defaults(run=_sweep)


def _sweep(arguments: argparse.Namespace) -> int:
    from gapless.cli.progress import progress_on_stderr
    from gapless.sweeps import read_instances, sweep

    if sweep_choice.is_measure_file(arguments.file):
        return sweep_choice.choose_from(arguments)
    sweep_choice.check_options(arguments)
    instances, engine = read_instances(arguments.file), _engine(arguments)
    if arguments.dry_run:
        return _list(arguments, instances, engine)
    stop = threading.Event()
    line = "stopping: results and the best plans so far are kept; the same command goes on"
    with Listening(stop, line), progress_on_stderr(arguments.quiet) as on_progress:
        rows = sweep(instances, arguments.output, engine, on_progress, stop)
    _print(arguments, rows)
    return _verdict(rows)


def _engine(arguments: argparse.Namespace) -> Engine:
    from gapless.sweeps import Local

    options = dict(_option(text) for text in arguments.engine_option)
    if arguments.engine == "local":
        if options:
            raise InputError("--engine-option goes with --engine slurm or ray")
        return Local(arguments.threads, arguments.workers)
    if arguments.engine == "slurm":
        from gapless.sweeps.slurm import Slurm

        return Slurm(arguments.threads or 1, arguments.workers, options)
    from gapless.sweeps.ray_cluster import RayCluster

    return RayCluster(arguments.threads or 1, arguments.workers, options)


def _option(text: str) -> tuple[str, str | int]:
    """A name and a value, which is a number where it looks like one."""
    name, sign, value = text.partition("=")
    if not (sign and name.isidentifier()):
        raise InputError(f"--engine-option: must be NAME=VALUE, such as slurm_partition=cpu, got {text!r}")
    is_whole = value.isascii() and value.isdigit() and len(value) < 19
    return name, int(value) if is_whole else value


def _list(arguments: argparse.Namespace, instances: Sequence[Instance], engine: Engine) -> int:
    from gapless.sweeps.run import bare_row, known_rows

    engine.check()
    known = known_rows(instances, Path(arguments.output))
    for instance in instances:
        instance.check()
    _print(arguments, [known.get(place, bare_row(instance)) for place, instance in enumerate(instances)])
    return 0


def _print(arguments: argparse.Namespace, rows: Sequence[Row]) -> None:
    from gapless.cli.output import print_json
    from gapless.sweeps.summary import table_files

    if arguments.json:
        print_json({**table_files(Path(arguments.output)), "rows": [row.data for row in rows]})
    elif not arguments.quiet:
        _print_table(rows)


def _print_table(rows: Sequence[Row]) -> None:
    from gapless.report.text import described, table, words
    from gapless.units import UNITS

    swept = dict.fromkeys(name for row in rows for name in row.swept)
    there = {"s", *(row.unit for row in rows)}
    replayed = {"s": "makespan_s", "j": "energy_j"}
    units = [unit for unit in UNITS if unit in there]
    results = [*(replayed.get(unit, f"objective_{unit}") for unit in units), *(f"bound_{unit}" for unit in units)]
    columns = [*results, "gap", "peak_bytes", "solve_s"]
    said = [name for name in ("narrower", "wider") if any(name in row.details for row in rows)]
    head = ["hash", "system", *swept, "status", *(words(name) for name in columns), *said]
    lines = [
        [row.hash, row.system, *(str(row.fields.get(name, "-")) for name in swept), row.verdict]
        + [described(name, row.data[name]) for name in columns]
        + [str(row.details.get(name, "-")) for name in said]
        for row in rows
    ]
    print(table([head, *lines]))


def _verdict(rows: Sequence[Row]) -> int:
    """The exit code, with a line on stderr for each that failed and one where something is missing."""
    from gapless.cli.output import EXIT_CODES, EXIT_VIOLATIONS
    from gapless.solution import Status

    for row in rows:
        if row.error is not None:
            print(f"gapless: {row.hash} failed: {row.error}", file=sys.stderr)
    if any(row.violations for row in rows):
        return EXIT_VIOLATIONS
    answered = sum(row.is_answer for row in rows)
    if answered == len(rows):
        return 0
    counts = {
        "without a plan in time": sum(row.status == "no_solution" and not row.is_interrupted for row in rows),
        "interrupted": sum(row.is_interrupted for row in rows),
        "failed": sum(row.status == "failed" for row in rows),
        "not begun": sum(row.status == "waiting" for row in rows),
    }
    rest = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    print(f"gapless: {answered} of {len(rows)} instances have an answer, {rest}", file=sys.stderr)
    return EXIT_CODES[Status.NO_SOLUTION]
