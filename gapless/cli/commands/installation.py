"""`gapless bench` and `gapless doctor`: the tables of the documentation, made again and held against what is printed;
what is installed, what works, and the text for a bug report.
"""

from __future__ import annotations

import argparse
import threading
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING

from gapless.cli.options import add_output_options
from gapless.cli.parser import Commands

if TYPE_CHECKING:
    from gapless.installation.doctor import Examination
    from gapless.installation.evidence import Found, Row, Table

__all__ = ["add_commands"]

EXIT_DIFFERS = EXIT_UNHEALTHY = 1

_BENCH_EXAMPLE = """\
Every row is a command of its own, so each can be run by hand. Figures must be those of the page, to the last printed
digit. Where a clock or a measurement decides, they must be within the noise that the table states, processor times
within a factor of two. Tables that benchmarks make are run with --hour, from a checkout. A benchmark asserts its
answers, and writes the rows that are held against the page. A table that needs data which gapless doesn't ship says
whose they are. What needs a GPU runs with --gpu alone.

exit codes: 0 all that ran is as printed, 1 something differs, 2 bad input

example:
  gapless bench --list
  gapless bench --minute
  gapless bench --hour
  gapless bench --papers > papers.md
"""


_DOCTOR_EXAMPLE = """\
Paste what it prints into a bug report. It holds no path and no name of yours.

exit codes: 0 all tests passed, 1 something does not work

example:
  gapless doctor
  gapless doctor --for "plot plan.json -o plan.svg"
"""


def add_commands(commands: Commands) -> None:
    """Add `bench` and `doctor`."""
    _add_bench(commands)
    _add_doctor(commands)


def _add_bench(commands: Commands) -> None:
    parser = commands.add_parser(
        "bench",
        help="make the documentation's tables again, and say what differs",
        epilog=_BENCH_EXAMPLE,
    )
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="tables by name (default: all)")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--minute", action="store_true", help="rows that take seconds (default)")
    size.add_argument("--hour", action="store_true", help="all rows")
    size.add_argument("--gpu", action="store_true", help="what is to be tried on a GPU, and nothing else")
    size.add_argument("--list", action="store_true", help="what there is, with the page of each; runs nothing")
    size.add_argument(
        "--papers", action="store_true", help="each paper's figures beside ours, as a page of Markdown; runs nothing"
    )
    add_output_options(parser, "print nothing: the exit code says whether something differs")
    parser.set_defaults(run=_bench)


def _add_doctor(commands: Commands) -> None:
    parser = commands.add_parser(
        "doctor",
        help="versions, solvers and a self test of about two seconds: for bug reports",
        epilog=_DOCTOR_EXAMPLE,
    )
    parser.add_argument(
        "--for",
        metavar="COMMAND",
        dest="command",
        help="which extras a command needs, and what installs them; no self test",
    )
    add_output_options(parser, "print nothing: the exit code says whether all works, or is here")
    parser.set_defaults(run=_doctor)


def _bench(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.cli.signals import Listening
    from gapless.installation.evidence import rerun

    if arguments.papers:
        return _papers(arguments)
    tables = _chosen(arguments.tables)
    if arguments.list:
        if arguments.json:
            print_json({"tables": [asdict(table) for table in tables]})
        elif not arguments.quiet:
            print("\n".join(_listed(tables)))
        return 0
    if arguments.gpu:
        _check_gpu()
    options = {"--gpu"} if arguments.gpu else {"--minute", *(["--hour"] if arguments.hour else ())}
    stop = threading.Event()
    found: list[tuple[Table, Found]] = []
    with Listening(stop, "stopping with the rows that ran"):
        for table, rows in _asked(tables, options):
            outcomes = None if stop.is_set() else rerun(rows, stop)
            if outcomes is None:
                break
            if not (arguments.json or arguments.quiet):
                new = not found or found[-1][0] is not table
                lines = (line for outcome in outcomes for line in _lines(outcome))
                print("\n".join([*(_heads([table]) if new else ()), *lines]), flush=True)
            found += [(table, outcome) for outcome in outcomes]
    return _report(found, arguments, stop.is_set(), _others(tables, options))


def _papers(arguments: argparse.Namespace) -> int:
    """Print the page, or its rows as an object."""
    from gapless.cli.output import print_json
    from gapless.errors import InputError
    from gapless.installation.papers import comparisons, papers_page

    if arguments.tables:
        raise InputError(f"--papers: takes no table, got {' '.join(arguments.tables)}; leave the names out")
    if arguments.json:
        print_json({"rows": [asdict(row) for row in comparisons()]})
    elif not arguments.quiet:
        print(papers_page(), end="")
    return 0


def _report(found: list[tuple[Table, Found]], arguments: argparse.Namespace, is_stopped: bool, others: str) -> int:
    from gapless.cli.output import print_json

    differing = sum(outcome.differs for _, outcome in found)
    if arguments.json:
        rows = [{"table": table.name, "page": table.page, **outcome.data} for table, outcome in found]
        print_json({"rows": rows, "differing": differing, "stopped": is_stopped})
    elif not arguments.quiet:
        ran = sum(not outcome.left_out for _, outcome in found)
        verdict = f", {differing} not as printed" if differing else ", all as printed" if ran else ""
        print(f"{ran} rows ran{verdict}{'; stopped before the rest' if is_stopped else others}")
    return EXIT_DIFFERS if differing else 0


def _chosen(names: list[str]) -> list[Table]:
    """The tables of these names; all of them for none."""
    from gapless.errors import InputError
    from gapless.installation.evidence import evidence
    from gapless.io.record import suggestion

    tables = {table.name: table for table in evidence()}
    for name in names:
        if name not in tables:
            hint = suggestion(name, sorted(tables)) or "`gapless bench --list` has all"
            raise InputError(f"table: there is none called {name!r}; {hint}")
    return [tables[name] for name in names] if names else list(tables.values())


def _check_gpu() -> None:
    """Raise `InputError` where PyTorch sees no GPU, or isn't there."""
    from gapless.errors import InputError
    from gapless.torch.devices import gpu_count

    if not gpu_count():
        raise InputError("--gpu: PyTorch must see a GPU, and sees none here; leave --gpu out for what runs without")


def _option(table: Table, row: Row) -> str:
    """The option that runs a row."""
    return "--gpu" if table.needs_gpu else f"--{row.size}"


def _asked(tables: list[Table], options: Collection[str]) -> Iterator[tuple[Table, list[Row]]]:
    """The rows that these options run; those of one command together."""
    for table in tables:
        asked = [row for row in table.rows if _option(table, row) in options]
        for _, rows in groupby(asked, key=lambda row: (*row.before, row.command)):
            yield table, list(rows)


def _others(tables: list[Table], options: Collection[str]) -> str:
    """How many rows other options run: where none ran, nothing was held."""
    counts = Counter(_option(table, row) for table in tables for row in table.rows)
    return "".join(f"; {count} more with {option}" for option, count in sorted(counts.items()) if option not in options)


def _heads(tables: list[Table]) -> Iterator[str]:
    """What each table is, on which page, and when it was measured where."""
    for table in tables:
        yield f"{table.name}: {table.title} ({table.page}; {table.measured})"


def _listed(tables: list[Table]) -> Iterator[str]:
    """Each table with what makes it."""
    for table, head in zip(tables, _heads(tables), strict=True):
        yield head
        quick = sum(row.size == "minute" for row in table.rows)
        commands = f"{quick} of {len(table.rows)} rows in a minute, such as {table.rows[0].command}"
        yield f"    {table.rows[0].command if table.rows[0].is_benchmark else commands}"
        if table.needs or table.needs_gpu:
            yield f"    needs {table.needs or 'a GPU: --gpu'}"


def _lines(found: Found) -> Iterator[str]:
    """A row: each figure as printed and as found."""
    if found.left_out:
        yield f"  {found.row.label}: left out, {found.left_out}"
    elif found.values is None:
        yield f"  {found.row.label}: FAILED, {found.error}: {found.row.command}"
    elif not found.values:
        yield f"  {found.row.label}: the benchmark's answers hold"
    else:
        yield f"  {found.row.label}"
        width = max(len(figure.path) for figure in found.row.figures)
        for figure, value in zip(found.row.figures, found.values, strict=True):
            mark = "" if figure.agrees(value) else "  DIFFERS"
            yield f"    {figure.path:<{width}}  printed {figure.printed:>12}  found {figure.text(value):>12}{mark}"


# -- doctor ------------------------------------------------------------------------------------------------------------


def _doctor(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.installation.doctor import examine

    if arguments.command is not None:
        return _extras_of(arguments)
    examination = examine()
    if arguments.json:
        print_json(examination.data)
    elif not arguments.quiet:
        print(_text(examination))
    return 0 if examination.is_healthy else EXIT_UNHEALTHY


def _extras_of(arguments: argparse.Namespace) -> int:
    """Say which extras a command needs, and what installs those that are missing."""
    from gapless.cli.output import print_json
    from gapless.installation.doctor import extras_needed
    from gapless.installation.extras import install_line

    extras = extras_needed(arguments.command)
    missing = [extra for extra in extras if not extra.is_complete]
    if arguments.json:
        found = [{"extra": extra.name, "complete": extra.is_complete, "needs": extra.needs} for extra in extras]
        print_json({"command": arguments.command, "extras": found, "install": [install_line(e.name) for e in missing]})
    elif arguments.quiet:
        pass
    elif not extras:
        print("it needs no extra")
    else:
        for extra in extras:
            lacking = ", ".join(name for name, version in extra.needs.items() if version is None)
            state = f"{lacking} missing; {install_line(extra.name)}" if lacking else "complete"
            print(f"extra {extra.name}: {state}")
    return EXIT_UNHEALTHY if missing else 0


def _text(found: Examination) -> str:
    from gapless.installation.extras import EXTRAS, install_line

    lines = [f"gapless {found.versions['gapless']}, {found.python}, {found.system}"]
    cores = f"{found.cores} of {found.cores_of_machine}" if found.cores != found.cores_of_machine else str(found.cores)
    lines.append(f"cores     {cores}")
    libraries = [f"{name} {version or 'missing'}" for name, version in found.versions.items() if name != "gapless"]
    lines.append(f"libraries {', '.join(libraries)}")
    lines.append("solvers")
    for solver in found.solvers:
        lines.append(f"  {solver.name:<16} {solver.version or 'not installed':<14} {', '.join(solver.takes)}")
    lines.append("extras" if found.extras else "extras    unknown: gapless is not installed")
    for extra in found.extras:
        needs = ", ".join(f"{name} {version or 'missing'}" for name, version in extra.needs.items())
        lines.append(f"  {extra.name:<16} {'complete' if extra.is_complete else 'incomplete':<14} {needs}")
        if not extra.is_complete and extra.name in EXTRAS:
            lines.append(f"  {'':<16} for {EXTRAS[extra.name].what}: {install_line(extra.name)}")
    lines.append("self test")
    for test in found.tests:
        lines.append(f"  {test.name:<24} {'ok' if test.is_good else 'BROKEN':<6} {test.text}")
    lines.append(f"{'all is well' if found.is_healthy else 'something does not work'}, in {found.wall_s:.1f} s")
    return "\n".join(lines)
