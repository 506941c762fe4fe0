"""Orders: what each rank does one after the other, and the times that it takes them."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.order.stages import Cut, Kind, Stages

__all__ = ["Candidate", "Order", "Posts", "Timeline", "durations", "number", "plain"]


def number(stages: Stages, kind: Kind, stage: int, micro_batch: int) -> int:
    """The op's number: kind * S * M + stage * M + micro-batch."""
    return (kind * stages.count + stage) * stages.micro_batches + micro_batch


@dataclass(frozen=True)
class Posts:
    """When messages may leave, by number. `after`: the op of the receiver whose end lets a message leave, -1 for none.
    `queues`: the messages of each link as they leave. `before`: for an op of a sender, those that have to be gone
    before it starts. `behind`: for a message, those that have to be gone before it leaves.
    """

    after: Ints
    queues: list[Ints]
    behind: dict[int, list[int]] = field(default_factory=dict)
    before: dict[int, list[int]] = field(default_factory=dict)


@dataclass(frozen=True)
class Order:
    """What is decided once the layers are cut.

    `sequences[r]`: int64, numbers of ops in the order in which rank r runs them. `hop_modes`: int64, shape (S - 1, M):
    the mode of the gradient that goes from stage s + 1 to s. `reduce_modes`: int64, shape (S,). Mode 0 is plain.
    `messages`: int64 each, a directed link's messages (by number, see `order.messages`) in the order in which they
    leave; on other links they leave in the order in which they are computed, as they do everywhere where sends block.
    `posts`: what messages and ops wait for where ranks lack room for messages; None where `order.room` says it.
    `cells`: numbers of forwards that run in one cell with the backward that follows them on their rank: both begin
    when both can, and both end at once.
    """

    sequences: tuple[Ints, ...]
    hop_modes: Ints
    reduce_modes: Ints
    messages: tuple[Ints, ...] = ()
    posts: Posts | None = None
    cells: frozenset[int] = frozenset()

    @property
    def partners(self) -> dict[int, int]:
        """Of the forward in each cell, the number of the backward."""
        pairs = (pair for sequence in self.sequences for pair in pairwise(sequence.tolist())) if self.cells else ()
        return {forward: backward for forward, backward in pairs if forward in self.cells}


def plain(stages: Stages, sequences: list[list[int]]) -> Order:
    """An order in which nothing is compressed."""
    hops = np.zeros((stages.count - 1, stages.micro_batches), dtype=np.int64)
    columns = tuple(np.array(sequence, dtype=np.int64) for sequence in sequences)
    return Order(columns, hops, np.zeros(stages.count, dtype=np.int64))


@dataclass(frozen=True)
class Timeline:
    """An order's earliest times; seconds.

    `start_s`, `end_s`: float, shape (ops,), by number; decoding before and encoding after a gradient are in it.
    `sent_s`: float, shape (2, S - 1, M): when the forward's and the backward's messages leave. `reduced_s`: float,
    shape (S,), the end of each stage's sum. `finish_s`: float, shape (P,), when each rank is done. `step_s`: their
    latest. `program`: int64, shape (ops,), numbers of ops, each behind those that it waits for, at equal times too.
    `passed`: int64, shape (2, messages): those that go to another rank, by number, as they leave, at equal times too,
    and how many ops of the program are before each.
    `offloaded_s`: float, shape (2, S, M), when a copy to the host begins, and one back; nan where what is kept stays.
    `run_s`: the end of the last step, where many follow one another; the times are those of a step whose longest span
    is the least, as they are where spans are minimised.
    """

    start_s: Floats
    end_s: Floats
    sent_s: Floats
    reduced_s: Floats
    finish_s: Floats
    step_s: float
    program: Ints
    span_s: float
    passed: Ints
    by_span: bool = False
    run_s: float | None = None
    offloaded_s: Floats | None = None

    @property
    def cost_s(self) -> float:
        """What is minimised: the span, the end of the last of many steps, or the step."""
        if self.run_s is not None:
            return self.run_s
        return self.span_s if self.by_span else self.step_s

    @property
    def events(self) -> Ints:
        """Ops and messages, each behind those that it waits for; int64, `~number` for a message."""
        messages, places = self.passed
        return np.insert(self.program, places, ~messages)

    @property
    def turns(self) -> tuple[Ints, Ints]:
        """The places in `events` of ops, shape (ops,), and of messages, shape of `sent_s`; 0 of those in a rank."""
        events, ops, messages = self.events, np.empty_like(self.program), np.zeros(self.sent_s.size, dtype=np.int64)
        ops[self.program] = np.flatnonzero(events >= 0)
        messages[self.passed[0]] = np.flatnonzero(events < 0)
        return ops, messages.reshape(self.sent_s.shape)

    @property
    def offloaded(self) -> Ints:
        """The forwards of which what is kept goes to a host, int64, by number."""
        return np.flatnonzero(np.zeros(0) if self.offloaded_s is None else np.isfinite(self.offloaded_s[0].reshape(-1)))

    @property
    def spread_s(self) -> float:
        """Between the first and the last rank's end."""
        return float(self.finish_s.max() - self.finish_s.min())

    @property
    def rank(self) -> tuple[float, float]:
        """What is minimised; among equal spans the step, among equal steps the spread of the ranks' ends."""
        if self.run_s is not None:
            return self.run_s, self.span_s
        return (self.span_s, self.step_s) if self.by_span else (self.step_s, self.spread_s)


@dataclass(frozen=True)
class Candidate:
    """An order of some stages that stays within memory, and what made it."""

    method: str
    cut: Cut
    stages: Stages
    order: Order
    timeline: Timeline

    @property
    def rank(self) -> tuple[float, float]:
        """What is minimised, and what decides among equals."""
        return self.timeline.rank


def durations(stages: Stages, order: Order) -> Floats:
    """Seconds that each op holds its rank, encoding and decoding with it; float of shape (ops,)."""
    shape = (stages.count, stages.micro_batches)
    backward_s = np.broadcast_to(stages.backward_s[:, None], shape).copy()
    if stages.count > 1:
        hop = np.arange(stages.count - 1)[:, None]
        backward_s[:-1] += stages.decode_s[order.hop_modes, hop]
        backward_s[1:] += stages.encode_s[order.hop_modes, hop]
    kinds = [np.broadcast_to(stages.forward_s[:, None], shape), backward_s]
    if stages.splits:
        kinds.append(np.broadcast_to(stages.weight_s[:, None], shape))
    if stages.work is not None:
        kinds = [kind * stages.work for kind in kinds]
    return np.concatenate([kind.reshape(-1) for kind in kinds])
