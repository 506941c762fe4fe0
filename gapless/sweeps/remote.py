"""What engines beyond this process share: how a worker elsewhere is asked to stop, and how the caller learns of it.

The folder is where all of them can write, so the word to stop is a file in it.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gapless.processes.exit import undone_on_leaving
from gapless.processes.workers import outcome_of
from gapless.sweeps.local import Outcome
from gapless.sweeps.solving import Work

__all__ = ["RemoteWork", "stop_file"]

_POLL_S = 0.5


@dataclass(frozen=True)
class RemoteWork:
    """Work that stops when a file appears, in the folder that the sweep was started from; picklable."""

    work: Work
    stop_path: Path
    folder: str

    def __call__(self) -> Outcome:
        """Do it; None where the word to stop came first."""
        os.chdir(self.folder)  # file names are as the sweep was given them
        if self.stop_path.exists():
            return None
        stop, is_done = threading.Event(), threading.Event()
        threading.Thread(target=_watch, args=(self.stop_path, stop, is_done), daemon=True).start()
        try:
            return outcome_of(self.work.question.title, self.work, stop)
        finally:
            is_done.set()


def _watch(path: Path, stop: threading.Event, is_done: threading.Event) -> None:
    while not is_done.wait(_POLL_S):
        if path.exists():
            stop.set()
            return


@contextmanager
def stop_file(folder: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A name for the file, and what makes it; it is removed when the block is left."""
    path = folder / f".stop-{secrets.token_hex(8)}"
    remove = partial(path.unlink, missing_ok=True)
    with undone_on_leaving(remove):
        try:
            yield path, path.touch
        finally:
            remove()
