"""The fields of an instance: the options of `gapless solve SYSTEM`, by name, and what their values may be."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, NoReturn

from gapless.cli.arguments import Number, Whole
from gapless.cli.parser import Parser
from gapless.cli.solving import SYSTEMS
from gapless.errors import InputError

__all__ = ["Value", "asked", "fields", "is_file", "is_numeric", "parse", "words"]

Value = str | int | float

_NOT_FIELDS = {"help", "output", "xml", "write_model", "threads", "json", "quiet"}
"""What is done with a plan, or is for the sweep as a whole to say."""
_NOT_GROUPS = {"TACCL-EF"}


class _FieldParser(Parser):
    """Says what is wrong by raising `InputError`, with the field's name in place of the option's."""

    def error(self, message: str) -> NoReturn:
        raise InputError(re.sub(r"^argument --([\w-]+)", lambda found: found[1].replace("-", "_"), message))


@cache
def _parser(system: str) -> argparse.ArgumentParser:
    commands = _FieldParser(prog="gapless solve").add_subparsers()
    SYSTEMS[system].add_command(commands)
    parser: argparse.ArgumentParser = commands.choices[system]
    return parser


@cache
def fields(system: str) -> Mapping[str, argparse.Action]:
    """The options that an instance of a system may have, by name."""
    groups = [group for group in _parser(system)._action_groups if group.title not in _NOT_GROUPS]  # noqa: SLF001
    actions = [action for group in groups for action in group._group_actions]  # noqa: SLF001
    return {action.dest: action for action in actions if action.dest not in _NOT_FIELDS}


def is_numeric(action: argparse.Action) -> bool:
    """Whether a field takes a number; all others take texts, as on the command line."""
    return isinstance(action.type, (Number, Whole))


def is_file(action: argparse.Action) -> bool:
    """Whether a field may name a file, which is a part of the instance then."""
    return "FILE" in str(action.metavar)


def words(system: str, values: Mapping[str, Value]) -> list[str]:
    """The values as options of the command line."""
    options = [(fields(system)[name].option_strings[-1], str(value)) for name, value in values.items()]
    return [word for option, text in options for word in ([f"{option}={text}"] if text[:1] == "-" else [option, text])]


def parse(system: str, values: Mapping[str, Value]) -> argparse.Namespace:
    """What `gapless solve SYSTEM` makes of these values. Raises `InputError` as it would, naming the field."""
    arguments = _parser(system).parse_args(words(system, values))
    arguments.command_line = ["solve", system, *words(system, values)]
    return arguments


def asked(system: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """All fields, those that were not given with their defaults."""
    return {name: getattr(arguments, name) for name in fields(system)}
