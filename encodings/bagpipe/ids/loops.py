"""Whether loops are compiled: where numba is installed (the extra `fast`) and there is enough to do; else arrays do it.

Both give the same results, so that a plan doesn't depend on what is installed.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

from gapless.methods.compiled import is_numba_here as _is_installed

__all__ = ["LEAST_WORK", "ids_loops", "message_loops", "partition_loops", "private_loops"]

LEAST_WORK = 2**17
"""Entries of an array from which on it pays to load the compiled loops, which takes about a second once a process."""


def ids_loops(work: int) -> ModuleType | None:
    """The compiled loops over ids, for so many entries to go through; None where arrays are to be used."""
    return _loops("gapless.encodings.bagpipe.ids.compiled", work)


def partition_loops(work: int) -> ModuleType | None:
    """The compiled loops of partitions, in the same way."""
    return _loops("gapless.encodings.bagpipe.partition.compiled", work)


def message_loops(work: int) -> ModuleType | None:
    """The compiled loops of the objective `time`, in the same way."""
    return _loops("gapless.encodings.bagpipe.partition.compiled_messages", work)


def private_loops(work: int) -> ModuleType | None:
    """The compiled loops of the search for private rows, in the same way."""
    return _loops("gapless.encodings.bagpipe.partition.private.compiled", work)


def _loops(module: str, work: int) -> ModuleType | None:
    return import_module(module) if (work >= LEAST_WORK or module in sys.modules) and _is_installed() else None
