"""When everything in a step happens, by the order of collectives on the network; and the memory that it takes.

A collective starts once those before it are over, the positions that it waits for, and, of gradients, the passes that
make them. A pass starts once the one before it is over, its parameters are gathered, and the collectives are over that
hold it back: FSDP2 waits for these before it begins the scatter of the pass before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order

__all__ = ["Change", "Part", "Timeline", "carried", "freed_s", "memory_changes", "peak_of", "taken_s", "timeline"]

Part = tuple[int, float, float]
"""Of a collective: the network that it is on, when it begins, and when it ends."""
Change = tuple[float, float]
"""When memory grows or shrinks, and by how many bytes; of one instant what is freed stands first."""


@dataclass(frozen=True)
class Timeline:
    """`parts`: of each collective, in their order. `taken_s`: when each gather's memory is taken: when it starts, or as
    FSDP2 has it, when a pass begins it; `start_s`, `end_s`: of each collective. `begin_s`, `over_s`: of each position.
    `peak_bytes`: the most memory of gathered parameters and gradients."""

    parts: tuple[tuple[Part, ...], ...]
    taken_s: tuple[float, ...]
    start_s: tuple[float, ...]
    end_s: tuple[float, ...]
    begin_s: tuple[float, ...]
    over_s: tuple[float, ...]
    peak_bytes: float

    @property
    def step_s(self) -> float:
        """When the step is over."""
        return max(self.over_s[-1], max(self.end_s, default=0.0))


def timeline(costs: Costs, order: Order) -> Timeline | None:
    """None where a collective waits for what can't happen before it, or parameters are missing."""
    running = _Passes(costs, order.holds)
    parts: list[tuple[Part, ...]] = []
    free_s = [0.0] * len(costs.networks)
    for collective in order.collectives:
        waits_for = costs.positions - collective.first if collective.kind == Kind.SCATTER else 0
        waits_for = max(waits_for, collective.after)
        if waits_for > len(running.over_s):
            return None
        waited_s = freed_s(running.over_s[waits_for - 1], costs.duration_s[waits_for - 1]) if waits_for else 0.0
        if collective.kind == Kind.SCATTER and collective.first:
            held = order.holds[collective.first - 1]
            waited_s = max(waited_s, running.end_s[held - 1] if 0 < held <= len(parts) else 0.0)
        parts.append(tuple(carried(costs, collective, free_s, waited_s)))
        running.ended(collective, parts[-1][-1][2])
    if len(running.over_s) < costs.positions or not _scatters_all(costs, order.collectives):
        return None
    start_s = [each[0][1] for each in parts]
    begin_s, over_s, end_s = running.begin_s, running.over_s, running.end_s
    begun_s = _begun_s(costs, order, start_s, running) if costs.takes_when_begun else start_s
    changes = memory_changes(costs, order.collectives, begun_s, end_s, begin_s, over_s)
    return Timeline(
        tuple(parts), tuple(begun_s), tuple(start_s), tuple(end_s), tuple(begin_s), tuple(over_s), peak_of(changes)
    )  # fmt: skip


def carried(costs: Costs, collective: Collective, free_s: list[float], from_s: float) -> Iterator[Part]:
    """The parts of a collective that may begin at an instant; networks are free at `free_s`, which becomes later."""
    for network, duration_s in costs.parts_s(collective):
        begin_s = max(from_s, free_s[network])
        free_s[network] = from_s = begin_s + duration_s
        yield network, begin_s, from_s


class _Passes:
    """Positions run as soon as those before them are over, their parameters are there, and nothing holds them."""

    def __init__(self, costs: Costs, holds: Sequence[int]) -> None:
        self.costs, self.holds, self.ready_s = costs, holds, [math.inf] * costs.positions
        self.begin_s: list[float] = []
        self.over_s: list[float] = []
        self.end_s: list[float] = []

    def ended(self, collective: Collective, end_s: float) -> None:
        """Run what a collective that ends lets run."""
        self.end_s.append(end_s)
        for position in _served(self.costs, collective):
            self.ready_s[position] = min(self.ready_s[position], end_s)
        while len(self.over_s) < self.costs.positions and self.ready_s[len(self.over_s)] < math.inf:
            position = len(self.over_s)
            held = self.holds[self.costs.layer_at[position]] if position >= self.costs.layers else 0
            if held > len(self.end_s):
                return
            before_s = self.over_s[-1] if self.over_s else 0.0
            held_s = self.end_s[held - 1] if held else 0.0
            self.begin_s.append(max(before_s, self.ready_s[position], held_s))
            self.over_s.append(self.begin_s[-1] + self.costs.duration_s[position])


def _served(costs: Costs, collective: Collective) -> list[int]:
    """The positions whose parameters a collective gathers."""
    layers = range(collective.first, collective.last + 1)
    forward = list(layers) if collective.kind == Kind.FORWARD else []
    is_there = collective.kind == Kind.BACKWARD or collective.kept
    return forward + ([costs.positions - 1 - layer for layer in layers] if is_there else [])


def _scatters_all(costs: Costs, order: Sequence[Collective]) -> bool:
    layers = [layer for each in order if each.kind == Kind.SCATTER for layer in range(each.first, each.last + 1)]
    return sorted(layers) == list(range(costs.layers))


def _begun_s(costs: Costs, order: Order, start_s: Sequence[float], running: _Passes) -> list[float]:
    """When a pass begins each collective: it gathers what it needs once the pass before it is over and nothing holds it
    back, and when it has that, what it gathers ahead."""
    begun_s = []
    for each, from_s in zip(order.collectives, start_s, strict=True):
        position = min(each.after, costs.positions - 1)
        if each.kind == Kind.SCATTER:
            begun_s.append(from_s)
        elif each.first <= costs.layer_at[position] <= each.last:
            held = order.holds[costs.layer_at[position]] if position >= costs.layers else 0
            before_s = freed_s(running.over_s[position - 1], costs.duration_s[position - 1]) if position else 0.0
            begun_s.append(min(from_s, max(before_s, running.end_s[held - 1] if held else 0.0)))
        else:
            begun_s.append(min(from_s, running.begin_s[position]))
    return begun_s


def memory_changes(
    costs: Costs, order: Sequence[Collective], begun_s: Sequence[float], end_s: Sequence[float],
    begin_s: Sequence[float], over_s: Sequence[float],
) -> list[Change]:  # fmt: skip
    """Bytes that are taken and freed, in order of time. `begun_s`: when each gather takes its memory. A node's share of
    a layer counts from its forward gather to its backward pass, replicas from the step's begin to its end."""
    changes: list[Change] = [(-math.inf, costs.replicated_bytes(order))]
    secondary_bytes = costs.secondary_bytes(order)
    for number, each in enumerate(order):
        size = costs.between(each.first, each.last)
        if each.kind == Kind.SCATTER:
            changes.append((end_s[number], -size * costs.gradient_bytes))
            continue
        is_forward = each.kind == Kind.FORWARD and not each.kept
        last_use = each.last if is_forward else costs.positions - 1 - each.first
        taken = freed = size * costs.gathered_bytes
        shared = sum(secondary_bytes.get(layer, 0.0) for layer in each.layers)
        taken, freed = (taken + shared, freed) if each.kind == Kind.FORWARD else (taken, freed + shared)
        changes.append((begun_s[number], taken))
        changes.append((freed_s(over_s[last_use], costs.duration_s[last_use]), -freed))
    for layer, size in enumerate(costs.parameters.tolist()):
        position = costs.positions - 1 - layer
        changes.append((taken_s(begin_s[position], costs.duration_s[position]), size * costs.gradient_bytes))
    return sorted(changes)


def taken_s(begin_s: float, duration_s: float) -> float:
    """When a pass takes what it makes: what takes no time does so before anything else of its instant is freed."""
    return begin_s if duration_s else math.nextafter(begin_s, -math.inf)


def freed_s(over_s: float, duration_s: float) -> float:
    """When a pass frees what it has read: what takes no time holds it at the instant at which it makes gradients."""
    return over_s if duration_s else math.nextafter(over_s, math.inf)


def peak_of(changes: Sequence[Change]) -> float:
    """The most that is taken at once."""
    most = taken = 0.0
    for number, (when_s, by) in enumerate(changes):
        taken += by
        if number + 1 == len(changes) or changes[number + 1][0] > when_s:
            most = max(most, taken)
    return most
