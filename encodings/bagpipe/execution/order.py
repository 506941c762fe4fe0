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
    **dict.fromkeys(("peer_fetch", "sync_now", "sync_later"), "peers"),
    **dict.fromkeys(("write_early", "relay_write", "write_late"), "up"),
    **dict.fromkeys(("prefetch", "relay_fetch"), "down"),
}
"""Of servers that have a network of their own, which carries both directions at once."""
_OF_BATCH = ("peer_fetch", "sync_now", "write_early", "relay_write", "sync_later", "write_late")
"""What goes on after one batch, before the same of the next one. What servers send stands where its time is."""


def lanes_of(times: Times, design: str, placement: str) -> dict[str, list[Task]]:
    """The tasks of each network, in order; where all take turns on one network, it is `peers`.

    No task stands behind one that waits for a later batch.
    """
    ordered = [*_from_servers(times), *_after_batches(times, design)]
    lanes: dict[str, list[Task]] = {"peers": [], "up": [], "down": []}
    for _, task in sorted(ordered, key=lambda each: each[0]):
        lanes[_LANES[task[0]] if placement == "apart" else "peers"].append(task)
    return lanes


def _from_servers(times: Times) -> Iterator[tuple[float, Task]]:
    for batch in range(len(times.forward.start_s)):
        yield float(times.prefetch.start_s[batch]), ("prefetch", batch)
    for batch in np.flatnonzero(times.is_relayed).tolist():
        yield float(times.relay_fetch.start_s[batch]), ("relay_fetch", batch)


def _after_batches(times: Times, design: str) -> Iterator[tuple[float, Task]]:
    """Each no earlier than those before it; what takes no time doesn't put off those behind it."""
    batches, latest_s = len(times.forward.start_s), 0.0
    for batch in range(batches):
        activities = list(_OF_BATCH)
        if batch == batches - 1 and times.sync_later.start_s[batch] < times.sync_now.start_s[batch]:
            activities.remove("sync_later")
            activities.insert(activities.index("sync_now"), "sync_later")
        if LAYOUTS[design] not in LENDING:
            activities.remove("peer_fetch")
        if not times.is_relayed[batch]:
            activities.remove("relay_write")
        for activity in activities:
            span = times.forward if activity == "peer_fetch" else getattr(times, activity)
            if span.end_s[batch] > span.start_s[batch]:
                latest_s = max(latest_s, float(span.start_s[batch]))
            yield latest_s, (activity, batch)
