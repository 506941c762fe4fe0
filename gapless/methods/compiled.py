"""Loops as machine code where numba is installed, the extra `fast`.

Whoever uses one has the same with arrays, which gives the same results: a plan doesn't depend on what is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TypeVar, cast

__all__ = ["compiled", "is_numba_here"]

_Loop = TypeVar("_Loop", bound=Callable[..., object])


@cache
def is_numba_here() -> bool:
    """Whether numba loads: an old one refuses a numpy that is newer than it knows."""
    try:
        import_module("numba")
    except ImportError:
        return False
    return True


def compiled(loop: _Loop) -> _Loop:
    """The loop as machine code, which is made on its first use with arrays of these types.

    It is kept beside the loop's file, or in the user's cache folder where that can't be written to; where neither can,
    each process makes it anew. Other threads run while it does.
    """
    import numba

    try:
        return cast("_Loop", numba.njit(cache=True, nogil=True)(loop))
    except RuntimeError:
        return cast("_Loop", numba.njit(nogil=True)(loop))
