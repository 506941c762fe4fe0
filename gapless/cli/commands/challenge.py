"""`gapless challenge`: tries to refute what a plan claims."""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from gapless.cli.options import add_fields, add_output_options
from gapless.cli.parser import Commands
from gapless.cli.signals import Listening
from gapless.errors import InputError
from gapless.question.fields import SOLVING, Field, Text, Whole

if TYPE_CHECKING:
    from gapless.challenges import Attempt

__all__ = ["add_commands"]

_HOW = (
    Field(
        "work", Whole(1), "work of all attempts, 100: as much as that of a solve by default (default 100)", metavar="N"
    ),
    *(Field(**{**vars(field), "group": "solving"}) for field in SOLVING if field.name in ("time_limit", "seed")),
    Field("parameters", Text(), "a TOML file with `ChallengeParameters`: shares of the work", metavar="FILE"),
)
_OUTPUT = Field("output", Text(), "where to write the best plan, if one is better", metavar="FILE", short="-o")

_EXAMPLE = """\
Asks the plan's question in other ways: with other seeds, methods and solvers, without what narrows it, from the plan as
a start. Each attempt has a share of counted work, so that the same plan meets the same attempts. A claim is refuted by
a valid plan below one of its bounds, if the plan belongs to the bound's class. It is refuted by its own replay as well.

exit codes: 0 nothing is refuted and no plan is better, 2 bad input, or a question that can't be asked again,
5 a claim is refuted, or a better plan was found

example:
  gapless challenge plan.json --work 20
  gapless challenge plan.json --time-limit 60 -o better.json
"""


def add_commands(commands: Commands) -> None:
    """Add `challenge`."""
    parser = commands.add_parser(
        "challenge",
        help="try to refute what a plan claims: ask its question otherwise, look for a better plan",
        epilog=_EXAMPLE,
    )
    parser.add_argument("file", metavar="PLAN", help="a plan (.json, .npz)")
    add_fields(parser, [*_HOW, _OUTPUT])
    add_output_options(parser)
    parser.set_defaults(run=_challenge)


def _challenge(arguments: argparse.Namespace) -> int:
    from gapless.challenges import challenge
    from gapless.cli.output import EXIT_VIOLATIONS, print_json
    from gapless.cli.running import write
    from gapless.io.atomic import check_writable
    from gapless.options import SolveOptions

    if arguments.output is not None:
        ending = Path(arguments.file).suffix
        if not arguments.output.endswith(ending):
            raise InputError(f"--output: must end in {ending}, as the plan does, got {arguments.output!r}")
        check_writable(arguments.output)
    stop = threading.Event()
    with Listening(stop, "stopping with what was found"):
        report = challenge(
            arguments.file, work=arguments.work, time_limit=arguments.time_limit, seed=arguments.seed,
            parameters=arguments.parameters, options=SolveOptions(threads=1, stop=stop),
            on_attempt=None if arguments.quiet else _say,
        )  # fmt: skip
    written, code = None, 0
    if arguments.output is not None and report.best is not None:
        written, code = write(arguments.output, report.save)
    if arguments.json:
        print_json({**report.data, "plan": written})
    elif not arguments.quiet:
        print(report.text)
        if written is not None:
            print(f"written to {written}")
    return code or (EXIT_VIOLATIONS if report.is_alarm else 0)


def _say(done: int, total: int, attempt: Attempt) -> None:
    print(f"gapless: {done}/{total}  {attempt.name}: {attempt.verdict.value}", file=sys.stderr, flush=True)
