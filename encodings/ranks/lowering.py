"""From modes to a schedule in the graph IR: a step of each phase, on a worker with a compute stream and a network.

A phase is a run of epochs with the same modes. Its step stands for all of its steps: two ledgers beside the times have
what all of them send, recomputed from the shapes of the layers, and what they spoil.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.problem import Problem
from gapless.graph import Budget, Graph, Implementation, Op, Placement
from gapless.profiles.compression.levels import FLOAT_BYTES, sent_bytes
from gapless.profiles.gradients.fusion import Timeline
from gapless.schedule import Event, EventKind, Schedule, schedule_from_events
from gapless.ties import by_start
from gapless.topologies.topology import Topology

__all__ = ["DATA", "ERROR", "phases_of", "to_schedule"]

DATA, ERROR = "floats sent", "compression error"
"""The ledgers."""

_COMPUTE, _NETWORK = 0, 1
Ints = NDArray[np.int64]


def phases_of(modes: Ints) -> list[tuple[int, int]]:
    """(first epoch, epoch after the last) of each run of equal rows of modes, int64, shape (E, L)."""
    starts = [0, *(1 + np.flatnonzero((modes[1:] != modes[:-1]).any(axis=1))).tolist()]
    return list(zip(starts, [*starts[1:], len(modes)], strict=True))


def to_schedule(problem: Problem, modes: Ints) -> Schedule:
    """One step of each phase, the phases one after the other. `modes`: int64, shape (E, L)."""
    lowering = _Lowering(problem, modes)
    for first, end in phases_of(modes):
        lowering.phase(first, end)
    return lowering.schedule()


@dataclass
class _Lowering:
    """Tensors, ops and events in the making."""

    problem: Problem
    modes: Ints
    at_s: float = 0.0
    names: list[str] = field(default_factory=list)
    size_bytes: list[int] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    arrived: list[int] = field(default_factory=list)

    def tensor(self, name: str, size: int) -> int:
        self.names.append(name)
        self.size_bytes.append(size)
        return len(self.names) - 1

    def run(
        self, name: str, kind: str, engine: int, start_s: float, duration_s: float, reads: list[int],
        writes: list[int], frees: list[int], spends: tuple[tuple[int, float], ...] = (), mode: str = "",
    ) -> None:  # fmt: skip
        """One op, and the event that runs it."""
        implementation = Implementation(duration_s, name=mode, spends=spends)
        self.ops.append(Op(name, tuple(reads), tuple(writes), (implementation,), kind))
        event_kind = EventKind.COLLECTIVE if engine == _NETWORK else EventKind.COMPUTE
        freed = tuple((tensor, 0) for tensor in frees)
        self.events.append(Event(event_kind, start_s, start_s + duration_s, engine, len(self.ops) - 1, frees=freed))

    def phase(self, first: int, end: int) -> None:
        """A step of epochs first .. end - 1: forward, then bucket by bucket backward, compression and sends."""
        trace, step = self.problem.trace, self.problem.step
        title = f"epoch {first}" if end == first + 1 else f"epochs {first}-{end - 1}"
        times = step.timeline(self.modes[first])
        begin_s = self.at_s + trace.forward_s
        activations = self.tensor(f"{title}: activations", 0)
        self.run(f"{title}: forward", "forward", _COMPUTE, self.at_s, trace.forward_s, [], [activations], [])
        for number, group in enumerate(step.groups):
            self._bucket(title, number, group, range(first, end), begin_s, times, activations)
        self.at_s = begin_s + times.end_s

    def _bucket(
        self, title: str, number: int, group: tuple[int, int], epochs: range, begin_s: float, times: Timeline,
        activations: int,
    ) -> None:  # fmt: skip
        """The layers of a bucket; what they send and spoil counts where they are compressed."""
        trace, step, first = self.problem.trace, self.problem.step, epochs.start
        layers = range(group[0], group[1] + 1)
        at_s = begin_s + (float(times.compressed_s[number - 1]) if number else 0.0)
        gradients, messages = [], []
        for layer in layers:
            size, duration_s = FLOAT_BYTES * int(np.prod(trace.shapes[layer])), float(trace.backward_s[layer])
            gradients.append(self.tensor(f"{title}: {trace.layer_names[layer]}", size))
            self.run(f"{title}: backward {trace.layer_names[layer]}", "backward", _COMPUTE, at_s, duration_s,
                     [activations], gradients[-1:], [])  # fmt: skip
            at_s += duration_s
        for layer, gradient in zip(layers, gradients, strict=True):
            mode, name = trace.modes[self.modes[first, layer]], trace.layer_names[layer]
            sent = sent_bytes(mode, trace.shapes[layer])
            floats = sent / FLOAT_BYTES * int(trace.steps[epochs].sum())
            error = float(self.problem.error[epochs, layer, self.modes[first, layer]].sum())
            messages.append(self.tensor(f"{title}: message of {name}", sent))
            duration_s = float(step.compress_s[layer, self.modes[first, layer]])
            self.run(f"{title}: compress {name}", "encode", _COMPUTE, at_s, duration_s, [gradient], messages[-1:],
                     [gradient], ((0, floats), (1, error)), mode)  # fmt: skip
            at_s += duration_s
        self.arrived.append(self.tensor(f"{title}: bucket {number}", sum(self.size_bytes[each] for each in messages)))
        self.run(f"{title}: send bucket {number}", "collective", _NETWORK, begin_s + float(times.sending_s[number]),
                 float(times.send_s[number]), messages, self.arrived[-1:], messages)  # fmt: skip

    def schedule(self) -> Schedule:
        """All of it."""
        problem = self.problem
        data = problem.sent_bytes(self.modes) if problem.data_bytes is None else problem.data_bytes
        budgets = (Budget(DATA, data / FLOAT_BYTES), Budget(ERROR, problem.spoiled(self.modes)))
        graph = Graph(
            np.array(self.size_bytes, dtype=np.int64), tuple(self.ops),
            required=Placement.of([(tensor, 0) for tensor in self.arrived]), tensor_names=tuple(self.names),
            budgets=budgets,
        )  # fmt: skip
        topology = Topology("worker", (0,), engines=((0, "compute"), (0, "network")))
        count = len(phases_of(self.modes))
        name = f"{problem.trace.name}: {f'{count} phases' if count > 1 else 'one phase'}"
        return schedule_from_events(graph, topology, by_start(self.events), name)
