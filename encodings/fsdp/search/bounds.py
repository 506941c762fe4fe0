"""Bounds on a step: what has to come after a moment, whatever the groups, the order and what is kept.

All use that memory holds no more than so many parameters at any moment: of those that later positions need, the rest is
gathered later. Only the bytes of collectives are charged, and a latency where at least one collective is left.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from gapless.encodings.fsdp.step.costs import Costs

__all__ = ["Tails", "tails_of"]


@dataclass(frozen=True)
class Tails:
    """`after_s[p]`: the least time from when p positions are over to the end of the step. `forward_s[p]`,
    `backward_s[p]`: the most that gathers from position p on, their positions and what follows take after the network
    is free, with all gathers before them. `turn_s`: the same for what follows the forward passes. `kept_room`:
    parameters that may be kept from forward to backward passes: the last layer has its gradients, too."""

    costs: Costs
    after_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    turn_s: float
    kept_room: float

    @property
    def step_s(self) -> float:
        """No step takes less."""
        return self.from_s(0.0, 0.0, 0, 0, 0, 0)

    def from_s(self, free_s: float, over_s: float, at: int, done: int, scattered: int, kept: int) -> float:
        """The least end of a step in which the network is free at `free_s`, positions before `at` are gathered, those
        before `done` over at `over_s`, `scattered` layers scattered, and `kept` parameters wait for backward passes."""
        costs, layers = self.costs, self.costs.layers
        until, each_s, latency_s = costs.until, costs.gather_s, costs.latency_s
        left = until[layers - scattered]
        passes_s = over_s + self.after_s[done]
        network_s = free_s + (latency_s + left * costs.scatter_s if scattered < layers else 0.0)
        if at < layers:
            most_kept = min(self.kept_room, kept + until[-1] - until[at])
            missing = until[-1] - most_kept  # what is gathered again, sooner or later
            free_s += latency_s - until[at] * each_s
            network_s += latency_s + (until[-1] - until[at] + missing) * each_s
            return max(passes_s, network_s, free_s + self.forward_s[at], free_s + self.turn_s)
        if at < costs.positions:
            here = until[costs.layer_at[at] + 1]
            free_s += latency_s - kept * each_s
            network_s += latency_s + (here - kept) * each_s
            return max(passes_s, network_s, free_s + self.backward_s[at] - (until[-1] - here) * each_s)
        return max(passes_s, network_s)


_MOST_SUMS = 10**4
"""Sums of layers up to which it is worked out how far whole layers fill memory: models of equal blocks have few."""


def room_of(costs: Costs, beside_bytes: float = 0.0) -> float:
    """How many parameters of whole layers memory holds at once, beside something else."""
    room = (costs.memory_bytes - beside_bytes) / costs.gathered_bytes
    if room >= costs.until[-1]:
        return room
    sums = {0}
    for size, count in sorted(Counter(costs.parameters.tolist()).items()):
        sums = {total + k * size for total in sums for k in range(count + 1) if total + k * size <= room}
        if len(sums) > _MOST_SUMS:
            return room
    return float(max(sums, default=0))


def tails_of(costs: Costs) -> Tails:
    """From the last position to the first."""
    count, layers, until, room = costs.positions, costs.layers, costs.until, room_of(costs)
    kept_room = room_of(costs, float(costs.parameters[-1] * costs.gradient_bytes))
    rooms: dict[float, float] = {}
    after_s = [0.0] * (count + 1)
    for at in range(count, -1, -1):
        beside_bytes = _still_there(costs, at)
        if beside_bytes not in rooms:
            rooms[beside_bytes] = room_of(costs, beside_bytes)
        here = rooms[beside_bytes]
        after_s[at] = _tail_s(costs, at, here, room, after_s)
    ends_s = [costs.duration_s[p] + after_s[p + 1] for p in range(count)]
    forward_s, backward_s = [0.0] * count, [0.0] * count
    latest_s = -math.inf
    for p in range(layers - 1, -1, -1):
        latest_s = max(latest_s, until[p + 1] * costs.gather_s + ends_s[p])
        forward_s[p] = latest_s
    latest_s, turn_s = -math.inf, -math.inf
    for p in range(count - 1, layers - 1, -1):
        gathered = until[-1] - until[costs.layer_at[p]]
        latest_s = max(latest_s, gathered * costs.gather_s + ends_s[p])
        backward_s[p] = latest_s
        turn_s = max(turn_s, (until[-1] + max(0.0, gathered - room)) * costs.gather_s + ends_s[p])
    return Tails(costs, tuple(after_s), tuple(forward_s), tuple(backward_s), turn_s, kept_room)


def _still_there(costs: Costs, at: int) -> float:
    """Bytes that no later position needs, when the first `at` are over: of the layer of the last of them, after a
    backward pass with its gradients. At the turn there are none: the next position is that layer's, too."""
    if at in (0, costs.layers):
        return 0.0
    each_bytes = costs.gathered_bytes + (costs.gradient_bytes if at > costs.layers else 0.0)
    return float(costs.parameters[costs.layer_at[at - 1]] * each_bytes)


def _between_s(costs: Costs, at: int, room: float) -> float:
    """What the network has to do between two passes in any case: scatter the gradients of the first, where memory holds
    no parameters and gradients of the second beside them; gather the parameters of the second, where it holds none of
    these beside the first, with its gradients. `room`: beside the latter."""
    between_s, second = 0.0, int(costs.parameters[costs.layer_at[at]])
    if at == 0 or second > room:
        between_s += costs.latency_s + second * costs.gather_s
    if at > costs.layers:
        first = int(costs.parameters[costs.layer_at[at - 1]])
        held = first * costs.gradient_bytes + second * (costs.gathered_bytes + costs.gradient_bytes)
        if held > costs.memory_bytes:
            between_s += costs.latency_s + first * costs.scatter_s
    return between_s


def _tail_s(costs: Costs, at: int, room: float, turn_room: float, after_s: list[float]) -> float:
    """The least time after the first `at` positions, from what is known of more positions. `room`: parameters that
    memory may hold then for later positions; `turn_room`: once the forward passes are over."""
    layers, until, latency_s = costs.layers, costs.until, costs.latency_s
    made = costs.layers if at <= layers else costs.layer_at[at - 1] + 1  # of whose gradients some are left to scatter
    sums_s = latency_s + until[made] * costs.scatter_s
    most_s = sums_s
    if at < costs.positions:
        most_s = max(most_s, _between_s(costs, at, room) + costs.duration_s[at] + after_s[at + 1])
    if at >= layers:
        missing = max(0.0, (until[costs.layer_at[at] + 1] if at < costs.positions else 0) - room)
        most_s = max(most_s, sums_s + missing * costs.gather_s + (latency_s if missing else 0.0))
    for p in range(at, costs.positions):
        layer = costs.layer_at[p]
        if p < layers:
            missing = max(0.0, until[layer + 1] - until[at] - room)
        elif at < layers:
            missing = max(0.0, until[-1] - until[at] - room) + max(0.0, until[-1] - until[layer] - turn_room)
        else:
            missing = max(0.0, until[costs.layer_at[at] + 1] - until[layer] - room)
        if missing:
            most_s = max(most_s, latency_s + missing * costs.gather_s + costs.duration_s[p] + after_s[p + 1])
    return most_s
