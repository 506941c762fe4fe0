"""One run of a command: its JSON, or what went wrong. A run that takes too long, or is stopped, is killed."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.processes.exit import undone_on_leaving
from gapless.processes.workers import kill_group, own_group
from gapless.sweeps.measured.measure_file import Metric

__all__ = ["Stopped", "measured"]

_POLL_S = 0.1
_MOST_SHOWN = 200


class Stopped(Exception):  # noqa: N818  # not an error: somebody has said stop
    """The run was killed because the caller wants no more."""


@dataclass(frozen=True)
class _Ended:
    code: int
    out: str
    err: str


def measured(
    words: Sequence[str], metrics: Sequence[Metric], time_out_s: float, stop: threading.Event
) -> NDArray[np.float64] | str:
    """Run a command; returns its metrics, or why there are none. Raises `Stopped` once `stop` is set."""
    try:
        ended = _ended(words, time_out_s, stop)
    except OSError as error:
        return f"cannot run {words[0]!r}: {error.strerror or error}"
    if ended is None:
        return f"it took longer than time_out_s, {time_out_s:g} s, and was killed"
    if ended.code != 0:
        why = _last_line(ended.err)[:_MOST_SHOWN] or "nothing on stderr says why"
        return f"it ended with exit code {ended.code}: {why}"
    try:
        data = _json_of(ended.out)
        return np.array([metric.of(data) for metric in metrics])
    except InputError as error:
        return str(error)


def _ended(words: Sequence[str], time_out_s: float, stop: threading.Event) -> _Ended | None:
    """How the process ended, None for not in time."""
    end_s = time.monotonic() + time_out_s
    pipe = subprocess.PIPE
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, **own_group())
    with undone_on_leaving(lambda: kill_group(process)):
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=min(_POLL_S, max(end_s - time.monotonic(), 0.0)))
                    return _Ended(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
                except subprocess.TimeoutExpired:
                    if stop.is_set():
                        raise Stopped from None
                    if time.monotonic() >= end_s:
                        return None
        finally:
            if process.returncode is None:
                kill_group(process)
                process.communicate()


def _json_of(text: str) -> object:
    """The JSON that was printed: all of it, or the last line below whatever else a program prints."""
    last = _last_line(text)
    for part in (text, last):
        try:
            return json.loads(part)
        except (ValueError, RecursionError):
            continue
    raise InputError(f"must print JSON, at least as its last line, got {last[:_MOST_SHOWN]!r}")


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
