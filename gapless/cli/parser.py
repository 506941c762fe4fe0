"""The parser of every command: errors of one line, which guess what was meant."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

__all__ = ["EXIT_BAD_INPUT", "Commands", "Parser"]

EXIT_BAD_INPUT = 2


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line, which guess what was meant.

    `takes_files`: the subcommand that may be left out before a file, by the file's ending. `takes_command`: what stands
    behind `--` is another program's, in `words`.
    """

    takes_files: Mapping[str, str] = {}
    takes_command = False

    def _get_formatter(self) -> argparse.HelpFormatter:
        return argparse.RawDescriptionHelpFormatter(self.prog)  # examples stand as they are written

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def parse_known_args(  # type: ignore[override]  # the stubs' overloads are for namespaces of one's own
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """As in argparse, but a subcommand itself refuses the options that it doesn't know: it knows similar ones."""
        if args and self.takes_files:
            args = self._with_subcommand(list(args))
        if args and self.takes_command and "--" in args:
            at = list(args).index("--")
            self.set_defaults(words=list(args[at + 1 :]))
            args = args[:at]
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            option = unknown[0].partition("=")[0]
            known = [name for action in self._actions for name in action.option_strings]
            self.error(f"unrecognized arguments: {' '.join(unknown)}{_meant(option, known)}")
        return found, unknown

    def _with_subcommand(self, args: list[str]) -> list[str]:
        """The words, with the subcommand that a file among them stands for: the first one, or one after an option."""
        heads = args if args[0].startswith("-") else args[:1]
        meant = [self.takes_files[ending] for ending in map(_ending, heads) if ending in self.takes_files]
        return meant[:1] + args

    def _check_value(self, action: argparse.Action, value: object) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += _meant(str(value), [str(choice) for choice in action.choices or ()])
            raise


class Commands(Protocol):
    """What commands are added to: what `Parser.add_subparsers` makes."""

    def add_parser(self, name: str, *, help: str, epilog: str) -> Parser:
        """Add one; its options are added to what comes back."""


def _ending(word: str) -> str:
    return Path(word).suffix


def _meant(got: str, known: list[str]) -> str:
    from gapless.io.record import suggestion

    hint = suggestion(got, known)
    return f"; {hint}" if hint else ""
