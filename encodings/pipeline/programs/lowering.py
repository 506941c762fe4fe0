"""From an order and its timeline to a schedule in the graph IR: a device a rank, messages on links, micro-batches as
contributions to the gradients of weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats
from gapless.encodings.pipeline.compression.modes import Spoiling
from gapless.encodings.pipeline.order.orders import Order, Timeline, number
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import steps_of
from gapless.encodings.pipeline.problem import Problem
from gapless.encodings.pipeline.programs.step_builder import PLAIN, StepBuilder
from gapless.ir.graph import Budget, Implementation, Op
from gapless.ir.schedule import Event, EventKind, Schedule
from gapless.ir.schedule_builder import no_collection
from gapless.topologies.topology import Link, Topology

__all__ = ["ERROR", "to_schedule"]

ERROR = "compression error"
"""The budget of what compression spoils."""


def to_schedule(
    problem: Problem, stages: Stages, order: Order, timeline: Timeline, spoiling: Spoiling | None = None
) -> Schedule:
    """One training step: every forward, backward, weight gradient, message and sum at its time; or all of the steps
    that follow one another, with an update of each stage's weights between two of them.

    A rank's memory holds its states, what compressors and micro-batches keep, and messages until they are sent or used;
    where the question doesn't count messages, there is room for all of them and for compressors besides.
    """
    lowering = _Lowering(problem, stages, order, timeline, spoiling)
    with no_collection():
        for step, own in enumerate(steps_of(stages, order) if stages.steps > 1 else [timeline]):
            lowering.step, lowering.timeline = step, own
            lowering.lower()
        return lowering.schedule()


@dataclass
class _Lowering(StepBuilder):
    """Appends the ops of micro-batches, sums and updates, step by step."""

    def lower(self) -> None:
        """A step."""
        stages, lower = self.stages, (self.forward, self.backward, self.weight)
        for op in self.timeline.events.tolist():  # what takes no time is played in this order
            if op < 0:
                self.pass_on(~op)
                continue
            kind, place = divmod(op, stages.count * stages.micro_batches)
            if op in self.order.cells:
                self.cell = []
            lower[kind](*divmod(place, stages.micro_batches))
        for stage in range(stages.depth) if stages.copies > 1 else ():
            self.sum_copies(stage)
        for stage in range(stages.weighted):
            self.reduce(stage)
        if stages.embedding_s:
            self.exchange_embedding()
        for stage in range(stages.count) if stages.is_repeated else ():  # a span lasts until weights can be updated
            self.update(stage)

    def forward(self, stage: int, micro_batch: int) -> None:
        """Reads what the stage before it sent; keeps the stash, or only its input where that is recomputed."""
        stages, at = self.stages, self.at(stage, micro_batch)
        op = number(stages, Kind.FORWARD, stage, micro_batch)
        done = self.tensor(f"done {at}")
        reads, used = [self.tensor(f"state {stage % stages.weighted}"), *self._updated(stage)], list[int]()
        if stage >= stages.weighted:  # a token attends to those of the slices before
            reads.append(self.tensor(f"done {self.at(stage - stages.weighted, micro_batch)}"))
        writes = [done, *self.kept(stage, micro_batch, Kind.FORWARD)]
        if stage % stages.depth:
            used.append(self.arriving(f"activation {self.at(stage - 1, micro_batch)}", stage - 1, stage))
        is_last = (stage + 1) % stages.depth == 0
        if not is_last:
            writes.append(self.tensor(f"activation {at}", stages.boundary_bytes[stage]))
        start_s, duration_s = float(self.timeline.start_s[op]), float(stages.forward_s[stage])
        duration_s *= stages.work_of(micro_batch)
        self.run(f"F {at}", "forward", stage, start_s, duration_s, reads + used, writes, used)
        for direction in range(2):
            self.offload(stage, micro_batch, direction)

    def backward(self, stage: int, micro_batch: int) -> None:
        """Decodes what the stage after it sent, runs the forward again where that is so, and encodes what it sends."""
        stages, at = self.stages, self.at(stage, micro_batch)
        at_s = float(self.timeline.start_s[number(stages, Kind.BACKWARD, stage, micro_batch)])
        kept, made = self.kept(stage, micro_batch, Kind.FORWARD), self.kept(stage, micro_batch, Kind.BACKWARD)
        used = [self.tensor(f"done {at}")]
        follows = bool(stage % stages.depth)  # a stage before it
        if (stage + 1) % stages.depth:
            at_s, gradient = self._received(stage, micro_batch, at_s)
            used.append(gradient)
        if stage + stages.weighted < stages.count:  # the gradients of its keys and values from the slices after
            used.append(self.tensor(f"attended {self.at(stage + stages.weighted, micro_batch)}"))
        duration_s = stages.work_of(micro_batch) * float(stages.backward_s[stage])
        if stages.recomputes[stage]:
            again = self.tensor(f"again {at}")
            again_s = stages.work_of(micro_batch) * float(stages.rerun_s[stage])
            at_s = self.run(f"R {at}", "recompute", stage, at_s, again_s, [used[0], *kept], [again, *made], [])
            kept, made, used = kept | made, {}, [*used, again]
            duration_s -= again_s
        writes = list[int]()
        if follows:
            writes.append(self.tensor(f"gradient {self.at(stage - 1, micro_batch)}", stages.boundary_bytes[stage - 1]))
        pending = self.tensor(f"pending {at}")
        frees = [*used, *(tensor for tensor, end in kept.items() if end is Kind.BACKWARD)]
        name = "I" if stages.splits else "B"
        writes += [pending, *made, *([self.tensor(f"attended {at}")] if stage >= stages.weighted else [])]
        at_s = self.run(f"{name} {at}", "backward", stage, at_s, duration_s, [*kept, *used], writes, frees)
        if not stages.splits:
            self._accumulate(f"A {at}", "accumulate", stage, micro_batch, at_s, 0.0, [pending])
        if follows and stages.crosses[stage - 1]:
            self._encode(stage - 1, micro_batch, at_s)

    def _received(self, stage: int, micro_batch: int, at_s: float) -> tuple[float, int]:
        """When the gradient of the stage's output can be used, and its tensor."""
        name, mode = self.at(stage, micro_batch), int(self.order.hop_modes[stage, micro_batch])
        if mode == PLAIN or not self.stages.crosses[stage]:
            return at_s, self.arriving(f"gradient {name}", stage + 1, stage)
        message = self.arriving(f"encoded gradient {name}", stage + 1, stage)
        gradient = self.tensor(f"decoded gradient {name}", self.stages.boundary_bytes[stage])
        decode_s = float(self.stages.decode_s[mode, stage])
        return self.run(f"decode {name}", "decode", stage, at_s, decode_s, [message], [gradient], [message]), gradient

    def _encode(self, hop: int, micro_batch: int, at_s: float) -> None:
        """The gradient that goes to that stage, as its mode says."""
        name, mode = self.at(hop, micro_batch), int(self.order.hop_modes[hop, micro_batch])
        if mode == PLAIN:
            return
        assert self.spoiling is not None
        message = self.tensor(f"encoded gradient {name}", self.encoded_bytes(hop, micro_batch))
        gradient, spends = self.tensor(f"gradient {name}"), float(self.spoiling.hop[mode, hop])
        encode_s, named = float(self.stages.encode_s[mode, hop]), self.problem.modes[mode - 1].name
        self.run(f"encode {name}", "encode", hop + 1, at_s, encode_s, [gradient], [message], [gradient],
                 spends=spends, mode=named)  # fmt: skip

    def pass_on(self, message: int) -> None:
        """A message, by its number: an activation to the stage after its own, or a gradient to the one before."""
        stages = self.stages
        hops, micro_batch = divmod(message, stages.micro_batches)
        direction, hop = divmod(hops, stages.count - 1)
        sent_s, name = float(self.timeline.sent_s[direction, hop, micro_batch]), self.at(hop, micro_batch)
        if not direction:
            hop_s = float(stages.forward_hop_s[hop])
            self.send(f"activation {name}", int(stages.boundary_bytes[hop]), hop, hop + 1, sent_s, hop_s)
            return
        mode = int(self.order.hop_modes[hop, micro_batch])
        what, size_bytes = "gradient" if mode == PLAIN else "encoded gradient", self.encoded_bytes(hop, micro_batch)
        self.send(f"{what} {name}", int(size_bytes), hop + 1, hop, sent_s, float(stages.hop_s[mode, hop]))

    def weight(self, stage: int, micro_batch: int) -> None:
        """Adds the micro-batch to the stage's gradients, and lets go of what was kept of it."""
        stages, at = self.stages, self.at(stage, micro_batch)
        start_s = float(self.timeline.start_s[number(stages, Kind.WEIGHT, stage, micro_batch)])
        kept = self.kept(stage, micro_batch, Kind.FORWARD) | self.kept(stage, micro_batch, Kind.BACKWARD)
        used = [*(tensor for tensor, end in kept.items() if end is Kind.WEIGHT), self.tensor(f"pending {at}")]
        duration_s = stages.work_of(micro_batch) * float(stages.weight_s[stage])
        self._accumulate(f"W {at}", "weight", stage, micro_batch, start_s, duration_s, used)

    def _accumulate(
        self, name: str, kind: str, stage: int, micro_batch: int, start_s: float, duration_s: float, used: list[int]
    ) -> None:
        """The micro-batch's part of the gradients is added to them, and what it was computed from goes."""
        sums = self.sums(stage)
        adds = int(self.at(stage, micro_batch).rsplit(" ", 1)[1])
        self.run(name, kind, stage, start_s, duration_s, used + sums, sums, used, adds=adds)

    def _updated(self, stage: int) -> list[int]:
        """What a forward of a later step waits for: that the weights are updated."""
        return [self.tensor(f"updated {stage} for step {self.step}")] if self.step else []

    def update(self, stage: int) -> None:
        """A stage's weights, when its rank is done, by gradients that have every micro-batch; then the next step's."""
        rank, sums = int(self.stages.rank[stage]), self.sums(stage)
        at_s, needed = float(self.timeline.finish_s[rank]), list(sums)
        if self.shared_bytes and self.is_end(stage):
            needed.append(self.sums(self.stages.count - 1 - stage)[-1])
        if self.problem.replicas.count > 1:
            needed.append(self.tensor(self.of_step(f"summed {stage}")))
        needs, is_last = dict.fromkeys(needed, self.all_contributions), self.step + 1 == self.stages.steps
        frees = [] if is_last else [(tensor, rank) for tensor in needed]
        name = f"U {stage} {self.step}"
        token = self.tensor(f"updated {stage} for step {self.step + 1}")
        op = Op(name, tuple(needed), (token,), (Implementation(0.0),), "update", needs=needs)
        self.builder.run(op, rank, at_s, at_s, frees)
        if not is_last:
            self.step += 1
            anew = self.sums(stage)
            self.step -= 1
            self.builder.compute(f"zero {stage} {self.step}", "update", rank, at_s, 0.0, [], anew)

    def sum_copies(self, stage: int) -> None:
        """The ranks of a stage's two copies each sum up a half of its gradients, and then send it to one another."""
        stages, (a, b) = self.stages, self.sums(stage)
        assert stages.copies_s is not None
        first, second = int(stages.rank[stage]), int(stages.rank[stage + stages.depth])
        step_s = float(stages.copies_s[stage]) / 2
        begin_s = float(self.timeline.reduced_s[stage] - stages.reduce_s[0, stage])
        steps = ((first, b), (second, a)), ((first, a), (second, b))
        for reduces, start_s, moves in zip((True, False), (begin_s, begin_s + step_s), steps, strict=True):
            for source, tensor in moves:
                link, end_s = len(self.links) + source, start_s + step_s
                event = Event(EventKind.TRANSFER, start_s, end_s, link, moves=(tensor,), reduces=reduces)
                self.builder.events.append(event)

    def reduce(self, stage: int) -> None:
        """The sum among replicas, on the rank's network engine, of gradients to which every micro-batch was added."""
        stages, mode = self.stages, int(self.order.reduce_modes[stage])
        duration_s = float(stages.reduce_s[mode, stage] - (0.0 if stages.copies_s is None else stages.copies_s[stage]))
        if self.problem.replicas.count == 1:
            return
        sums = self.sums(stage)
        summed = self.tensor(self.of_step(f"summed {stage}"))
        spends = 0.0 if self.spoiling is None else float(self.spoiling.reduce[mode, stage])
        name = "" if mode == PLAIN else self.problem.modes[mode - 1].name
        implementation = Implementation(duration_s, name=name, spends=((0, spends),) if spends else ())
        needs = dict.fromkeys(sums, self.all_contributions)
        op = Op(f"sum {stage}", tuple(sums), (summed,), (implementation,), "sum", needs=needs)
        end_s, engine = float(self.timeline.reduced_s[stage]), stages.ranks + int(stages.rank[stage])
        self.builder.run(op, engine, end_s - duration_s, end_s, kind=EventKind.COLLECTIVE)

    def exchange_embedding(self) -> None:
        """The ranks of the first and the last stage send each other their gradient of the shared weights."""
        stages, ends = self.stages, [0, self.stages.weighted - 1]
        start_s = float(self.timeline.reduced_s[np.isin(stages.rank, stages.rank[ends])].max())
        end_s, shared = start_s + stages.embedding_s, [self.sums(stage)[-1] for stage in ends]
        for side, moved in enumerate(shared):
            link = len(self.links) + side
            self.builder.events.append(Event(EventKind.TRANSFER, start_s, end_s, link, moves=(moved,)))

    def schedule(self) -> Schedule:
        """All of it."""
        stages, rank, builder = self.stages, self.stages.rank.tolist(), self.builder
        required = self._gradients()
        if self.problem.replicas.count > 1:
            summed = (self.tensor(self.of_step(f"summed {stage}")) for stage in range(stages.weighted))
            required += zip(summed, rank, strict=False)
        if self.shared_bytes:
            first, last = self.sums(0)[-1], self.sums(stages.weighted - 1)[-1]
            required += [(first, rank[-1]), (last, rank[0])]
        builder.required += [(*copy, self.all_contributions) for copy in required]
        self.step = 0
        builder.initial += [(self.tensor(f"state {stage}"), rank[stage], 0) for stage in range(stages.weighted)]
        builder.initial += [(*copy, 0) for copy in self._gradients()]
        for stage in np.flatnonzero(self.kept_bytes).tolist():
            builder.initial.append((self.tensor(f"compressors {stage}"), rank[stage], 0))
        name = f"{self.problem.profile.name} on {stages.ranks} ranks, {stages.micro_batches} micro-batches"
        name += f", {stages.steps} steps" if stages.steps > 1 else ""
        budgets = () if self.spoiling is None else (Budget(ERROR, self.spoiling.budget),)
        return builder.schedule(self._topology(), name, budgets)

    def _gradients(self) -> list[tuple[int, int]]:
        """A step's, on their ranks."""
        rank = self.stages.rank.tolist()
        return [(tensor, rank[stage]) for stage in range(self.stages.weighted) for tensor in self.sums(stage)]

    def _topology(self) -> Topology:
        """The ranks with a compute and a network engine each, the links that the pipeline uses, and hosts behind the
        ranks, where there are links to them."""
        stages, hops = self.stages, self.problem.hops
        links = [Link(a, b, *((0.0, 0.0) if stages.blocks else hops.cost(a, b))) for a, b in self.links]
        if stages.embedding_s:
            first, last = int(stages.rank[0]), int(stages.rank[-1])
            links += [Link(a, b, stages.embedding_s, 0.0) for a, b in ((first, last), (last, first))]
        if stages.copies > 1:
            pairs = enumerate(reversed(range(stages.ranks)))
            links += [Link(a, b, *hops.cost(a, b)) for a, b in pairs]
        link, devices, memory_bytes = self.problem.link, tuple(range(stages.ranks)), self._memory_bytes().tolist()
        if link is not None:
            links += link.links(stages.ranks)
            devices, memory_bytes = 2 * devices, [*memory_bytes, *[stages.host_bytes] * stages.ranks]
        engines = [(rank, name) for name in ("compute", "network") for rank in range(stages.ranks)]
        return Topology(
            self.problem.profile.name, devices, tuple(links), engines=tuple(engines), memory_bytes=tuple(memory_bytes),
        )  # fmt: skip

    def _memory_bytes(self) -> Floats:
        """The question's; where messages don't count there is room for all of them, and for compressors."""
        stages = self.stages
        if self.problem.counts_messages:
            return stages.memory_bytes
        messages = np.zeros(stages.ranks)
        for hop, size in enumerate(stages.boundary_bytes.tolist()):
            for stage in (hop, hop + 1):
                messages[stages.rank[stage]] += 4 * size * stages.micro_batches
        messages[stages.rank[[0, -1]]] += self.shared_bytes
        messages += np.bincount(stages.rank, self.kept_bytes, stages.ranks)
        return np.asarray(stages.memory_bytes + messages)
