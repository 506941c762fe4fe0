"""Emulated time: a wire and a computation that take what a profile says, so that runs on a busy machine compare.

What is computed and sent is real. Each thread then sleeps until the instant at which it would have been through, so
that sleeping too long in one place is made up for in the next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from gapless.profiles.gradients.communication import FlatNetwork, all_gather_cost, all_reduce_cost

__all__ = ["Clock", "Sending", "Wire", "sleep_until"]


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


class Wire:
    """A network that each collective takes, one at a time and with nothing beside it: the rank sleeps until it would
    have been through. `sent_s`: what it took in all.
    """

    def __init__(self, network: FlatNetwork) -> None:
        self._costs = {
            "all_reduce": all_reduce_cost(network), "all_gather": all_gather_cost(network),
            "all_to_all": all_gather_cost(network, ratio=network.ranks),
        }  # fmt: skip
        self.sent_s = 0.0

    def take(self, collective: str, size_bytes: int, begin_s: float) -> None:
        """A collective of so many bytes of a rank that began at an instant by `time.monotonic`."""
        duration_s = float(self._costs[collective](size_bytes))
        self.sent_s += duration_s
        sleep_until(begin_s + duration_s)


def sleep_until(at_s: float) -> None:
    """Until an instant by `time.monotonic`; not at all where that is over."""
    left_s = at_s - time.monotonic()
    if left_s > 0:
        time.sleep(left_s)
