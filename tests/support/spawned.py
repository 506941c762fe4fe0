"""The command line in a process of its own, which signals can reach."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

ROOT = Path(__file__).parents[2]
PATIENCE_S = 600.0
"""How long a process may take to end: what is still there by then hangs."""

# As in the background of a script, or below nohup: the commands would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def spawn(
    *arguments: str,
    stdout: int | IO[str] = subprocess.PIPE,
    stderr: int | IO[str] = subprocess.PIPE,
    environment: Mapping[str, str] = os.environ,
) -> subprocess.Popen[str]:
    """`gapless` with these arguments; what it prints goes into pipes, or into open files."""
    environment = {**environment, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gapless", *arguments]
    return subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True, env=environment, start_new_session=True)


@dataclass(frozen=True)
class Ended:
    """How a command has ended."""

    code: int
    out: str
    err: str


def ended(process: subprocess.Popen[str]) -> Ended:
    """The end of a command, which must come soon."""
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"{process.args} has not ended {PATIENCE_S:g} s after a signal")
    return Ended(process.returncode, out, err)


def hears(process: subprocess.Popen[str]) -> bool:
    """Wait until the command's handlers are there (Linux); whether it still runs then."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
        caught = int(status.partition("SigCgt:")[2].split()[0], 16)
        if caught >> (signal.SIGTERM - 1) & 1:
            return True
        time.sleep(0.001)
    return False


def signalled(number: int, after_s: float, *arguments: str) -> Ended:
    """A command that gets a signal so many seconds after its handlers are there, unless it has ended by then."""
    process = spawn(*arguments)
    if hears(process):
        time.sleep(after_s)
        os.killpg(process.pid, number)
    return ended(process)


def goes(pid: int) -> bool:
    """Whether a process that is not ours to wait for is gone soon."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False)
        if not found.stdout.strip() or found.stdout.startswith("Z"):
            return True
        time.sleep(0.02)
    return False


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in found.stdout.split()]
