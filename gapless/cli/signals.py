"""What INT, TERM and HUP do: a command that solves is asked to stop, any other leaves at once, each with one line.

Nothing but what the interpreter has loaded anyway is imported here, not even `signal` with its enums, so that a signal
finds its handler from the first moment on.
"""

import _signal as signal  # type: ignore[import-not-found]
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from types import FrameType

__all__ = ["EXIT_SIGNAL", "Listening", "is_over", "take_over"]

EXIT_SIGNAL = 128
"""What a shell adds to the number of the signal that has ended a process."""

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]

_listening: "list[Listening]" = []
"""Who is asked to stop: the last one."""


def take_over() -> None:
    """From here on the process is this command's. A signal that is ignored, as HUP below nohup, stays so."""
    for number in _SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _leave_or_stop)


def is_over() -> None:
    """All is said and written: a signal has nothing left to stop."""
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class Listening:
    """Within the block, the first signal sets `stop` and says `line`; the second leaves at once."""

    def __init__(self, stop: "threading.Event", line: str) -> None:
        self.stop, self.line = stop, line

    def __enter__(self) -> None:
        _listening.append(self)

    def __exit__(self, *error: object) -> None:
        _listening.remove(self)


def _leave_or_stop(number: int, frame: "FrameType | None") -> None:
    listener = _listening[-1] if _listening else None
    if listener is not None and not listener.stop.is_set():
        listener.stop.set()
        again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
        _say(f"gapless: {listener.line}; {again} leaves at once")
        return
    _say("gapless: interrupted; no half-written file is left")
    leave = getattr(
        sys.modules.get("gapless.processes.exit"), "leave", os._exit
    )  # what isn't loaded has left nothing to undo
    leave(EXIT_SIGNAL + number)


def _say(line: str) -> None:
    """A line on stderr; where the terminal is gone, whatever is printed from now on goes nowhere."""
    over_progress = "\r\x1b[2K" if os.isatty(2) else ""
    try:
        os.write(2, f"{over_progress}{line}\n".encode())
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if os.path.sameopenfile(1, 2):
            os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
