"""From modes to a schedule in the graph IR: a step of each phase, on a worker with a compute stream and a network.

A phase is a run of epochs with the same modes. Its step stands for all of its steps: two ledgers beside the times have
what all of them send, recomputed from the shapes of the layers, and what they spoil.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.ranks.decision import phases_of
from gapless.encodings.ranks.problem import Problem
from gapless.ir.graph import Budget
from gapless.ir.schedule import EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder
from gapless.profiles.compressors.grammar import sent_bytes
from gapless.profiles.compressors.method import FLOAT_BYTES
from gapless.profiles.gradients.fusion import Timeline
from gapless.topologies.topology import Topology

__all__ = ["DATA", "ERROR", "to_schedule"]

DATA, ERROR = "floats sent", "compression error"
"""The ledgers."""

_COMPUTE, _NETWORK = 0, 1
Ints = NDArray[np.int64]


def to_schedule(problem: Problem, modes: Ints) -> Schedule:
    """One step of each phase, the phases one after the other. `modes`: int64, shape (E, L)."""
    lowering = _Lowering(problem, modes)
    for first, end in phases_of(modes):
        lowering.phase(first, end)
    return lowering.schedule()


@dataclass
class _Lowering:
    """The phases lowered so far, the last of which ends at `at_s`."""

    problem: Problem
    modes: Ints
    at_s: float = 0.0
    builder: ScheduleBuilder = field(default_factory=ScheduleBuilder)

    def phase(self, first: int, end: int) -> None:
        """A step of epochs first .. end - 1: forward, then bucket by bucket backward, compression and sends."""
        trace, step = self.problem.trace, self.problem.step
        title = f"epoch {first}" if end == first + 1 else f"epochs {first}-{end - 1}"
        times = step.timeline(self.modes[first])
        begin_s = self.at_s + trace.forward_s
        activations = self.builder.tensor(f"{title}: activations", 0)
        self.builder.compute(f"{title}: forward", "forward", _COMPUTE, self.at_s, trace.forward_s, (), (activations,))
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
            gradients.append(self.builder.tensor(f"{title}: {trace.layer_names[layer]}", size))
            name = f"{title}: backward {trace.layer_names[layer]}"
            at_s = self.builder.compute(name, "backward", _COMPUTE, at_s, duration_s, (activations,), gradients[-1:])
        for layer, gradient in zip(layers, gradients, strict=True):
            mode, name = trace.modes[self.modes[first, layer]], trace.layer_names[layer]
            sent = sent_bytes(mode, trace.shapes[layer])
            floats = sent / FLOAT_BYTES * int(trace.steps[epochs].sum())
            error = float(self.problem.error[epochs, layer, self.modes[first, layer]].sum())
            messages.append(self.builder.tensor(f"{title}: message of {name}", sent))
            duration_s = float(step.compress_s[layer, self.modes[first, layer]])
            at_s = self.builder.compute(
                f"{title}: compress {name}", "encode", _COMPUTE, at_s, duration_s, (gradient,), messages[-1:],
                ((gradient, 0),), spends=((0, floats), (1, error)), mode=mode,
            )  # fmt: skip
        arrived = self.builder.tensor(
            f"{title}: bucket {number}", sum(self.builder.size_bytes[each] for each in messages)
        )
        self.builder.required.append((arrived, 0, 0))
        self.builder.compute(
            f"{title}: send bucket {number}", "collective", _NETWORK, begin_s + float(times.sending_s[number]),
            float(times.send_s[number]), messages, (arrived,), [(message, 0) for message in messages],
            event=EventKind.COLLECTIVE,
        )  # fmt: skip

    def schedule(self) -> Schedule:
        """All of it."""
        problem = self.problem
        data = problem.sent_bytes(self.modes) if problem.data_bytes is None else problem.data_bytes
        budgets = (Budget(DATA, data / FLOAT_BYTES), Budget(ERROR, problem.spoiled(self.modes)))
        topology = Topology("worker", (0,), engines=((0, "compute"), (0, "network")))
        count = len(phases_of(self.modes))
        name = f"{problem.trace.name}: {f'{count} phases' if count > 1 else 'one phase'}"
        return self.builder.schedule(topology, name, budgets)
