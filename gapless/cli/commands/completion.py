"""`gapless completion`: the script that completes commands, options and names in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

from gapless.cli.options import add_quiet
from gapless.cli.parser import Commands
from gapless.installation.extras import missing_extra
from gapless.system import find_system, system_names

__all__ = ["add_commands"]

_EXAMPLE = """\
example:
  gapless completion bash > ~/.local/share/bash-completion/completions/gapless
  gapless completion zsh > "${fpath[1]}/_gapless"
"""

_SHELLS = ("bash", "fish", "tcsh", "zsh")


def add_commands(commands: Commands, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add `completion`; `whole` makes the parser of all commands, which the script is made from."""
    parser = commands.add_parser(
        "completion",
        help="print the script for tab completion in a shell (needs the extra `cli`)",
        epilog=_EXAMPLE,
    )
    parser.add_argument("shell", choices=_SHELLS, help="whose script it is")
    add_quiet(parser, "the script alone, as without it")
    parser.set_defaults(run=lambda arguments: _print_script(arguments.shell, whole()))


def _print_script(shell: str, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab
    except ImportError:
        raise missing_extra("completion", "shtab", "cli") from None
    names = _names()
    for action in _actions(parser):
        if action.metavar in ("FILE", "PLAN"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
        elif action.metavar == "DIR":
            action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]
        elif action.choices is None and action.dest in names:
            action.choices = names[action.dest]
    print(shtab.complete(parser, shell=shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of all its subcommands."""
    for group in parser._action_groups:  # noqa: SLF001
        for action in group._group_actions:  # noqa: SLF001
            yield action
            if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
                for inner in action.choices.values():
                    yield from _actions(inner)


def _names() -> dict[str, list[str]]:
    """What may stand behind an option that takes a name, by the option's destination."""
    from gapless.question.fields import SOLVING, Choice

    found: dict[str, set[str]] = {}
    for system in map(find_system, system_names()):
        commands = (*system.advice, *system.sweeps, *system.runs)
        fields = [*system.fields, *SOLVING, *(field for command in commands for field in command.fields)]
        for field in fields:
            names = field.kind.choices if isinstance(field.kind, Choice) else field.names() if field.names else ()
            found.setdefault(field.name, set()).update(names)
    return {dest: sorted(names) for dest, names in found.items() if names}
