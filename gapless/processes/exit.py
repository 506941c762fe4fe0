"""Leaving at once: what must not outlive a process that ends without unwinding, such as after a second Ctrl-C."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import NoReturn

__all__ = ["ends_at_once", "leave", "survives_a_clean_end", "temporary_folder", "undone_on_leaving"]

_UNDO: dict[object, Callable[[], object]] = {}
_DIRTY: list[bool] = []
"""Not empty once something is at work that survives no clean end."""


@contextmanager
def undone_on_leaving(undo: Callable[[], object]) -> Iterator[None]:
    """`leave` within the block calls `undo`, which must wait for no lock: it runs in a signal's handler."""
    key = object()
    _UNDO[key] = undo
    try:
        yield
    finally:
        del _UNDO[key]


@contextmanager
def temporary_folder(prefix: str) -> Iterator[str]:
    """A new folder, which is gone with all that is in it when the block is left, or the process."""
    with (
        tempfile.TemporaryDirectory(prefix=prefix) as folder,
        undone_on_leaving(partial(shutil.rmtree, folder, ignore_errors=True)),
    ):
        yield folder


def ends_at_once() -> None:
    """From here on there are threads in this process that a clean end may let abort it."""
    _DIRTY.append(True)


def survives_a_clean_end() -> bool:
    """Whether `ends_at_once` was never called."""
    return not _DIRTY


def leave(code: int) -> NoReturn:
    """End the process now, without half a file or a process of ours left behind."""
    for undo in reversed(list(_UNDO.values())):
        with suppress(Exception):
            undo()
    os._exit(code)
