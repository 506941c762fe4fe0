"""`gapless doctor`: what is installed, what works, and the text for a bug report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from gapless.cli.options import add_output_options
from gapless.cli.parser import Commands

if TYPE_CHECKING:
    from gapless.installation.doctor import Examination

__all__ = ["add_commands"]

EXIT_UNHEALTHY = 1

_EXAMPLE = """\
Paste what it prints into a bug report. It holds no path and no name of yours.

exit codes: 0 all tests passed, 1 something does not work

example:
  gapless doctor
  gapless doctor --for "plot plan.json -o plan.svg"
"""


def add_commands(commands: Commands) -> None:
    """Add `doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="versions, solvers and a self test of about two seconds: for bug reports",
        epilog=_EXAMPLE,
    )
    parser.add_argument(
        "--for",
        metavar="COMMAND",
        dest="command",
        help="which extras a command needs, and what installs them; no self test",
    )
    add_output_options(parser, "print nothing: the exit code says whether all works, or is here")
    parser.set_defaults(run=_doctor)


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
