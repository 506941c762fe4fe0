"""`gapless doctor`: what is installed, what works, and the text for a bug report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gapless.doctor import Examination

__all__ = ["add_commands"]

EXIT_UNHEALTHY = 1

_EXAMPLE = """\
Paste what it prints into a bug report. It holds no path and no name of yours.

exit codes: 0 all tests passed, 1 something does not work

example:
  gapless doctor
"""


def add_commands(commands: Any) -> None:
    """Add `doctor`."""
    parser = commands.add_parser(
        "doctor",
        help="versions, solvers and a self test of about two seconds: for bug reports",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    parser.set_defaults(run=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    from gapless.cli.output import print_json
    from gapless.doctor import examine

    examination = examine()
    if arguments.json:
        print_json(examination.data)
    else:
        print(_text(examination))
    return 0 if examination.is_healthy else EXIT_UNHEALTHY


def _text(found: Examination) -> str:
    lines = [f"gapless {found.versions['gapless']}, {found.python}, {found.system}"]
    cores = f"{found.cores} of {found.cores_of_machine}" if found.cores != found.cores_of_machine else str(found.cores)
    lines.append(f"cores     {cores}")
    libraries = [f"{name} {version or 'missing'}" for name, version in found.versions.items() if name != "gapless"]
    lines.append(f"libraries {', '.join(libraries)}")
    lines.append("solvers")
    for solver in found.solvers:
        lines.append(f"  {solver['name']:<16} {solver['version'] or 'not installed':<14} {', '.join(solver['takes'])}")
    lines.append("extras" if found.extras else "extras    unknown: gapless is not installed")
    for extra in found.extras:
        needs = ", ".join(f"{name} {version or 'missing'}" for name, version in extra.needs.items())
        lines.append(f"  {extra.name:<16} {'complete' if extra.is_complete else 'incomplete':<14} {needs}")
    lines.append("self test")
    for test in found.tests:
        lines.append(f"  {test.name:<24} {'ok' if test.is_good else 'BROKEN':<6} {test.text}")
    lines.append(f"{'all is well' if found.is_healthy else 'something does not work'}, in {found.wall_s:.1f} s")
    return "\n".join(lines)
