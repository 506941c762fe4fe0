"""The commands that systems bring themselves, as subcommands of `advise`, `sweep`, `run`, `profile` and `validate`."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from gapless.cli.options import (
    add_fields,
    add_output_options,
    add_solve_options,
    add_time_limit,
    naming_options,
    solving_values,
    values_of,
)
from gapless.cli.parser import Commands
from gapless.cli.running import command_of
from gapless.cli.signals import Listening
from gapless.system import Answer, Command, Session, System, find_system, system_names

if TYPE_CHECKING:  # it imports torch
    from gapless.torch.ranks import Ranks

__all__ = ["add_command", "add_commands"]

_WORDS: dict[str, tuple[str, Callable[[System], Sequence[Command]]]] = {
    "advise": ("what would pay, and what would change that", lambda system: system.advice),
    "run": ("execute a plan and measure it", lambda system: system.runs),
    "profile": ("measure what questions need to know", lambda system: system.profiles),
    "validate": ("hold predictions against what is measured", lambda system: system.validations),
}
"""Commands that have only what systems bring: what the help says of each, and where a system has its own."""


def add_commands(commands: Commands) -> None:
    """Add the words with what the systems bring."""
    systems = [find_system(name) for name in system_names()]
    for word, (what, found) in _WORDS.items():
        examples = [_examples(command) for system in systems for command in found(system)]
        parser = commands.add_parser(
            word,
            help=what,
            epilog=f"example (`gapless {word} QUESTION --help` has more):\n{''.join(examples)}",
        )
        questions = parser.add_subparsers(metavar="question", required=True)
        for system in systems:
            for command in found(system):
                add_command(questions, command)
    for system in systems:
        for command in system.commands:
            add_command(commands, command)


def _examples(command: Command) -> str:
    """The lines of the help that stand below the line `example:`."""
    return command.example.partition("\nexample:\n")[2]


def add_command(questions: Commands, command: Command) -> None:
    """Add one command."""
    parser = questions.add_parser(
        command.name,
        help=command.what,
        epilog=command.example,
    )
    add_fields(parser, command.fields)
    if command.solving is not None:
        add_solve_options(parser, command.solving)
    elif command.is_limited:
        add_time_limit(parser, "seconds of wall time; what isn't finished by then is left out (default: none)")
    add_output_options(parser)
    parser.set_defaults(run=partial(_answer, command))


def _answer(command: Command, arguments: argparse.Namespace) -> int:
    from gapless.processes.launch import launched

    launch = launched() if command.is_launched else None
    if launch is None:
        return _answered(command, arguments)
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # a rank that goes away is a line of ours, not a C++ trace
    from gapless.torch.ranks import as_rank

    with naming_options(command.fields):
        wait_s = values_of(arguments, command.fields)["wait"]
    return as_rank(launch, wait_s, partial(_answered, command, arguments))


def _answered(command: Command, arguments: argparse.Namespace, ranks: Ranks | None = None) -> int:
    from gapless.cli import output
    from gapless.cli.patience import Patience
    from gapless.cli.progress import progress_on_stderr
    from gapless.options import SolveOptions
    from gapless.solution import Status

    stop = threading.Event()
    with Listening(stop, command.when_stopped), progress_on_stderr(arguments.quiet) as report:
        options = replace(command.solving or SolveOptions(), stop=stop, on_progress=report)
        if command.solving is not None:
            options = _solving(options, arguments)
        elif command.is_limited:
            options = options.within(arguments.time_limit)
        say = (lambda _: None) if arguments.quiet else _say
        with naming_options(command.fields):
            session = Session(options, say, command_of(arguments), getattr(arguments, "parameters", None), ranks)
            work = partial(command.answer, values_of(arguments, command.fields), session)
            patience = Patience(options.time_limit_s, stop)
            answer = patience.given(work) if command.is_limited else work()
    if answer is None:
        _say(f"no answer: {patience.why_over} before anything was finished")
        return output.EXIT_CODES[Status.NO_SOLUTION]
    _print(answer, arguments)
    if not answer.is_valid:
        return output.EXIT_VIOLATIONS
    if answer.is_infeasible:
        return output.EXIT_CODES[Status.INFEASIBLE]
    return 0 if answer.is_complete else output.EXIT_CODES[Status.NO_SOLUTION]


def _solving(default: Any, arguments: argparse.Namespace) -> Any:
    from gapless.question.entry import options_on_top

    return options_on_top(default, solving_values(arguments))


def _say(line: str) -> None:
    print(f"gapless: {line}", file=sys.stderr)


def _print(answer: Answer, arguments: argparse.Namespace) -> None:
    from gapless.cli.output import print_json

    if arguments.json:
        print_json(answer.data)
    elif not arguments.quiet:
        print(answer.text)
    for note in answer.notes:
        _say(note)
