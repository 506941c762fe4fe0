"""Extras: optional parts, what they are for, which commands need them, and the line that says one is missing; and the
versions of the libraries that plans depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata

import gapless
from gapless.errors import InputError

__all__ = ["EXTRAS", "Use", "distribution_version", "install_line", "library_versions", "missing_extra"]

_LIBRARIES = ("numpy", "networkx", "highspy", "ortools", "pulp")


@dataclass(frozen=True)
class Use:
    """What an extra is for, and the commands that need it whatever their system is.

    All words of one of `commands` stand in such a command, the first of them at its start. With the word `unless` the
    extra isn't needed.
    """

    what: str
    commands: tuple[tuple[str, ...], ...] = ()
    unless: str = ""

    def is_needed(self, words: Sequence[str]) -> bool:
        """Whether a command needs it, by its words without `gapless`."""
        named = any(words[:1] == [first] and set(others) <= set(words) for first, *others in self.commands)
        return named and self.unless not in words


EXTRAS = {
    "chakra": Use("Chakra traces", (("export", "chakra"),)),
    "choose": Use("choices of measured configurations from few runs"),
    "cli": Use("the live progress line, completion", (("completion",),)),
    "docs": Use("this documentation as a site"),
    "examples": Use("the example that measures an index library"),
    "fast": Use("compiled loops: the same results, sooner"),
    "hf": Use("language models of transformers"),
    "plot": Use("pictures", (("plot",), ("report",)), unless="--no-pictures"),
    "ray": Use("sweeps on a Ray cluster", (("sweep", "--engine", "ray"),)),
    "release": Use("a release of gapless"),
    "slurm": Use("sweeps on a Slurm cluster", (("sweep", "--engine", "slurm"),)),
    "test": Use("the tests"),
    "test-browser": Use("the tests that look at a report in a browser"),
    "torch": Use("models and plans on PyTorch", (("run",), ("profile",), ("validate",))),
    "trainers": Use("plans in the Trainer of transformers, and in Lightning's"),
}
"""Every extra that pyproject.toml declares, by name. Systems say which of their options need one (`Field.extra`)."""


def install_line(extra: str) -> str:
    """What installs an extra: in a checkout by its folder, elsewhere for the package that is installed."""
    is_checkout = len(gapless.__path__) > 1
    return f"pip install '.[{extra}]' in a checkout" if is_checkout else f"pip install 'gapless[{extra}]'"


def missing_extra(what: str, library: str, extra: str) -> InputError:
    """The error for `what` that needs a library of an extra."""
    return InputError(f"{what} needs {library}, which is not installed; {install_line(extra)}")


def library_versions() -> dict[str, str | None]:
    """The versions of gapless and of the libraries that its plans depend on, None where one is not installed."""
    return {"gapless": gapless.__version__, **{name: distribution_version(name) for name in _LIBRARIES}}


@cache
def distribution_version(distribution: str) -> str | None:
    """The version that is installed, None if none is."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
