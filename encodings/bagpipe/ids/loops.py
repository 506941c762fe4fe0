"""Whether loops are compiled: where numba is installed (the extra `fast`) and there is enough to do; else arrays do it.

Both give the same results, so that a plan doesn't depend on what is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TypeVar, cast

__all__ = ["LEAST_WORK", "compiled", "ids_loops", "partition_loops"]

_Loop = TypeVar("_Loop", bound=Callable[..., object])

LEAST_WORK = 2**17
"""Entries of an array from which on it pays to load the compiled loops, which takes about a second once a process."""


def ids_loops(work: int) -> ModuleType | None:
    """The compiled loops over ids, for so many entries to go through; None where arrays are to be used."""
    return _loops("gapless.encodings.bagpipe.ids.compiled", work)


def partition_loops(work: int) -> ModuleType | None:
    """The compiled loops of partitions, in the same way."""
    return _loops("gapless.encodings.bagpipe.partition.compiled", work)


def _loops(module: str, work: int) -> ModuleType | None:
    return import_module(module) if (work >= LEAST_WORK or module in sys.modules) and _is_installed() else None


@cache
def _is_installed() -> bool:
    """Whether numba loads: an old one refuses a numpy that is newer than it knows."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def compiled(loop: _Loop) -> _Loop:
    """The loop as machine code, which is made on its first use with arrays of these types.

    It is kept beside the loop's file, or in the user's cache folder where that can't be written to; where neither can,
    each process makes it anew.
    """
    import numba

    try:
        return cast("_Loop", numba.njit(cache=True)(loop))
    except RuntimeError:
        return cast("_Loop", numba.njit(loop))
