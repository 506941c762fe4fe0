"""References as Markdown, made from the parsers and the systems' fields: what is taken is said once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from html import escape

from gapless.question.parameters import parameter_rows
from gapless.system import System

__all__ = ["commands_reference", "systems_reference"]

_MOST_DEPTH = 4
"""Headings of commands that lie deeper in each other are as small as these."""


def commands_reference(parser: argparse.ArgumentParser) -> str:
    """A section for each command below a parser, before those of its own subcommands: what it does, its arguments by
    group, and what its help ends with.
    """
    return "\n\n".join(_sections(parser))


def systems_reference(systems: Iterable[System]) -> str:
    """A section for each system: what `problem` and `solve` take, and the parameters of its searches."""
    return "\n\n".join(part for system in systems for part in _of_system(system))


def _of_system(system: System) -> Iterator[str]:
    yield f"### gapless.{system.name}"
    what, first = _prose(system.what[:1].upper() + system.what[1:]), system.fields[0].name
    yield f"{what}. `gapless.{system.name}.solve({first}, ...)` makes a plan."
    arguments = [
        f"| `{field.name}` | {_in_a_cell(_prose(field.explained))}{'; must be given' if field.is_required else ''} |"
        for field in system.fields
    ]
    yield "\n".join(["| argument | |", "|---|---|", *arguments])
    if system.parameters is not None:
        rows = parameter_rows(system.parameters())
        lines = [f"| `{row['name']}` | {_prose(row['default'])} | {_prose(row['what'])} |" for row in rows]
        yield "\n".join(["| parameter | default | |", "|---|---|---|", *lines])


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}  # noqa: SLF001
            for name, inner in action.choices.items():
                yield f"{'#' * min(len(inner.prog.split()), _MOST_DEPTH)} {inner.prog}"
                yield _prose(helps.get(name, ""))
                yield from _tables(inner)
                if inner.epilog:
                    yield f"```text\n{inner.epilog.strip()}\n```"
                yield from _sections(inner)


def _tables(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A table for each group of arguments."""
    for group in parser._action_groups:  # noqa: SLF001
        lines = [_line(parser, action) for action in group._group_actions if _is_listed(action)]  # noqa: SLF001
        if lines:
            yield f"| {group.title} | |\n|---|---|\n" + "\n".join(lines)


def _is_listed(action: argparse.Action) -> bool:
    is_plain = not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)  # noqa: SLF001
    return is_plain and action.help != argparse.SUPPRESS


def _line(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    """A row of the table: the argument as it is typed, and its help."""
    formatter = parser.formatter_class(prog=parser.prog)
    typed = formatter._format_action_invocation(action)  # noqa: SLF001
    help_text = formatter._expand_help(action) if action.help else ""  # noqa: SLF001
    must = "; must be given" if action.required and action.option_strings else ""
    return f"| `{_in_a_cell(typed)}` | {_in_a_cell(_prose(help_text))}{must} |"


def _in_a_cell(text: str) -> str:
    """A text in one line."""
    return re.sub(r"\s+", " ", text)


def _prose(text: str) -> str:
    """A text that stands in Markdown as it is, but for what is in backticks already."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else _escaped(part) for part in parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*_\[\]])", r"\\\1", escape(text, quote=False))
