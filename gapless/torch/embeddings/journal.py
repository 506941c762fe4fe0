"""What the last batches changed, so that a process can go back to where all others are too."""

from __future__ import annotations

from collections import deque
from typing import Any

from gapless.errors import RunError

__all__ = ["BEFORE_ALL", "Journal"]

BEFORE_ALL = -2
"""As a batch: before the first rows were fetched, which is done as batch -1."""
_KEPT = 3
"""Batches that may be undone. What trainers add up in a batch keeps them, and so servers, within two of each other."""


class Journal:
    """Values as they were before each change, with the batch that changed them; nothing, unless it `is_kept`.

    `settled`: the last batch of which this process has carried out everything, its background too.
    """

    def __init__(self, is_kept: bool = True) -> None:
        self.settled = BEFORE_ALL
        self._is_kept = is_kept
        self._before: deque[tuple[int, Any, str, Any, Any]] = deque()

    def record(self, batch: int, owner: object, name: str, places: Any = ...) -> None:
        """Keep entries of an array, `owner.name[places]`, which are about to be changed for a batch."""
        if not self._is_kept:
            return
        values = getattr(owner, name)[places]
        self._before.append((batch, owner, name, places, values.clone() if hasattr(values, "clone") else values.copy()))

    def settle(self, batch: int) -> None:
        """A batch is done; what can't be undone any more is forgotten."""
        self.settled = batch
        while self._before and self._before[0][0] <= batch - _KEPT:
            self._before.popleft()

    def undo(self, last: int) -> None:
        """Go back to where batch `last` was done. Raises `RunError` where that is too long ago."""
        if last < self.settled - _KEPT:
            raise RunError(f"batch {last}: must be one of the last {_KEPT} to go back to, batch {self.settled} is done")
        left = [entry for entry in self._before if entry[0] <= last]
        for batch, owner, name, places, values in reversed(self._before):
            if batch > last:
                getattr(owner, name)[places] = values
        self._before = deque(left)
        self.settled = last
