"""Order: which activity of which batch each network carries next, as the times of a run say.

Exchanges are collective: all processes must begin those on one network in one order. Activities that a run's times put
first go first; what each waits for besides is in `gapless.encodings.bagpipe.training`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.question import LAYOUTS

__all__ = ["LENDING", "POOLING", "Task", "lanes_of"]

Task = tuple[str, int]
"""An activity, and its batch."""

LENDING, POOLING = ("partitioned", "sharded"), "sharded"
"""Layouts in which trainers get rows before each forward pass; and sums of rows."""
_LANES = {
    "peers": ("peer_fetch", "sync_now", "sync_later"),
    "up": ("write_early", "relay_write", "write_late"),
    "down": ("prefetch", "relay_fetch"),
}
"""Of servers that have a network of their own, which carries both directions at once."""


def lanes_of(times: Times, design: str, placement: str, start: int = 0) -> dict[str, list[Task]]:
    """The tasks of each network, in order, from batch `start` on; where all take turns on one network, it is `peers`.

    Batches whose rows are sent have no relay.
    """
    ordered = sorted(_tasks(times, design, start))
    lanes: dict[str, list[Task]] = {"peers": [], "up": [], "down": []}
    for _, _, _, activity, batch in ordered:
        lane = next(name for name, activities in _LANES.items() if activity in activities)
        lanes[lane if placement == "apart" else "peers"].append((activity, batch))
    return lanes


def _tasks(times: Times, design: str, start: int) -> Iterator[tuple[float, int, int, str, int]]:
    """When each begins, and what decides where several begin at once."""
    batches, is_lending = len(times.forward.start_s), LAYOUTS[design] in LENDING
    relayed = times.is_relayed
    place = 0
    for activities in _LANES.values():
        for activity in activities:
            span = times.forward if activity == "peer_fetch" else getattr(times, activity)
            place += 1
            for batch in range(start, batches):
                is_there = bool(relayed[batch]) if activity.startswith("relay") else True
                if is_there and (activity != "peer_fetch" or is_lending):
                    yield float(np.float64(span.start_s[batch])), batch, place, activity, batch
