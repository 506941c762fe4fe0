"""Congestion: the bandwidth of a port falls with the number of connections through it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.topologies.links import Links

__all__ = ["Congestion", "Slowdown", "read_slowdown", "slowdown_of"]


@dataclass(frozen=True)
class Slowdown:
    """A table: with `connections[k]` through a port, beta is `slowdown[k]` times the link's.

    It is linear between its points and constant beyond them. Raises `InputError` where the connections don't rise from
    1 or more, or a slowdown is below 1, infinite or falls: so a bound that ignores congestion stays one.
    """

    connections: tuple[int, ...]
    slowdown: tuple[float, ...]

    def __post_init__(self) -> None:
        count, numbers = len(self.connections), (0, *self.connections)
        if not count or any(one >= other for one, other in pairwise(numbers)):
            got = list(self.connections)
            raise InputError(f"connections: must be at least one number, each >= 1 and rising, got {got}")
        if any(not one <= other < math.inf for one, other in pairwise((1.0, *self.slowdown))):
            raise InputError(f"slowdown: must be finite, >= 1 and must not fall, got {list(self.slowdown)}")
        if len(self.slowdown) != count:
            got_count = len(self.slowdown)
            raise InputError(f"slowdown: must have {count} numbers, as connections has, got {got_count}")

    def at(self, connections: NDArray[np.int64]) -> NDArray[np.float64]:
        """What beta is multiplied by with so many connections, float."""
        return np.asarray(np.interp(connections, self.connections, self.slowdown))


@dataclass(frozen=True)
class Congestion:
    """A table, and the ports that it is for: each a set of resources, of which a link holds at most one.

    That is a side of a switch or of a NIC, or the lanes that a sketch has split it into.
    """

    ports: tuple[tuple[int, ...], ...]
    table: Slowdown


def read_slowdown(entry: Record) -> Slowdown:
    """The table of a file; its two columns are the last fields of the entry. Raises `InputError` with the field."""
    connections = entry.integers("connections", 1)
    factors = tuple(entry.real(f"slowdown[{k}]", value, 1) for k, value in enumerate(entry.array("slowdown")))
    entry.close()
    try:
        return Slowdown(connections, factors)
    except InputError as error:  # it knows its fields, not the file
        raise InputError(f"{entry.where}: {error}") from None


def slowdown_of(
    congestion: Sequence[Congestion], links: Links, resource_count: int, used: NDArray[np.int64]
) -> NDArray[np.float64]:
    """What each link's beta is multiplied by in a plan that uses some of the links, float of shape (links,).

    The connections of a port are the links in use that hold it. Of two ports that a link holds, the slower sets the
    pace.
    """
    factor = np.ones(len(links))
    is_used = np.zeros(len(links), dtype=np.bool_)
    is_used[used] = True
    holder = np.repeat(np.arange(len(links)), np.diff(links.held_start))
    for one in congestion:
        port_of = np.full(resource_count, -1)
        for number, resources in enumerate(one.ports):
            port_of[list(resources)] = number
        known = port_of[links.held] >= 0
        link, port = holder[known], port_of[links.held[known]]
        connections = np.bincount(port[is_used[link]], minlength=len(one.ports))
        np.maximum.at(factor, link, one.table.at(connections)[port])
    return factor
