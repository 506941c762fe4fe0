"""Overtime: a solve that goes on beyond its time limit, or after it was asked to stop, ends with the best plan so far.

Systems look at their deadline between steps. What a step of a large question takes between two looks is cut short here:
an exception of its own kind is raised in the solving thread, as soon as there is a plan to end with.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from gapless.options import Deadline

__all__ = ["PATIENCE_S", "OutOfTimeError", "Overtime"]

PATIENCE_S = 0.3
"""How long a solve may go on when its time is up: most steps end by themselves in that time, with a better plan."""

_POLL_S = 0.05
"""How long to wait before looking again; the end of the solve wakes the thread at once."""

_POLLS_TO_END = 20
"""How many polls a solve that is cut short has for what it does at its end, such as ending its processes."""

_STEPS = 100
"""Python looks for such exceptions where loops turn. Its C API can take one back, but leaves a flag set for ever, with
which CPython 3.11 turns round in circles under a profiler."""

_IMPORT = "<frozen importlib"
"""What the frames of an import are called: an extension module that is half loaded can't be loaded again."""

_FINALIZER = "__del__"
"""Errors of finalizers, and of what is called back by the garbage collector, are printed and then ignored."""


class OutOfTimeError(BaseException):
    """Time is up; no handler of errors takes it for one."""


class Overtime:
    """Within the block, and in the thread that enters it, time ends: what is left undone then is left by the block.

    `has_plan` says whether there is a plan to end with; until then, work goes on. `has_struck`: whether the block was
    cut short.
    """

    def __init__(self, deadline: Deadline, has_plan: Callable[[], bool]) -> None:
        self.has_struck = False
        self._deadline, self._has_plan = deadline, has_plan
        self._kind = type("OutOfTimeError", (OutOfTimeError,), {})  # its own: blocks may lie within each other
        self._lock, self._is_over = threading.Lock(), threading.Event()

    def __enter__(self) -> Overtime:  # noqa: PYI034  nothing is derived from it
        self._thread, self._collects = threading.get_ident(), gc.isenabled()
        self._block: FrameType | None = sys._getframe(1)  # noqa: SLF001  what called the block is no concern of it
        threading.Thread(target=self._watch, name="gapless-overtime", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        while True:
            try:
                with self._lock:
                    self._is_over.set()
                for _ in range(_STEPS):  # what was raised and has not arrived yet arrives here
                    pass
                break
            except OutOfTimeError:
                continue
        self._block = None
        if self._collects:
            gc.enable()
        self.has_struck = kind is self._kind
        return self.has_struck

    def _watch(self) -> None:
        """Wait until time is up and a plan is there, then raise, again where nobody has ended for it."""
        late_polls = 0
        while not self._is_over.wait(_POLL_S):
            late_polls = late_polls + 1 if self._deadline.is_past else 0
            if late_polls * _POLL_S >= PATIENCE_S and self._has_plan():
                with self._lock:
                    frames = sys._current_frames()  # noqa: SLF001  where else a thread is, nothing says
                    if not self._is_over.is_set() and _can_be_left(frames.get(self._thread), self._block):
                        gc.disable()  # what it calls back would take what is raised, if it began only now
                        _raise_in(self._thread, self._kind)
                        late_polls = -_POLLS_TO_END


def _raise_in(thread: int, kind: type[BaseException]) -> None:
    """Raise an exception of this kind in a thread, at its next step in Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))


def _can_be_left(frame: FrameType | None, block: FrameType | None) -> bool:
    """Whether an error that is raised in `frame` reaches `block`, and leaves nothing half done that can't be."""
    called_back = {id(getattr(function, "__code__", None)) for function in gc.callbacks}
    while frame is not None and frame is not block:
        code = frame.f_code
        if code.co_name == _FINALIZER or id(code) in called_back or code.co_filename.startswith(_IMPORT):
            return False
        frame = frame.f_back
    return True
