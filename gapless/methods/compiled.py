"""Loops as machine code where numba is installed, the extra `fast`.

Whoever uses one has the same with arrays, which gives the same results: a plan doesn't depend on what is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any, TypeVar, cast

__all__ = ["compilation_reported", "compiled", "is_numba_here"]

_Loop = TypeVar("_Loop", bound=Callable[..., object])
_report: ContextVar[Callable[[str], None] | None] = ContextVar("_report", default=None)


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

    _listen()
    try:
        return cast("_Loop", numba.njit(cache=True, nogil=True)(loop))
    except RuntimeError:
        return cast("_Loop", numba.njit(nogil=True)(loop))


@contextmanager
def compilation_reported(report: Callable[[str], None]) -> Iterator[None]:
    """Call `report` with a line for people whenever a loop of this thread is about to be compiled, which takes seconds;
    not where its machine code is at hand.
    """
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


@cache
def _listen() -> None:
    """Numba reports to it when it compiles."""
    from numba.core import event

    class Compilation(event.Listener):  # type: ignore[misc]
        def on_start(self, event: Any) -> None:
            loop, report = event.data["dispatcher"], _report.get()
            if report is not None and not loop.py_func.__module__.startswith("numba."):  # these are parts of ours
                where = loop.stats.cache_path
                report(f"compiling loops ({'in each process anew' if where is None else f'once; kept in {where}'})")

        def on_end(self, event: Any) -> None: ...

    event.register("numba:compile", Compilation())
