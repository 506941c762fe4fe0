"""The subcommands of the command line and their options, as the parser has them."""

from __future__ import annotations

import argparse
from contextlib import suppress

from gapless.cli.commands import build_parser


def commands(
    parser: argparse.ArgumentParser | None = None, path: tuple[str, ...] = ()
) -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """Every command by its words, such as `("solve", "taccl")`; the empty one too."""
    parser = parser or build_parser()
    found = {path: parser}
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                found |= commands(inner, (*path, name))
    return found


def is_text(action: argparse.Action) -> bool:
    """Whether an option takes any text."""
    with suppress(argparse.ArgumentTypeError, TypeError):
        action.type("any text")  # type: ignore[operator,misc]
        return True
    return False


def numeric_options() -> list[tuple[tuple[str, ...], str]]:
    """(command, option) for every option that reads a number."""
    return [
        (path, action.option_strings[-1])
        for path, parser in commands().items()
        for action in parser._actions  # noqa: SLF001
        if action.option_strings and action.type is not None and not is_text(action)
    ]
