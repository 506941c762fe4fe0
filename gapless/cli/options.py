"""Fields as options: what a system or a command asks for, on the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gapless.errors import InputError
from gapless.options import SolveOptions
from gapless.question.fields import SOLVING, Choice, Field, Flag, Listed

__all__ = [
    "add_batches",
    "add_fields",
    "add_output_options",
    "add_quiet",
    "add_solve_options",
    "add_time_limit",
    "naming_options",
    "solving_values",
    "values_of",
]


def add_fields(parser: argparse.ArgumentParser, fields: Sequence[Field]) -> None:
    """An option for each field, under the headings of their groups."""
    groups: dict[str, argparse._ActionsContainer] = {}
    for field in fields:
        if field.group not in groups:
            groups[field.group] = parser.add_argument_group(field.group)
        names = [*([field.short] if field.short else []), field.option]
        help_text = field.explained.replace("%", "%%")
        if isinstance(field.kind, Flag):
            action = "store_false" if field.default is True else "store_true"
            groups[field.group].add_argument(*names, dest=field.name, action=action, help=help_text)
            continue
        metavar = field.metavar or (f"{{{','.join(field.kind.choices)}}}" if isinstance(field.kind, Choice) else "X")
        groups[field.group].add_argument(
            *names, dest=field.name, type=_typed(field), default=field.default, required=field.is_required,
            metavar=metavar, help=help_text, action="extend" if _is_repeated(field) else "store",
        )  # fmt: skip


def _is_repeated(field: Field) -> bool:
    """Whether the option may stand several times, each of which adds to the values."""
    return isinstance(field.kind, Listed) and field.default is None


def _typed(field: Field) -> Callable[[str], object]:
    """The field's kind with errors as argparse wants them."""

    def read(text: str) -> object:
        try:
            return field.kind(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def values_of(arguments: argparse.Namespace, fields: Sequence[Field]) -> dict[str, Any]:
    """What the options say, by field."""
    return {field.name: getattr(arguments, field.name) for field in fields}


@contextmanager
def naming_options(fields: Sequence[Field]) -> Iterator[None]:
    """In what goes wrong within, fields bear the names of their options: the first word, and what stands in `...`."""
    options = {field.name: field.option for field in fields}
    try:
        yield
    except InputError as error:
        head, colon, rest = str(error).partition(":")
        message = f"{options[head]}:{rest}" if colon and head in options else str(error)
        named = re.sub(r"`(\w+)`", lambda found: options.get(found[1], found[0]), message)
        raise type(error)(named) from None


def add_solve_options(parser: argparse.ArgumentParser, default: SolveOptions | None = None) -> None:
    """The options of solving; `default`: those that stand where nothing is said, if they are not the system's."""
    add_fields(parser, [_with_default(field, default) for field in SOLVING])


def _with_default(field: Field, default: SolveOptions | None) -> Field:
    if default is None or field.name != "time_limit" or default.time_limit_s is None:
        return Field(**{**vars(field), "group": "solving"})
    help_text = field.help.replace("by system", f"{default.time_limit_s:g}")
    return Field(**{**vars(field), "group": "solving", "help": help_text, "default": default.time_limit_s})


def add_batches(parser: argparse.ArgumentParser) -> None:
    """Which part of a long plan to look at."""
    parser.add_argument(
        "--batches", metavar="FIRST:STOP", help="of a plan of many batches: those to look at (default: all)"
    )


def add_time_limit(parser: argparse.ArgumentParser, help_text: str) -> None:
    """`--time-limit` alone, for what solves nothing."""
    (time_limit,) = (field for field in SOLVING if field.name == "time_limit")
    add_fields(parser, [replace(time_limit, help=help_text, group="options")])


def solving_values(arguments: argparse.Namespace) -> Mapping[str, object]:
    """What the options of solving say, without the parameters."""
    return {field.name: getattr(arguments, field.name) for field in SOLVING if field.name != "parameters"}


def add_output_options(parser: argparse.ArgumentParser, quiet: str = "no progress, no summary") -> None:
    """What goes to stdout and stderr; `quiet`: what `--quiet` leaves of it."""
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="one JSON object on stdout, nothing else")
    add_quiet(group, quiet)


def add_quiet(parser: argparse._ActionsContainer, help_text: str = "print nothing") -> None:
    """`--quiet`, which every command takes."""
    parser.add_argument("--quiet", action="store_true", help=help_text)
