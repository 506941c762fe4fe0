"""Stages: which rank runs them, and what each costs, once it is decided which layers are in it and which recompute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats, Ints, Mask

__all__ = [
    "ROUNDING",
    "STAGE_INPUT",
    "Cut",
    "Kind",
    "Span",
    "Stages",
    "rooms",
]

Cut = tuple[int, ...]
"""The first layer of each stage but the first, growing."""

ROUNDING = 1e-9
"""Whole but for the rounding errors of sums and products of floats."""

STAGE_INPUT = "stage input"
"""The policy of a stage that keeps its input alone and runs all of its forward again."""


class Kind(IntEnum):
    """What a rank computes for one stage and micro-batch."""

    FORWARD = 0
    BACKWARD = 1
    """The gradient of the input; that of the weights too where the two aren't split."""
    WEIGHT = 2


class Span(NamedTuple):
    """Bytes of each stage, int64 of shape (S,), that a micro-batch keeps from the start of one of its ops to the end of
    another, or of the same."""

    begin: Kind
    end: Kind
    size_bytes: Ints


def rooms(stages: Stages) -> dict[Kind, Ints]:
    """For how many micro-batches of a stage its rank has room at most, int64 of shape (S,), by the op whose end makes
    some: none of them at its backward yet, and none at its weight gradient. The next forward has its messages besides.
    At least 1, at most M.
    """
    most = {}
    lasting = np.minimum(stages.kept_bytes, stages.deferred_bytes)
    room_bytes = np.maximum(stages.room_bytes[stages.rank] - stages.forward_message_bytes, 0)
    parts = {Kind.WEIGHT: lasting} if stages.splits else {}
    earlier = stages.kept_bytes.reshape(-1, stages.depth)  # those of a micro-batch that began before are there, too
    kept_bytes = stages.kept_bytes if stages.slices == 1 else np.cumsum(earlier, axis=0).reshape(-1)
    for kind, kept in {Kind.BACKWARD: kept_bytes, **parts}.items():
        room = np.minimum(room_bytes, kept * float(stages.micro_batches))
        count = np.where(kept > 0, room // np.maximum(kept, 1), stages.micro_batches)
        most[kind] = count.astype(np.int64).clip(1, stages.micro_batches)
    return most


@dataclass(frozen=True)
class Stages:
    """Stages s in the order of the forward pass, for M micro-batches; S stages on P ranks.

    Where there are `copies` of the model, its stages come once for each copy, all of the first copy first; each copy
    is a chain of its own for M micro-batches of its own. What lies between the last stage of a copy and the first of
    the next one is no hop, and costs nothing.
    Where micro-batches are cut into `slices` of their sequence, stages come once for each slice, all of the first slice
    first, and each slice is such a chain, with costs of its own. On each stage a micro-batch's forwards go in the order
    of its slices, its backwards in the reverse. Weights are those of the first slice's stages.
    `rank[s]`: int64. `forward_s`, `backward_s`, `weight_s`: float, shape (S,), of one micro-batch; `backward_s` holds
    what is recomputed before it. Where `splits` is false the gradients of input and weights are one op, of
    `backward_s`, and `weight_s` is 0. `stash_bytes`, `weight_stash_bytes`: int64, shape (S,): what a micro-batch keeps
    for the gradient of the input, and what it keeps from there to the gradient of the weights. `recomputes[s]`: bool,
    only `saved_bytes` are kept until the backward, which runs some of the forward again, for `again_s` seconds, and
    holds `working_bytes` at most; shape (S,) each, None where all of it is run again. `policies[s]`: what of it is, by
    layers (see `cut.policies`).
    `work[m]`: what computing micro-batch m takes, as a multiple, None where all are alike; `feed[m]`: the number that
    it has in the question.
    `state_bytes`, `parameter_bytes`: int64, shape (S,). `boundary_bytes`: int64, shape (S - 1,), after stage s.
    `message_bytes`: float, shape (modes, S - 1): what a message over each boundary takes of the memory of its sender
    and its receiver, 0 where messages don't count.
    `forward_hop_s`: float, shape (S - 1,), from stage s to s + 1. `hop_s`, `encode_s`, `decode_s`: float, shape
    (modes, S - 1), for the gradient from s + 1 to s under each mode; mode 0 is plain. All hops are 0 within a rank.
    `reduce_s`: float, shape (modes, S): the sum among copies and replicas, of which `copies_s`, shape (S,), is that
    among copies; all copies of a stage are summed at once, and all of its slices have one sum. `embedding_s`: exchange
    of the shared embedding's gradient between the ranks of the first and the last stage, after their sums.
    `memory_bytes`: float, shape (P,), inf for no limit. `blocks`: whether a rank computes nothing while it sends.
    `overlap`: of the sum of a forward and a backward, what both take in one cell, no less than the longer one.
    `by_span`: whether the longest span of a rank is minimised, from its first op to its end, instead of the step's end.
    `steps`: those that follow one another in the same order, each rank on its own; the end of the last one counts.
    `is_whole`: whether all times are whole numbers, of ticks; then so is what a cell takes, rounded down.
    `offload_s`: float, shape (S,), how long a copy of what a micro-batch keeps takes to the rank's host, and back; None
    where there is no link to it. `host_bytes`: the most that the host of a rank may hold.
    """

    ranks: int
    micro_batches: int
    rank: Ints
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    splits: bool
    stash_bytes: Ints
    saved_bytes: Ints
    weight_stash_bytes: Ints
    recomputes: Mask
    state_bytes: Ints
    parameter_bytes: Ints
    boundary_bytes: Ints
    message_bytes: Floats
    forward_hop_s: Floats
    hop_s: Floats
    encode_s: Floats
    decode_s: Floats
    reduce_s: Floats
    embedding_s: float
    memory_bytes: Floats
    blocks: bool = False
    copies: int = 1
    copies_s: Floats | None = None
    by_span: bool = False
    overlap: float = 1.0
    steps: int = 1
    again_s: Floats | None = None
    working_bytes: Ints | None = None
    policies: tuple[str, ...] = ()
    work: Floats | None = None
    feed: tuple[int, ...] = ()
    slices: int = 1
    is_whole: bool = False
    offload_s: Floats | None = None
    host_bytes: float = np.inf

    @cached_property
    def count(self) -> int:
        """S, the number of stages."""
        return len(self.rank)

    @cached_property
    def depth(self) -> int:
        """The number of stages of one copy, and of one slice."""
        return self.count // (self.copies * self.slices)

    @property
    def chains(self) -> list[slice]:
        """The stages of each copy, and of each slice."""
        return [slice(first, first + self.depth) for first in range(0, self.count, self.depth)]

    @property
    def models(self) -> list[slice]:
        """The stages of each copy, with all of its slices."""
        each = self.count // self.copies
        return [slice(first, first + each) for first in range(0, self.count, each)]

    @cached_property
    def weighted(self) -> int:
        """How many stages have weights of their own: the first ones, of all copies, of one slice."""
        return self.count // self.slices

    @property
    def slice_turns(self) -> tuple[Ints, Ints]:
        """The stages of all slices but the last one, and the same of the slice after each; int64 of shape (n,)."""
        first = np.arange(self.count - self.weighted)
        return first, first + self.weighted

    def keeps_turns(self, sequences: Sequence[Ints]) -> bool:
        """Whether each rank runs a micro-batch's slices forth and back in their turns."""
        if self.slices == 1:
            return True
        place = np.zeros(sum(map(len, sequences)), dtype=np.int64)
        for sequence in sequences:
            place[sequence] = np.arange(len(sequence))
        (first, then), at = self.slice_turns, place.reshape(-1, self.count, self.micro_batches)
        goes_on = at[Kind.FORWARD, first] < at[Kind.FORWARD, then]
        comes_back = at[Kind.BACKWARD, then] < at[Kind.BACKWARD, first]
        return bool(goes_on.all() and comes_back.all())

    @property
    def is_repeated(self) -> bool:
        """Whether steps follow one another."""
        return self.by_span or self.steps > 1

    @property
    def offloads(self) -> bool:
        """Whether what micro-batches keep may be on the host between their forward and their backward."""
        return self.offload_s is not None

    def with_room(self, memory_bytes: Floats) -> Stages:
        """The same with so much memory on each rank, and no link to a host."""
        return replace(self, memory_bytes=memory_bytes, offload_s=None)

    @property
    def one_step(self) -> Stages:
        """The same where one step is minimised."""
        return replace(self, by_span=False, steps=1)

    @cached_property
    def firsts(self) -> Ints:
        """The first stage of each copy and slice, int64."""
        return np.arange(0, self.count, self.depth)

    @cached_property
    def lasts(self) -> Ints:
        """The last stage of each copy and slice, int64."""
        return self.firsts + self.depth - 1

    @property
    def hops(self) -> Ints:
        """The boundaries after which a micro-batch goes on, int64: all but those between copies, or slices."""
        return np.setdiff1d(np.arange(self.count - 1), self.lasts)

    def work_of(self, micro_batch: int) -> float:
        """What a micro-batch's computing takes, as a multiple of what stages say."""
        return 1.0 if self.work is None else float(self.work[micro_batch])

    def names(self, stage: int, micro_batch: int) -> tuple[int, int]:
        """How a micro-batch of a stage is called: those of the second copy go on after those of the first. Slices are
        numbered one after the other, through all micro-batches."""
        if self.slices > 1:
            return stage % self.depth, micro_batch * self.slices + stage // self.depth
        return stage, micro_batch + stage // self.depth * self.micro_batches

    @cached_property
    def crosses(self) -> Mask:
        """Whether there is a hop after stage s that leaves its rank, bool of shape (S - 1,)."""
        return np.asarray((self.rank[1:] != self.rank[:-1]) & np.isin(np.arange(self.count - 1), self.hops))

    @property
    def counts_messages(self) -> bool:
        """Whether messages take memory that has a limit."""
        return bool(self.message_bytes.any() and np.isfinite(self.memory_bytes).any())

    @property
    def forward_message_bytes(self) -> Floats:
        """The messages that a stage's forward uses and makes, float of shape (S,)."""
        size = self.message_bytes[0]
        return np.asarray(np.concatenate([[0.0], size]) + np.concatenate([size, [0.0]]))

    @cached_property
    def is_pressed(self) -> bool:
        """Whether some rank has no room for all that its micro-batches keep and all of their messages at once."""
        if not self.counts_messages:
            return False
        each = self.full_bytes + 2 * self.forward_message_bytes
        all_bytes = self.micro_batches * np.bincount(self.rank, weights=each, minlength=self.ranks)
        return bool((all_bytes > self.room_bytes).any())

    @property
    def room_bytes(self) -> Floats:
        """What is left on each rank for what micro-batches keep, float of shape (P,); below 0 where there is none."""
        return self.memory_bytes - np.bincount(self.rank, weights=self.state_bytes, minlength=self.ranks)

    @property
    def last(self) -> Kind:
        """The kind of a micro-batch's last op on a stage."""
        return Kind.WEIGHT if self.splits else Kind.BACKWARD

    @property
    def sums_after_sends(self) -> bool:
        """Whether a stage's sum waits for the last send of its rank only where gradients are split, so that an order of
        whole backwards can beat all orders of split ones."""
        return bool(self.blocks and self.splits and self.reduce_s.any())

    @property
    def kept_bytes(self) -> Ints:
        """What a micro-batch keeps from its forward to its backward, int64 of shape (S,)."""
        return np.where(self.recomputes, self.saved_bytes, self.stash_bytes)

    @property
    def deferred_bytes(self) -> Ints:
        """What it keeps from the end of its backward to that of its weight gradient, int64 of shape (S,)."""
        return self.weight_stash_bytes if self.splits else np.zeros_like(self.stash_bytes)

    @property
    def full_bytes(self) -> Ints:
        """What it keeps while its backward runs, the most of all, int64 of shape (S,)."""
        working = self.stash_bytes if self.working_bytes is None else self.working_bytes
        return np.maximum(np.maximum(self.kept_bytes, self.deferred_bytes), working)

    @property
    def rerun_s(self) -> Floats:
        """Of each backward what is forward that runs again, float of shape (S,)."""
        again_s = self.forward_s if self.again_s is None else self.again_s
        return np.where(self.recomputes, again_s, 0.0)

    @cached_property
    def spans(self) -> tuple[Span, ...]:
        """What a micro-batch keeps on each stage, by the ops with which each part comes and goes."""
        kept, deferred, last = self.kept_bytes, self.deferred_bytes, self.last
        lasting = np.minimum(kept, deferred)
        spans = (Span(Kind.FORWARD, last, lasting), Span(Kind.FORWARD, Kind.BACKWARD, kept - lasting),
                 Span(Kind.BACKWARD, last, deferred - lasting),
                 Span(Kind.BACKWARD, Kind.BACKWARD, self.full_bytes - np.maximum(kept, deferred)))  # fmt: skip
        return tuple(span for span in spans if span.size_bytes.any())

    @property
    def changes(self) -> tuple[Floats, Floats]:
        """Bytes that an op of a kind and stage takes when it starts, and leaves when it ends, float of shape (3, S)."""
        takes, leaves = (np.zeros((len(Kind), self.count)) for _ in range(2))
        for span in self.spans:
            takes[span.begin] += span.size_bytes
            leaves[span.end] += span.size_bytes
        return takes, leaves

    def first_s(self, start_s: Floats) -> Floats:
        """When each rank starts its first op, of the starts of all ops by number, float of shape (P,)."""
        found = np.full(self.ranks, np.inf)
        np.minimum.at(found, self.rank, start_s[: self.count * self.micro_batches : self.micro_batches])
        return found

    @property
    def exchange_s(self) -> Floats:
        """What each stage waits for after its sum: the shared embedding's exchange, on the ranks that have a part."""
        return np.where(np.isin(self.rank, self.rank[[0, -1]]), self.embedding_s, 0.0)

    @property
    def has_cells(self) -> bool:
        """Whether a forward and a backward may run in one cell."""
        return self.overlap < 1

    def cell_s(self, forward_s: Floats | float, backward_s: Floats | float) -> Floats:
        """What a forward and a backward of these durations take in one cell; all broadcast."""
        both_s = self._rounded(np.asarray(self.overlap * (forward_s + backward_s)))
        return np.asarray(np.maximum(both_s, np.maximum(forward_s, backward_s)))

    @cached_property
    def least_s(self) -> list[Floats]:
        """How long a forward and a backward of each stage load their rank at least, float of shape (2, S), in each way
        to count: both parts of a cell together never more than the cell takes, whichever two of the rank's stages are
        in it. In proportion; or all of the backward, or of the forward, and what is left of the shortest cell.
        """
        own_s = np.stack([self.forward_s, self.backward_s])
        if not self.has_cells:
            return [own_s]
        cells_s, here = self.cell_s(own_s[0][:, None], own_s[1]), self.rank[:, None] == self.rank
        both_s = own_s[0][:, None] + own_s[1]
        shares = np.where(here & (both_s > 0), cells_s / np.where(both_s > 0, both_s, 1.0), 1.0)
        least = np.array([shares[self.rank == rank].min() for rank in range(self.ranks)])
        rest_s = [
            np.where(here, cells_s - full, np.inf).min(axis=axis)
            for full, axis in ((own_s[1], 1), (own_s[0][:, None], 0))
        ]
        return [
            self._rounded(own_s * least[self.rank]),
            np.stack([rest_s[0], own_s[1]]),
            np.stack([own_s[0], rest_s[1]]),
        ]

    def _rounded(self, times: Floats) -> Floats:
        """Down, where times are whole."""
        return np.floor(times * (1 + ROUNDING) + ROUNDING) if self.is_whole else times

    @property
    def compute_s(self) -> Floats:
        """Seconds of one micro-batch on each rank, plain, float of shape (P,)."""
        each_s = self.forward_s + self.backward_s + self.weight_s
        return np.bincount(self.rank, weights=each_s, minlength=self.ranks).astype(np.float64)
