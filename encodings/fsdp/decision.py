"""What a plan of sharded training decides: the collectives in their order, and what holds back backward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from gapless.decision import Decision
from gapless.encodings.fsdp.step.costs import Collective, Kind, Order
from gapless.errors import InputError
from gapless.io.typed import Stored

__all__ = ["ShardedDecision"]

_KINDS = (Kind.FORWARD, Kind.BACKWARD, Kind.SCATTER)


@dataclass(frozen=True)
class ShardedDecision(Decision):
    """`layers`: their names. `collectives`: see `Collective`, in the order in which they hold the network. `holds[l]`:
    how many of them are over before the backward pass of layer l may start.

    Raises `InputError` for a kind that there isn't, and for layers that don't exist.
    """

    layers: tuple[str, ...]
    collectives: tuple[Collective, ...]
    holds: Annotated[tuple[int, ...], Stored(0)]

    def __post_init__(self) -> None:
        count = len(self.layers)
        if len(self.holds) != count:
            raise InputError(f"holds: must be one for each of {count} layers, got {len(self.holds)}")
        for number, each in enumerate(self.collectives):
            where = f"collectives[{number}]"
            if each.kind not in _KINDS:
                raise InputError(f"{where}: kind must be one of {', '.join(_KINDS)}, got {each.kind!r}")
            if not 0 <= each.first <= each.last < count:
                raise InputError(f"{where}: layers must be in 0..{count - 1}, got {each.first} to {each.last}")

    @property
    def order(self) -> Order:
        """As time lines take it."""
        return Order(self.collectives, self.holds)

    @property
    def groups(self) -> tuple[tuple[int, int], ...] | None:
        """(first, last) layer of each, where all kinds of collectives share them; else None. A kept group has no second
        gather."""
        forward = sorted((each.first, each.last) for each in self.collectives if each.kind == Kind.FORWARD)
        others = {(each.first, each.last) for each in self.collectives if each.kind != Kind.FORWARD}
        return tuple(forward) if others == set(forward) else None
