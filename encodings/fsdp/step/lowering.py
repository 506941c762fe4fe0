"""From an order of collectives to a schedule: one representative rank with a compute stream and a network.

Where memory is taken when a pass begins a gather, that is an event of its own, of no time, on a third engine.

Tensors: of each gather what it gathers, of each layer what its forward pass leaves (sizes of activations don't count
here) and its gradients, of each scatter what the rank keeps of the sums, which is required.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from gapless.encodings.fsdp.step.costs import Collective, Costs, Kind, Order
from gapless.encodings.fsdp.step.timeline import Timeline
from gapless.ir.schedule import EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.topologies.topology import Topology

__all__ = ["COMPUTE", "HOST", "INNER", "NETWORK", "to_schedule"]

COMPUTE, NETWORK, HOST, INNER = 0, 1, 2, 3
"""The engines of the rank; inside a node collectives are on one of their own, where there are two networks."""
_NETWORKS = (NETWORK, INNER)


def to_schedule(costs: Costs, names: Sequence[str], order: Order, times: Timeline, title: str) -> Schedule:
    """Every event at the time that the time line has."""
    lowering = _Lowering(costs, names)
    events = [
        (begin_s, _NETWORKS[network], number)
        for number, parts in enumerate(times.parts)
        for network, begin_s, _ in parts
    ]
    events += [(begin_s, COMPUTE, position) for position, begin_s in enumerate(times.begin_s)]
    if costs.takes_when_begun:
        gathers = (number for number, each in enumerate(order.collectives) if each.kind != Kind.SCATTER)
        events += [(times.taken_s[number], HOST, number) for number in gathers]
    lowering.gathers(order.collectives)
    lowering.replicas(order.collectives)
    for when_s, engine, number in _in_turn(events, order, costs):
        if engine in _NETWORKS:
            lowering.part(number, order.collectives[number], _NETWORKS.index(engine), when_s)
        elif engine == HOST:
            lowering.allocate(number, order.collectives[number], when_s)
        else:
            lowering.position(number, when_s)
    titles = ["compute", "network"]
    titles += ["host"] if costs.takes_when_begun else []
    titles += ["network in a node"] if costs.inner is not None else []
    engines = tuple((0, title) for title in titles)
    topology = Topology("rank", (0,), engines=engines, memory_bytes=(costs.memory_bytes,))
    return lowering.builder.schedule(topology, title)


def _in_turn(events: list[tuple[float, int, int]], order: Order, costs: Costs) -> list[tuple[float, int, int]]:
    """In the order of starts; of one instant what others wait for stands first: each is listed after what it needs."""
    needs: dict[tuple[int, int], list[tuple[int, int]]] = {}
    latest: dict[int, tuple[int, int]] = {}
    for number, each in enumerate(order.collectives):
        engines = [_NETWORKS[network] for network, _ in costs.parts_s(each)]
        for engine in engines:
            needs[engine, number] = [latest[engine]] if engine in latest else []
            latest[engine] = engine, number
        for before, engine in pairwise(engines):
            needs[engine, number].append((before, number))
        if each.kind == Kind.SCATTER:
            needs[engines[0], number].append((COMPUTE, costs.positions - 1 - each.first))
            continue
        if costs.takes_when_begun:
            needs[engines[0], number].append((HOST, number))
            needs[HOST, number] = [(COMPUTE, each.after - 1)] if each.after else []
        for layer in range(each.first, each.last + 1):
            served = [layer] if each.kind == Kind.FORWARD else []
            served += [costs.positions - 1 - layer] if each.kind == Kind.BACKWARD or each.kept else []
            for position in served:
                needs.setdefault((COMPUTE, position), []).append((engines[-1], number))
    for position in range(1, costs.positions):
        needs.setdefault((COMPUTE, position), []).append((COMPUTE, position - 1))
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
        self.begun: dict[int, tuple[int, ...]] = {}
        self.gathered_at: dict[int, tuple[int, ...]] = {}
        self.gathered_of: dict[int, tuple[int, ...]] = {}
        self.last_use: dict[tuple[int, ...], int] = {}
        self.secondary_of: dict[int, int] = {}

    def replicas(self, collectives: Sequence[Collective]) -> None:
        """What ranks hold more where nodes have replicas: it is there from the begin, and stays."""
        for each in collectives:
            size = self.costs.replicated_bytes([each])
            if size:
                tensor = self.builder.tensor(f"replica of {self._named(each)}", size)
                self.builder.initial.append((tensor, 0, 0))
                self.builder.required.append((tensor, 0, 0))

    def gathers(self, collectives: Sequence[Collective]) -> None:
        """A tensor of each gather, and its memory where that is taken before; the positions that read them, and the
        last of them, which frees them; and the shares that nodes keep of what is gathered."""
        secondary_bytes = self.costs.secondary_bytes(collectives)
        for number, each in enumerate(collectives):
            if each.kind == Kind.SCATTER:
                continue
            size = self.costs.between(each.first, each.last) * self.costs.gathered_bytes
            name = f"parameters {self._named(each)}, {each.kind}"
            sizes = {f"memory of {name}": size, name: 0} if self.costs.takes_when_begun else {name: size}
            tensors = tuple(self.builder.tensor(name, size) for name, size in sizes.items())
            self.gathered_of[number] = tensors
            shared = sum(secondary_bytes.get(layer, 0.0) for layer in each.layers)
            if shared and each.kind == Kind.FORWARD:
                self.secondary_of |= dict.fromkeys(each.layers, self.builder.tensor(f"share of {name}", shared))
            for layer in range(each.first, each.last + 1):
                back = self.costs.positions - 1 - layer
                for position in ([layer] if each.kind == Kind.FORWARD else []) + (
                    [back] if each.kind == Kind.BACKWARD or each.kept else []
                ):
                    self.gathered_at[position] = tensors
                    self.last_use[tensors] = max(self.last_use.get(tensors, 0), position)

    def allocate(self, number: int, each: Collective, when_s: float) -> None:
        """The memory of a gather."""
        memory = self.gathered_of[number][:1]
        if each.kind == Kind.FORWARD and each.first in self.secondary_of:
            memory += (self.secondary_of[each.first],)
        self.builder.compute(f"begin {each.kind} {self._named(each)}", "begin", HOST, when_s, 0.0, (), memory)

    def part(self, number: int, each: Collective, network: int, start_s: float) -> None:
        """A gather or a scatter, or its part on a network: the last has its name."""
        networks = [network for network, _ in self.costs.parts_s(each)]
        duration_s = dict(self.costs.parts_s(each))[network]
        is_scatter, is_last = each.kind == Kind.SCATTER, network == networks[-1]
        made = tuple(self.gradient[each.first : each.last + 1]) if is_scatter else ()
        reads = (made if is_scatter else self.gathered_of[number][:-1]) + self.begun.pop(number, ())
        if each.kind == Kind.BACKWARD and each.first in self.secondary_of:
            reads += (self.secondary_of[each.first],)
        name = f"{each.kind} {self._named(each)}"
        writes: tuple[int, ...]
        if not is_last:
            writes = self.begun[number] = (self.builder.tensor(f"{name}, first part"),)
        elif is_scatter:
            writes = (self.builder.tensor(f"sums {self._named(each)}"),)
            self.builder.required.append((*writes, 0, 0))
        else:
            writes = self.gathered_of[number][-1:]
        self.builder.compute(
            name if is_last else f"{name}, first part", "scatter" if is_scatter else "gather", _NETWORKS[network],
            start_s, duration_s, reads, writes, [(tensor, 0) for tensor in made] if is_last else (),
            mode=each.precision, event=EventKind.COLLECTIVE,
        )  # fmt: skip

    def position(self, position: int, begin_s: float) -> None:
        """A forward or a backward pass."""
        layer, parameters = self.costs.layer_at[position], self.gathered_at[position]
        frees = [(tensor, 0) for tensor in parameters] if self.last_use[parameters] == position else []
        if frees and position >= self.costs.layers and layer in self.secondary_of:
            frees.append((self.secondary_of[layer], 0))
        is_forward = position < self.costs.layers
        before = [self.left[layer - 1]] if is_forward and layer else [] if is_forward else [self.left[layer]]
        after = self.left[layer] if is_forward else self.gradient[layer]
        self.builder.compute(
            f"{'forward' if is_forward else 'backward'} {self.names[layer]}", "forward" if is_forward else "backward",
            COMPUTE, begin_s, self.costs.duration_s[position], (*parameters, *before), (after,), frees,
        )  # fmt: skip

    def _named(self, each: Collective) -> str:
        first, last = self.names[each.first], self.names[each.last]
        return first if first == last else f"{first} .. {last}"
