"""SwitchGroup: ranks behind switches that add up and multicast (NVLink SHARP, SHARP on InfiniBand), and their file."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from gapless.errors import InputError
from gapless.io.record import Record
from gapless.units import BYTES_PER_MB, S_PER_US

__all__ = ["Reduction", "SwitchGroup", "read_reduction"]


@dataclass(frozen=True)
class Reduction:
    """What a switch does besides passing on. Raises `InputError` naming the field.

    `multicasts`: one rank's data to all others. `reduces`: the sum of all ranks' data to one of them.
    `reduces_to_all`: that sum to all of them. Each takes `alpha_s + beta_s_per_byte * n`, where n bytes pass the port
    that carries most. With `loopback` the switch also passes the own data of the rank that asks: of a multicast down to
    it, of a reduction up from it. With `subsets`, some of the ranks may do without the others. `slots`: operations that
    may go on at once, `groups`: sets of ranks that a plan may use, None for no limit.
    """

    reduces: bool = True
    multicasts: bool = True
    reduces_to_all: bool = False
    alpha_s: float = 0.0
    beta_s_per_byte: float = 0.0
    slots: int | None = None
    loopback: bool = False
    subsets: bool = False
    groups: int | None = None

    def __post_init__(self) -> None:
        if not (self.reduces or self.multicasts or self.reduces_to_all):
            raise InputError("reduction: must have one of reduces, multicasts, reduces_to_all, got none")
        for field in ("alpha_s", "beta_s_per_byte"):
            cost = getattr(self, field)
            if not (cost >= 0 and math.isfinite(cost)):
                raise InputError(f"reduction: {field} must be finite and >= 0, got {cost}")
        for field in ("slots", "groups"):
            limit = getattr(self, field)
            if limit is not None and limit < 1:
                raise InputError(f"reduction: {field} must be >= 1, got {limit}")


@dataclass(frozen=True)
class SwitchGroup:
    """The `ranks` behind a switch that does what `reduction` says.

    An operation is a bundle of transfers over the links between its ranks, which start and end together. It holds all
    that they hold, each once. Operations of a group that start and end together share its ports: such a step takes as
    long as the port through which most bytes pass.
    `ports[k]`: the resources that rank `ranks[k]` sends and receives through; none where it is empty.
    """

    ranks: tuple[int, ...]
    reduction: Reduction
    ports: tuple[tuple[int, int], ...] = ()

    def check(self, devices: int, resources: int) -> None:
        """Raises `InputError` where ranks or ports are none of a topology's."""
        if len(set(self.ranks)) != len(self.ranks) or len(self.ranks) < 2:
            raise InputError(f"switch group: ranks must be at least two, all different, got {list(self.ranks)}")
        for rank in self.ranks:
            if not 0 <= rank < devices:
                raise InputError(f"switch group: ranks must be in 0..{devices - 1}, got {rank}")
        if self.ports and len(self.ports) != len(self.ranks):
            raise InputError(f"switch group: ports must be {len(self.ranks)} pairs or none, got {len(self.ports)}")
        for port in (number for pair in self.ports for number in pair):
            if not 0 <= port < resources:
                raise InputError(f"switch group: ports must hold resources in 0..{resources - 1}, got {port}")


def read_reduction(entry: Record | None, costs: tuple[float, float]) -> Reduction | None:
    """What the field `reduction` of a switch or a fabric says, None without it; `costs`: those of the links there."""
    if entry is None:
        return None
    kinds = {name: entry.boolean(name, default=name != "reduces_to_all") for name in _KINDS}
    alpha_us = entry.number("alpha_us", minimum=0, default=costs[0] / S_PER_US)
    beta_us_per_mb = entry.number("beta_us_per_mb", minimum=0, default=costs[1] * BYTES_PER_MB / S_PER_US)
    slots, groups = (entry.integer(name, 1, default=None) for name in ("slots", "groups"))
    loopback, subsets = (entry.boolean(name, default=False) for name in ("loopback", "subsets"))
    entry.close()
    try:
        found = Reduction(**kinds, slots=slots, loopback=loopback, subsets=subsets, groups=groups)
    except InputError as error:  # it knows its fields, not the file
        raise InputError(f"{entry.where}: {error}") from None
    return replace(found, alpha_s=alpha_us * S_PER_US, beta_s_per_byte=beta_us_per_mb * S_PER_US / BYTES_PER_MB)


_KINDS = ("reduces", "multicasts", "reduces_to_all")
