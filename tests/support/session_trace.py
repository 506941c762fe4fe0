"""A trace with sessions: users who come back after minutes, and keep to items that they have seen."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gapless.profiles.traces.power_law import PowerLaw
from gapless.profiles.traces.trace import BLOCK_EXAMPLES, Block, Trace

__all__ = ["session_trace"]

_CATEGORIES, _SEGMENTS, _DEVICES = 500, 200, 20
_INTERESTS = 8
"""Items of interest of a user."""
_OTHERS = 0.2
"""Share of impressions of any item."""
_PER_HOUR = 2**20
"""Examples in an hour."""


def session_trace(
    examples: int, seed: int = 0, active_users: int = 20_000, impressions: int = 20, items: int = 200_000
) -> Trace:
    """Users who come back after minutes, and keep to items that they have seen.

    At any time a number of users are active. An example is an impression of an item for one of them, drawn at random:
    so a user's impressions lie as many examples apart, on average, as users are active. With a small probability the
    user leaves after it, and a new one takes the place. Each user has a few items of interest, drawn with p ~ 1 / rank;
    most impressions show one of them, the others any item. The tables are the user, the item, its category (items of
    one remainder), the user's segment, the hour, and the device. `impressions`: of one user, on average.
    """
    popular = PowerLaw(items, 1.0).sampler()

    def blocks() -> Iterator[Block]:
        chance = np.random.Generator(np.random.SFC64([seed]))
        user = np.arange(active_users)
        interests = popular.draw(active_users * _INTERESTS, chance).reshape(active_users, _INTERESTS)
        known = active_users
        for start in range(0, examples, BLOCK_EXAMPLES):
            place = chance.integers(0, active_users, BLOCK_EXAMPLES)
            shown = interests[place, chance.integers(0, _INTERESTS, BLOCK_EXAMPLES)]
            is_other = chance.random(BLOCK_EXAMPLES) < _OTHERS
            item = np.where(is_other, popular.draw(BLOCK_EXAMPLES, chance), shown)
            who = user[place]
            hour = (start + np.arange(BLOCK_EXAMPLES)) // _PER_HOUR
            columns = (who, item, item % _CATEGORIES, who * 2654435761 % _SEGMENTS, hour, who * 40503 % _DEVICES)
            yield np.stack(columns, axis=1)[: examples - start]
            leaving = np.unique(place[chance.random(BLOCK_EXAMPLES) < 1 / impressions])
            user[leaving] = known + np.arange(len(leaving))
            known += len(leaving)
            fresh = popular.draw(len(leaving) * _INTERESTS, chance)
            interests[leaving] = fresh.reshape(len(leaving), _INTERESTS)

    names = ("user", "item", "category", "segment", "hour", "device")
    return Trace(f"sessions of {impressions}", names, blocks, examples=examples)
