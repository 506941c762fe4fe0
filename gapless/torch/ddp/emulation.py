"""Emulated time: a wire and a computation that take what a profile says, so that runs on a busy machine compare.

What is computed and sent is real. Each thread then sleeps until the instant at which it would have been through, so
that sleeping too long in one place is made up for in the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

__all__ = ["Clock", "Sending", "sleep_until"]


@dataclass(frozen=True)
class Sending:
    """How a bucket is sent: its mode, and what each part takes in emulated time, None where it takes what it takes."""

    mode: str
    encode_s: float | None = None
    send_s: float | None = None
    decode_s: float | None = None


class Clock:
    """The instant, by `time.monotonic`, up to which an emulated compute stream is busy."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def start(self, at_s: float) -> None:
        """A step begins."""
        self.at_s = at_s

    def spend(self, duration_s: float) -> None:
        """Compute for so long."""
        self.at_s += duration_s
        sleep_until(self.at_s)


def sleep_until(at_s: float) -> None:
    """Until an instant by `time.monotonic`; not at all where that is over."""
    left_s = at_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
