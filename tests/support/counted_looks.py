"""A deadline that counts instead of looking at the clock."""

from __future__ import annotations

from gapless.options import Deadline, SolveOptions


class After(Deadline):
    """A deadline that is over after so many looks at it."""

    def __init__(self, looks: int) -> None:
        super().__init__(SolveOptions())
        self.looks = looks

    @property
    def over(self) -> bool:
        self.looks -= 1
        return self.looks < 0
