"""From an order of collectives to a schedule: one representative rank with a compute stream and a network.

Tensors: of each gather what it gathers, of each layer what its forward pass leaves (sizes of activations don't count
here) and its gradients, of each scatter what the rank keeps of the sums, which is required.
"""

from __future__ import annotations

from collections.abc import Sequence

from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Timeline
from gapless.ir.schedule import EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology

__all__ = ["COMPUTE", "NETWORK", "to_schedule"]

COMPUTE, NETWORK = 0, 1
"""The engines of the rank."""


def to_schedule(costs: Costs, names: Sequence[str], order: Order, times: Timeline, title: str) -> Schedule:
    """Every event at the time that the time line has."""
    lowering = _Lowering(costs, names)
    events = [(start_s, 1, number) for number, start_s in enumerate(times.start_s)]
    events += [(begin_s, 0, position) for position, begin_s in enumerate(times.begin_s)]
    lowering.gathers(order.collectives)
    for when_s, is_collective, number in _in_turn(events, order, costs):
        if is_collective:
            lowering.collective(number, order.collectives[number], when_s)
        else:
            lowering.position(number, when_s)
    topology = Topology("rank", (0,), engines=((0, "compute"), (0, "network")), memory_bytes=(costs.memory_bytes,))
    return lowering.builder.schedule(topology, title)


def _in_turn(events: list[tuple[float, int, int]], order: Order, costs: Costs) -> list[tuple[float, int, int]]:
    """In the order of starts; of one instant what others wait for stands first: each is listed after what it needs."""
    needs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, each in enumerate(order.collectives):
        needs[1, number] = [(1, number - 1)] if number else []
        if each.kind == Kind.SCATTER:
            needs[1, number].append((0, costs.positions - 1 - each.first))
            continue
        for layer in range(each.first, each.last + 1):
            served = [layer] if each.kind == Kind.FORWARD else []
            served += [costs.positions - 1 - layer] if each.kind == Kind.BACKWARD or each.kept else []
            for position in served:
                needs.setdefault((0, position), []).append((1, number))
    for position in range(1, costs.positions):
        needs.setdefault((0, position), []).append((0, position - 1))
    listed: list[tuple[float, int, int]] = []
    done: set[tuple[int, int]] = set()
    waiting = sorted(events)
    while waiting:
        ready = next(k for k, event in enumerate(waiting) if all(one in done for one in needs.get(event[1:], ())))
        listed.append(waiting.pop(ready))
        done.add(listed[-1][1:])
    return listed


class _Lowering:
    """The builder, and the tensors that each pass reads, makes and frees."""

    def __init__(self, costs: Costs, names: Sequence[str]) -> None:
        self.costs, self.names, self.builder = costs, names, ScheduleBuilder()
        self.left = [self.builder.tensor(f"activations {name}") for name in names]
        gradient_bytes = (costs.parameters * costs.gradient_bytes).tolist()
        self.gradient = [
            self.builder.tensor(f"gradients {name}", size) for name, size in zip(names, gradient_bytes, strict=True)
        ]
        self.gathered_at: dict[int, int] = {}
        self.gathered_of: dict[int, int] = {}
        self.last_use: dict[int, int] = {}

    def gathers(self, collectives: Sequence[Collective]) -> None:
        """A tensor of each gather, the positions that read it, and the last of them, which frees it."""
        for number, each in enumerate(collectives):
            if each.kind == Kind.SCATTER:
                continue
            size = self.costs.between(each.first, each.last) * self.costs.gathered_bytes
            tensor = self.builder.tensor(f"parameters {self._named(each)}, {each.kind}", size)
            self.gathered_of[number] = tensor
            for layer in range(each.first, each.last + 1):
                back = self.costs.positions - 1 - layer
                for position in ([layer] if each.kind == Kind.FORWARD else []) + (
                    [back] if each.kind == Kind.BACKWARD or each.kept else []
                ):
                    self.gathered_at[position] = tensor
                    self.last_use[tensor] = max(self.last_use.get(tensor, 0), position)

    def collective(self, number: int, each: Collective, start_s: float) -> None:
        """A gather or a scatter."""
        duration_s, name = self.costs.collective_s(each), f"{each.kind} {self._named(each)}"
        if each.kind != Kind.SCATTER:
            self.builder.compute(
                name, "gather", NETWORK, start_s, duration_s, (), (self.gathered_of[number],), mode=each.precision,
                event=EventKind.COLLECTIVE,
            )  # fmt: skip
            return
        made = self.gradient[each.first : each.last + 1]
        kept = self.builder.tensor(f"sums {self._named(each)}")
        self.builder.required.append((kept, 0, 0))
        self.builder.compute(
            name, "scatter", NETWORK, start_s, duration_s, made, (kept,), [(tensor, 0) for tensor in made],
            mode=each.precision, event=EventKind.COLLECTIVE,
        )  # fmt: skip

    def position(self, position: int, begin_s: float) -> None:
        """A forward or a backward pass."""
        layer, parameters = self.costs.layer_at[position], self.gathered_at[position]
        frees = [(parameters, 0)] if self.last_use[parameters] == position else []
        is_forward = position < self.costs.layers
        before = [self.left[layer - 1]] if is_forward and layer else [] if is_forward else [self.left[layer]]
        after = self.left[layer] if is_forward else self.gradient[layer]
        self.builder.compute(
            f"{'forward' if is_forward else 'backward'} {self.names[layer]}", "forward" if is_forward else "backward",
            COMPUTE, begin_s, self.costs.duration_s[position], (parameters, *before), (after,), frees,
        )  # fmt: skip

    def _named(self, each: Collective) -> str:
        first, last = self.names[each.first], self.names[each.last]
        return first if first == last else f"{first} .. {last}"
