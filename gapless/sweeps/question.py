"""Questions: what a sweep asks. One comes from a file, as an instance; another is given as a problem from Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gapless.options import SolveOptions
from gapless.sweeps.instances import Instance
from gapless.sweeps.sweep_file import Value
from gapless.system import Problem

__all__ = ["Given", "Question", "limits_of"]


@dataclass(frozen=True)
class Given:
    """A problem with its options, picklable.

    `hash`: opens the names of its files, and must change with all that its answer depends on. `title`: what people call
    it. `limits`: fields of `SolveOptions`. `values`: what its row has as `fields`.
    """

    problem: Problem
    limits: Mapping[str, Any]
    hash: str
    title: str
    values: Mapping[str, Value]
    swept: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    parameters: object = None
    command: str = ""

    @property
    def system(self) -> str:
        """Whose problem it is."""
        return self.problem.system

    @property
    def options(self) -> SolveOptions:
        """How it is to be solved."""
        return SolveOptions(**self.limits)

    def check(self) -> float | None:
        """The time limit; the problem has been checked already."""
        return self.options.time_limit_s

    def check_files(self) -> None:
        """There are none that may change."""


Question = Instance | Given


def limits_of(options: SolveOptions) -> dict[str, object]:
    """The options as `Given` takes them, without `on_progress` and `stop`, which stay in this process."""
    return {key: getattr(options, key) for key in ("time_limit_s", "gap", "threads", "seed", "solver")}
