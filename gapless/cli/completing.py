"""`gapless completion`: the script that completes commands, options and names in a shell."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gapless.errors import InputError

__all__ = ["add_commands"]

_EXAMPLE = """\
example:
  gapless completion bash > ~/.local/share/bash-completion/completions/gapless
  gapless completion zsh > "${fpath[1]}/_gapless"
"""

_SHELLS = ("bash", "fish", "tcsh", "zsh")


def add_commands(commands: Any, whole: Callable[[], argparse.ArgumentParser]) -> None:
    """Add `completion`; `whole` makes the parser of all commands, which the script is made from."""
    parser = commands.add_parser(
        "completion",
        help="print the script for tab completion in a shell (needs the extra `cli`)",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS)
    parser.set_defaults(run=lambda arguments: _print_script(arguments.shell, whole()))


def _print_script(shell: str, parser: argparse.ArgumentParser) -> int:
    try:
        import shtab
    except ImportError:
        raise InputError("completion needs shtab, which is not installed; pip install '.[cli]' in a checkout") from None
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
    from gapless.collective import COLLECTIVES
    from gapless.encodings.taccl import sketch_names
    from gapless.profiles.devices import device_names
    from gapless.profiles.gradients.compressors import compressor_names
    from gapless.profiles.gradients.named import fusion_profile_names
    from gapless.profiles.training.networks import network_names
    from gapless.solvers.registry import BACKENDS
    from gapless.topologies.files import topology_names

    known: dict[str, Iterable[str]] = {
        "collective": COLLECTIVES,
        "compressor": compressor_names(),
        "device": device_names(),
        "graph": network_names(),
        "profile": fusion_profile_names(),
        "sketch": [*sketch_names(), "auto"],
        "solver": BACKENDS,
        "topology": topology_names(),
    }
    return {dest: sorted(names) for dest, names in known.items()}
