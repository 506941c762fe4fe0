"""A step of a pipeline in the making: the tensors of its micro-batches by name, ops on ranks, cells, and messages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gapless.encodings.pipeline.compression.modes import Spoiling, compressor_bytes
from gapless.encodings.pipeline.order.orders import Order, Timeline
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.problem import Problem
from gapless.ir.schedule_builder import ScheduleBuilder

__all__ = ["PLAIN", "StepBuilder"]

PLAIN = 0
"""The mode of what is not compressed."""

_KEPT = {(Kind.FORWARD, Kind.WEIGHT): "kept", (Kind.FORWARD, Kind.BACKWARD): "stash",
         (Kind.BACKWARD, Kind.WEIGHT): "deferred", (Kind.BACKWARD, Kind.BACKWARD): "recomputed"}  # fmt: skip
"""What micro-batches keep, by the ops with which it comes and goes."""


class _Half(NamedTuple):
    """A forward or a backward of a cell: what `run` takes."""

    name: str
    stage: int
    start_s: float
    duration_s: float
    reads: list[int]
    writes: list[int]
    frees: list[int]


@dataclass
class StepBuilder:
    """A step in the making; `ids` numbers the tensors by name; `named`: what `at` gave; `cell`: the halves of the cell
    that is open, None where none is. `step`: the one that `timeline` is of; micro-batches of later ones are numbered
    on.

    Where there are two copies of the model, each rank has one more link, to the rank that has the same stages, over
    which it sums gradients.
    """

    problem: Problem
    stages: Stages
    order: Order
    timeline: Timeline
    spoiling: Spoiling | None
    cell: list[_Half] | None = None
    step: int = 0
    ids: dict[str, int] = field(default_factory=dict)
    named: dict[tuple[int, int, int], str] = field(default_factory=dict)
    builder: ScheduleBuilder = field(default_factory=lambda: ScheduleBuilder(counts_contributions=True))

    def __post_init__(self) -> None:
        stages, hops = self.stages, np.flatnonzero(self.stages.crosses)
        ends = zip(stages.rank[hops].tolist(), stages.rank[hops + 1].tolist(), strict=True)
        pairs = {pair for a, b in ends for pair in ((a, b), (b, a))}
        self.links = {pair: k for k, pair in enumerate(sorted(pairs))}
        self.shared_bytes = self.problem.profile.embedding_bytes if stages.embedding_s else 0
        self.kept_bytes = compressor_bytes(self.problem, stages, self.order)
        self.spans = {begin: [self._spans(stage, begin) for stage in range(stages.count)] for begin in Kind}
        for stage in range(stages.weighted):
            gradient_bytes = int(stages.parameter_bytes[stage])
            self.tensor(f"state {stage}", int(stages.state_bytes[stage]) - gradient_bytes)
            if self.kept_bytes[stage]:
                self.tensor(f"compressors {stage}", self.kept_bytes[stage])

    def _spans(self, stage: int, begin: Kind) -> list[tuple[str, float, Kind]]:
        """What a micro-batch keeps from that op of the stage on: name, bytes, and the op with which it goes."""
        return [
            (_KEPT[begin, span.end], span.size_bytes[stage], span.end)
            for span in self.stages.spans
            if span.begin is begin and span.size_bytes[stage]
        ]

    def is_end(self, stage: int) -> bool:
        """Whether it is the first or the last one, which may share an embedding."""
        return stage in (0, self.stages.weighted - 1)

    def at(self, stage: int, micro_batch: int) -> str:
        """The names of both."""
        key = self.step, stage, micro_batch
        found = self.named.get(key)
        if found is None:
            stage, named = self.stages.names(stage, micro_batch)
            found = self.named[key] = f"{stage} {named + self.step * self.contributions}"
        return found

    def of_step(self, name: str) -> str:
        """The name of what each step has anew."""
        return f"{name} of step {self.step}" if self.step else name

    def tensor(self, name: str, size_bytes: float = 0) -> int:
        """Its number; where it is named first it gets its size."""
        found = self.ids.get(name)
        if found is None:
            found = self.ids[name] = self.builder.tensor(name, size_bytes)
        return found

    def run(
        self, name: str, kind: str, stage: int, start_s: float, duration_s: float, reads: list[int], writes: list[int],
        frees: list[int], adds: int | None = None, spends: float = 0.0, mode: str = "",
    ) -> float:  # fmt: skip
        """An op on its stage's rank, and the event that runs it; its end. What it reads and writes, it updates."""
        rank = int(self.stages.rank[stage])
        if self.cell is not None:
            return self._into_cell(_Half(name, stage, start_s, duration_s, reads, writes, frees))
        return self.builder.compute(
            name, kind, rank, start_s, duration_s, reads, writes, [(tensor, rank) for tensor in frees],
            spends=((0, spends),) if spends else (), mode=mode, adds=adds,
            updates=tuple(tensor for tensor in reads if tensor in writes),
        )  # fmt: skip

    def _into_cell(self, half: _Half) -> float:
        """The forward waits for the backward, and then both are one op; the end of both."""
        assert self.cell is not None
        self.cell.append(half)
        own = [each.duration_s for each in self.cell]
        if len(self.cell) == 1:
            return half.start_s
        forward, backward = self.cell
        duration_s, self.cell = self.stages.cell_s(*own).item(), None
        name = f"{forward.name} {backward.name}"
        return self.run(name, "cell", half.stage, half.start_s, duration_s, [*forward.reads, *backward.reads],
                        [*forward.writes, *backward.writes], [*forward.frees, *backward.frees])  # fmt: skip

    def send(self, what: str, size_bytes: int, source: int, target: int, start_s: float, hop_s: float) -> None:
        """A message from a stage to its neighbour; the sender's copy goes when it is there.

        Where sends block, the sender's engine is held as long as a message takes, and then it is there.
        """
        here, there = int(self.stages.rank[source]), int(self.stages.rank[target])
        message = self.tensor(what, size_bytes)
        if self.stages.blocks:
            posted = self.tensor(f"posted {what}", size_bytes)
            start_s = self.run(f"send {what}", "send", source, start_s, hop_s, [message], [posted], [message])
            hop_s, message = 0.0, posted
        self.builder.move(self.links[here, there], (message,), start_s, hop_s, freed_on=(here,))

    def offload(self, stage: int, micro_batch: int, direction: int) -> None:
        """What a micro-batch keeps goes to the host of its rank (0), or comes back (1), if it does."""
        stages, times = self.stages, self.timeline.offloaded_s
        if times is None or stages.offload_s is None or np.isnan(times[direction, stage, micro_batch]):
            return
        rank = int(stages.rank[stage])
        there, link = (rank, stages.ranks + rank)[direction], self.host_links + direction * stages.ranks + rank
        start_s, copy_s = float(times[direction, stage, micro_batch]), float(stages.offload_s[stage])
        self.builder.move(link, list(self.kept(stage, micro_batch, Kind.FORWARD)), start_s, copy_s, freed_on=(there,))

    @property
    def host_links(self) -> int:
        """The first of the links to hosts: behind those of the pipeline, and of a shared embedding."""
        return len(self.links) + (2 if self.stages.embedding_s else 0)

    def arriving(self, what: str, source: int, target: int) -> int:
        """The message as the receiver has it."""
        crosses = self.stages.rank[source] != self.stages.rank[target]
        size_bytes = self._message_bytes(what, min(source, target))  # its receiver may come first
        return self.tensor(f"posted {what}" if crosses and self.stages.blocks else what, size_bytes)

    def _message_bytes(self, what: str, hop: int) -> float:
        kind, _, micro_batch = what.rsplit(" ", 2)
        if kind != "encoded gradient":
            return int(self.stages.boundary_bytes[hop])
        return self.encoded_bytes(hop, int(micro_batch) % self.stages.micro_batches)

    def encoded_bytes(self, hop: int, micro_batch: int) -> float:
        """What is sent of the gradient that goes from stage hop + 1 to hop."""
        mode, plain_bytes = int(self.order.hop_modes[hop, micro_batch]), int(self.stages.boundary_bytes[hop])
        if mode == PLAIN:
            return plain_bytes
        ratio = self.problem.modes[mode - 1].hop_ratio(self.problem.profile.boundary_shape)
        return float(np.rint(plain_bytes * ratio))

    def kept(self, stage: int, micro_batch: int, begin: Kind) -> dict[int, Kind]:
        """What is kept of a micro-batch from that op on: tensors, and the kind of op with which each goes."""
        at = self.at(stage, micro_batch)
        return {self.tensor(f"{name} {at}", size): end for name, size, end in self.spans[begin][stage]}

    def sums(self, stage: int) -> list[int]:
        """What the stage's micro-batches add to; copies of the model have the same, and each sums a half."""
        stage %= self.stages.weighted
        size = int(self.stages.parameter_bytes[stage])
        if self.stages.copies > 1:
            name = f"gradients {stage % self.stages.depth}"
            parts = {f"{name} a": size // 2, f"{name} b": size - size // 2}
        else:
            shared_bytes = self.shared_bytes if self.is_end(stage) else 0
            parts = {f"gradients {stage}": size - shared_bytes}
            parts |= {f"embedding gradients {stage}": shared_bytes} if shared_bytes else {}
        return [self.tensor(self.of_step(name), size) for name, size in parts.items()]

    @property
    def contributions(self) -> int:
        """What is added to a stage's gradients in a step: that of each micro-batch, or slice of one."""
        return self.stages.copies * self.stages.slices * self.stages.micro_batches

    @property
    def all_contributions(self) -> int:
        """Every contribution to the step, as bits."""
        return ((1 << self.contributions) - 1) << (self.step * self.contributions)
