"""Where the states of an optimiser live, and which gradients wait for their update on the host.

States of a backward node's parameters are on the device all the time (`RESIDENT`), leave it when the step begins and
are back for their update (`VISITS` the host), or live on the `HOST` and come for their update only. A step ends as it
begins, so that the next one can follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gapless.profiles.training.optimizer import Updates

__all__ = ["HOST", "RESIDENT", "VISITS", "Trip", "Trips"]

RESIDENT, VISITS, HOST = range(3)


@dataclass(frozen=True)
class Trip:
    """States or gradients that travel: which (numbered as in `Copy`), and of which backward node.

    `made`: the stage after which they may leave, 0 for the step's start; None for what lives on the host. `update`: the
    number of their update among those at the end of the step, None for one that is part of the backward node.
    """

    node: int
    size_bytes: int
    backward: int
    made: int | None
    update: int | None


@dataclass(frozen=True)
class Trips:
    """What lives where: `states[b]` is one of `RESIDENT`, `VISITS`, `HOST`; `gradients[b]`: whether they travel.

    Gradients that are applied in the backward pass never travel.
    """

    updates: Updates
    states: tuple[int, ...]
    gradients: tuple[bool, ...]

    @classmethod
    def at_rest(cls, updates: Updates) -> Trips:
        """Nothing travels."""
        count = len(updates.states_bytes)
        return cls(updates, (RESIDENT,) * count, (False,) * count)

    @property
    def resident_bytes(self) -> int:
        """The states that never leave the device."""
        pairs = zip(self.states, self.updates.states_bytes, strict=True)
        return sum(size for where, size in pairs if where == RESIDENT)

    @property
    def update_count(self) -> int:
        """The updates at the end of the step that something travels for."""
        return 0 if self.updates.are_applied else len(self._moving)

    @cached_property
    def _moving(self) -> dict[int, int]:
        """The backward nodes of whose states or gradients some travel, numbered in order."""
        moving = [b for b, size in enumerate(self.updates.states_bytes) if (self.states[b] and size) or self._goes(b)]
        return {b: number for number, b in enumerate(moving)}

    def _goes(self, backward: int) -> bool:
        return self.gradients[backward] and not self.updates.are_applied and self.updates.gradients_bytes[backward] > 0

    def trips(self, forward: int) -> list[Trip]:
        """All that travel, in a graph of so many forward nodes."""
        found, count = list[Trip](), len(self.states)
        for b, number in self._moving.items():
            update = None if self.updates.are_applied else number
            if self.states[b] and self.updates.states_bytes[b]:
                made = None if self.states[b] == HOST else 0
                found.append(Trip(forward + b, self.updates.states_bytes[b], b, made, update))
            if self._goes(b):
                size_bytes = self.updates.gradients_bytes[b]
                found.append(Trip(forward + count + b, size_bytes, b, b + 1, update))
        return found
