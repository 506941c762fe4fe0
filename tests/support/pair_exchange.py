"""The smallest problem of a made-up system: two ranks exchange a chunk each, in as long as somebody says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gapless import SolveOptions
from gapless.ir.collective import allgather
from gapless.ir.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.topologies.topology import Link, Topology

PAIR = Topology("pair", (0, 0), (Link(0, 1, 1.0, 0.0), Link(1, 0, 1.0, 0.0)))


@dataclass(frozen=True)
class MadeUp:
    """What recipe and result ask of every problem."""

    @property
    def system(self) -> str:
        return "test"

    @property
    def default_options(self) -> SolveOptions:
        return SolveOptions()

    @property
    def description(self) -> dict[str, Any]:
        return {}


def exchange(duration_s: float) -> Schedule:
    """Both transfers at once, in so many seconds each; they take at least one."""
    events = [Event(EventKind.TRANSFER, 0.0, duration_s, link, moves=(link,)) for link in (0, 1)]
    return schedule_from_events(allgather(2).graph(1), PAIR, events)
