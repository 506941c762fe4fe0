"""Extras: optional parts, what they are for, which commands need them, and the line that says one is missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gapless.errors import InputError

__all__ = ["EXTRAS", "Use", "extras_for", "install_line", "missing_extra"]


@dataclass(frozen=True)
class Use:
    """What an extra is for, and the commands that need it.

    All words of one of `commands` stand in such a command, the first of them at its start; a word that ends in a colon
    stands for all that begin so. With the word `unless` the extra isn't needed.
    """

    what: str
    commands: tuple[tuple[str, ...], ...] = ()
    unless: str = ""


EXTRAS = {
    "chakra": Use("Chakra traces", (("export", "chakra"), ("convert", "chakra"))),
    "cli": Use("the live progress line, completion", (("completion",),)),
    "docs": Use("this documentation as a site"),
    "examples": Use("the example that measures an index library"),
    "fast": Use("compiled loops: the same results, sooner"),
    "hf": Use("language models of transformers", (("run", "hf:"), ("profile", "hf:"))),
    "plot": Use("pictures", (("plot",), ("report",)), unless="--no-pictures"),
    "ray": Use("sweeps on a Ray cluster", (("sweep", "--engine", "ray"),)),
    "slurm": Use("sweeps on a Slurm cluster", (("sweep", "--engine", "slurm"),)),
    "test": Use("the tests"),
    "test-browser": Use("the tests that look at a report in a browser"),
    "torch": Use("models and plans on PyTorch", (("run",), ("profile",), ("validate",))),
}
"""Every extra that pyproject.toml declares, by name."""


def extras_for(words: Sequence[str]) -> list[str]:
    """The extras that a command needs, by its words without `gapless`."""
    split = [part for word in words for part in ([word] if word.startswith("hf:") else word.split("="))]

    def stands(wanted: str) -> bool:
        return any(word.startswith(wanted) if wanted.endswith(":") else word == wanted for word in split)

    def is_needed(use: Use) -> bool:
        is_named = any(split[:1] == [command[0]] and all(map(stands, command)) for command in use.commands)
        return is_named and use.unless not in split

    return [name for name, use in EXTRAS.items() if is_needed(use)]


def install_line(extra: str) -> str:
    """What installs an extra."""
    return f"pip install '.[{extra}]' in a checkout"


def missing_extra(what: str, library: str, extra: str) -> InputError:
    """The error for `what` that needs a library of an extra."""
    return InputError(f"{what} needs {library}, which is not installed; {install_line(extra)}")
