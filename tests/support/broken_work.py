"""Work for a process of its own, which can import what is here by name."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

from gapless.errors import InputError


def breaks_at_one(stop: threading.Event, place: int) -> int:
    """Ten times the place; `KeyError` at place 1."""
    if place == 1:
        raise KeyError("no such thing")
    return 10 * place


def sleeps_then_sends(stop: threading.Event, sleep_s: float, size_bytes: int) -> bytes:
    """Zeros, after a while."""
    time.sleep(sleep_s)
    return bytes(size_bytes)


def is_deaf(stop: threading.Event) -> None:
    """Work that listens to nobody."""
    time.sleep(600)


def waits_for_stop(stop: threading.Event) -> str:
    """What there is once somebody says stop."""
    stop.wait(600)
    return "stopped"


def prints(number: int) -> int:
    """Twice the number, with a word on stdout."""
    print("a library's banner", flush=True)
    os.system("echo from a program of its own")
    return 2 * number


def sleeps(seconds: float, child_pid_path: str = "") -> None:
    """A call that nothing interrupts, beside a process that it has started."""
    if child_pid_path:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with open(child_pid_path, "w", encoding="ascii") as file:
            file.write(f"{child.pid}\n")
    time.sleep(seconds)


def raises(kind: str) -> object:
    """The kinds of trouble that a call can have."""
    if kind == "input":
        raise InputError("--size: must be > 0, got 0")
    if kind == "memory":
        raise MemoryError
    if kind == "other":
        raise KeyError("no such thing")
    if kind == "exit":
        os._exit(7)
    return threading.Lock()  # can't be pickled
