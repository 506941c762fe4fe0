"""Bounds on a step: what has to come after a moment, whatever the groups, the order and what is kept.

All use that memory holds no more than so many parameters at any moment: of those that later positions need, the rest is
gathered later. Only the bytes of collectives are charged, and a latency where at least one collective is left.

Between nodes, shares hold parameters in less memory, from the forward passes on. Of replicated layers nothing is
gathered there, and gradients are twice as long; memory has room for so many of them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind

__all__ = ["Tails", "last_between_nodes_s", "step_bound_s", "tails_of"]


@dataclass(frozen=True)
class Tails:
    """`after_s[p]`: the least time from when p positions are over to the end of the step. `forward_s[p]`,
    `backward_s[p]`: the most that gathers from position p on, their positions and what follows take after the network
    is free, with all gathers before them. `turn_s`: the same for what follows the forward passes. `kept_room`:
    parameters that may be kept from forward to backward passes, or shared: the last layer has its gradients, too.
    `replicas`: parameters that may be replicated. `less_kept`: of those that may be kept, how many fewer are for each
    of these."""

    costs: Costs
    after_s: tuple[float, ...]
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]
    turn_s: float
    kept_room: float
    replicas: float
    less_kept: float

    @property
    def step_s(self) -> float:
        """No step takes less."""
        return self.from_s(0.0, 0.0, 0, 0, 0, 0)

    def from_s(
        self, free_s: float, over_s: float, at: int, done: int, scattered: int, kept: int, summed: int = 0,
        first: int = 0,
    ) -> float:  # fmt: skip
        """The least end of a step in which the network is free at `free_s`, positions before `at` are gathered, those
        before `done` over at `over_s`, and `scattered` layers scattered. `kept`: parameters that aren't gathered here
        again; `summed`: of layers that are known to be replicated, those whose gradients aren't scattered. `first`:
        where backward passes are next, the first position whose gather this network has, unless that is `at`."""
        costs, layers = self.costs, self.costs.layers
        until, each_s, latency_s = costs.until, costs.gather_s, costs.latency_s
        left = until[layers - scattered] + summed
        gather_latency_s = 0.0 if self.replicas else latency_s
        passes_s = over_s + self.after_s[done]
        network_s = free_s + (latency_s + left * costs.scatter_s if scattered < layers else 0.0)
        if at < layers:
            at_of = at
            network_s += gather_latency_s + self._gathers_s(until[-1] - until[at], kept, summed)
            if self.replicas:  # the first whose gather this network has in any case
                at = bisect_right(until, until[at] + self.replicas) - 1
                if at >= layers:
                    return max(passes_s, network_s)
            free_s += gather_latency_s - (until[at_of] + self.replicas) * each_s
            return max(passes_s, network_s, free_s + self.forward_s[at], free_s + self.turn_s)
        first = max(first, at)
        if first < costs.positions:
            here = until[costs.layer_at[at] + 1]
            free_s += latency_s - kept * each_s
            network_s += latency_s + (here - kept) * each_s
            return max(passes_s, network_s, free_s + self.backward_s[first] - (until[-1] - here) * each_s)
        return max(passes_s, network_s)

    def _gathers_s(self, ahead: int, kept: int, summed: int) -> float:
        """The least that gathers take, with what else replicated layers scatter, where so many parameters of later
        layers are `ahead`: it is convex in how many of them are replicated."""
        costs, everything = self.costs, self.costs.until[-1]
        more = 1 - self.less_kept  # of each replicated one
        room = self.kept_room + more * summed  # for what isn't gathered again, sooner or later
        choices = [0.0]
        if most := min(self.replicas, ahead):
            choices += [most, *([min(most, max(0.0, (kept + ahead - room) / more))] if more else [])]
        return min(
            (ahead - count + everything - min(room + more * count, kept + ahead)) * costs.gather_s
            + count * costs.scatter_s
            for count in choices
        )


_MOST_SUMS = 10**4
"""Sums of layers up to which it is worked out how far whole layers fill memory: models of equal blocks have few."""


def room_of(costs: Costs, beside_bytes: float = 0.0, share: float = 1.0) -> float:
    """How many parameters of whole layers memory holds at once, or a share of each, beside something else."""
    room = (costs.memory_bytes - beside_bytes) / (costs.gathered_bytes * share)
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
    count, layers, until, share = costs.positions, costs.layers, costs.until, costs.replicas.share
    replicas, each_bytes = _replicas(costs), costs.replicas.bytes or 0.0
    turn_room = room_of(costs, share=share) + replicas
    last_bytes = float(costs.parameters[-1] * costs.gradient_bytes)
    kept_room = room_of(costs, last_bytes, share)
    if replicas:  # of any size: they take from it
        kept_room = (costs.memory_bytes - last_bytes) / (costs.gathered_bytes * share)
    rooms: dict[tuple[float, float], float] = {}
    after_s = [0.0] * (count + 1)
    for at in range(count, -1, -1):
        key = _still_there(costs, at), share if at >= layers else 1.0
        if key not in rooms:
            rooms[key] = room_of(costs, *key) + replicas
        after_s[at] = _tail_s(costs, at, rooms[key], turn_room, replicas, after_s)
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
        turn_s = max(turn_s, (until[-1] + max(0.0, gathered - turn_room)) * costs.gather_s + ends_s[p])
    less_kept = each_bytes / (costs.gathered_bytes * share)
    return Tails(costs, tuple(after_s), tuple(forward_s), tuple(backward_s), turn_s, kept_room, replicas, less_kept)


def step_bound_s(costs: Costs) -> float:
    """No step takes less. Networks inside nodes are idle while the first layer is gathered between them, and while its
    gradients are added up there, which is last."""
    outer, *inner = (tails_of(each).step_s for each in costs.networks)
    first_s = costs.networks[0].collective_s(Collective(Kind.FORWARD, 0, 0))
    first_s = 0.0 if costs.replicas.bytes is not None else first_s
    return max([outer, _sums_s(costs), *(first_s + each_s + last_between_nodes_s(costs) for each_s in inner)])


def last_between_nodes_s(costs: Costs) -> float:
    """What follows all else at least: after the part in nodes of the last scatter, which has the first layer, that
    between them."""
    return 0.0 if costs.inner is None else costs.networks[0].collective_s(Collective(Kind.SCATTER, 0, 0))


def _sums_s(costs: Costs) -> float:
    """Where there may be replicas: gathers between nodes up to a forward pass, the passes from that to a backward pass,
    and then the sums that are left."""
    replicas, before_s = _replicas(costs), [0.0, *accumulate(costs.duration_s)]
    if not replicas:
        return 0.0
    return max(
        before_s[costs.positions - to] - before_s[layer] + _gathers_and_sums_s(costs, layer, to, replicas)
        for layer in range(costs.layers)
        for to in range(costs.layers)
    )


def _gathers_and_sums_s(costs: Costs, layer: int, to: int, replicas: float) -> float:
    """The least that gathers of layers up to one take, and scatters of those up to another: a replica spares a gather,
    and a sum takes as much longer as a scatter. It is convex in how many parameters have replicas."""
    gathered, scattered = costs.until[layer + 1], costs.until[to + 1]
    free = max(0.0, gathered - scattered)  # of those that aren't scattered after it
    most = min(replicas, gathered)
    return min(
        (costs.latency_s if count < gathered else 0.0) + (gathered - count) * costs.gather_s
        + costs.latency_s + (scattered + max(0.0, count - free)) * costs.scatter_s
        for count in {0.0, min(free, most), float(most)}
    )  # fmt: skip


def _replicas(costs: Costs) -> float:
    """How many parameters may be replicated beside what a step needs at least."""
    if costs.replicas.bytes is None:
        return 0.0
    room = (costs.memory_bytes - costs.least_bytes) / costs.replicas.bytes if costs.replicas.bytes else math.inf
    return float(min(max(0.0, room), costs.until[-1]))


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
    these beside the first, with its gradients. `room`: beside the latter; below 0 where none can be there."""
    between_s, second = 0.0, int(costs.parameters[costs.layer_at[at]])
    if second > room:
        between_s += costs.latency_s + second * costs.gather_s
    if at > costs.layers:
        first = int(costs.parameters[costs.layer_at[at - 1]])
        held = first * costs.gradient_bytes + second * (costs.gathered_bytes + costs.gradient_bytes)
        if held > costs.memory_bytes:
            between_s += costs.latency_s + first * costs.scatter_s
    return between_s


def _tail_s(
    costs: Costs, at: int, room: float, turn_room: float, replicas: float, after_s: list[float]
) -> float:  # fmt: skip
    """The least time after the first `at` positions, from what is known of more positions. `room`: parameters that
    memory may hold then for later positions; `turn_room`: once the forward passes are over; both with `replicas`."""
    layers, until, latency_s = costs.layers, costs.until, costs.latency_s
    made = costs.layers if at <= layers else costs.layer_at[at - 1] + 1  # of whose gradients some are left to scatter
    sums_s = latency_s + until[made] * costs.scatter_s
    most_s = sums_s
    if at < costs.positions:
        most_s = max(
            most_s, _between_s(costs, at, room if at else replicas or -1.0) + costs.duration_s[at] + after_s[at + 1]
        )
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
