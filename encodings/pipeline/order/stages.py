"""Stages: which rank runs them, and what each costs, once it is decided which layers are in it and which recompute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gapless.array_types import Floats, Ints, Mask

__all__ = ["PLACEMENTS", "Cut", "Stages", "rank_of_stages"]

Cut = tuple[int, ...]
"""The first layer of each stage but the first, growing."""

PLACEMENTS = ("linear", "looped", "v")
"""`linear`: one stage a rank. `looped`: around all ranks as often as there are chunks (interleaved stages). `v`: down
and up again, chunk after chunk, so that a rank that runs the first stage runs the last one too (of two chunks)."""


def rank_of_stages(placement: str, ranks: int, chunks: int) -> Ints:
    """The rank of each stage, int64 of shape (ranks * chunks,)."""
    down = np.arange(ranks)
    if placement == "v":
        return np.concatenate([down[::-1] if chunk % 2 else down for chunk in range(chunks)])
    return np.tile(down, chunks)


@dataclass(frozen=True)
class Stages:
    """Stages s in the order of the forward pass, for M micro-batches; S stages on P ranks.

    `rank[s]`: int64. `forward_s`, `backward_s`, `weight_s`: float, shape (S,), of one micro-batch; `backward_s` holds
    what is recomputed before it. Where `splits` is false the gradients of input and weights are one op, of
    `backward_s`, and `weight_s` is 0. `stash_bytes`, `input_bytes`: int64, shape (S,): what a micro-batch keeps until
    its weight gradient, and how much of it is the stage's input. `recomputes[s]`: bool, only the input is kept until
    the backward.
    `state_bytes`, `parameter_bytes`: int64, shape (S,). `boundary_bytes`: int64, shape (S - 1,), after stage s.
    `forward_hop_s`: float, shape (S - 1,), from stage s to s + 1. `hop_s`, `encode_s`, `decode_s`: float, shape
    (modes, S - 1), for the gradient from s + 1 to s under each mode; mode 0 is plain. All hops are 0 within a rank.
    `reduce_s`: float, shape (modes, S): the sum among replicas. `embedding_s`: exchange of the shared embedding's
    gradient between the ranks of the first and the last stage, after their sums.
    `memory_bytes`: float, shape (P,), inf for no limit. `blocks`: whether a rank computes nothing while it sends.
    """

    ranks: int
    micro_batches: int
    rank: Ints
    forward_s: Floats
    backward_s: Floats
    weight_s: Floats
    splits: bool
    stash_bytes: Ints
    input_bytes: Ints
    recomputes: Mask
    state_bytes: Ints
    parameter_bytes: Ints
    boundary_bytes: Ints
    forward_hop_s: Floats
    hop_s: Floats
    encode_s: Floats
    decode_s: Floats
    reduce_s: Floats
    embedding_s: float
    memory_bytes: Floats
    blocks: bool = False

    @property
    def count(self) -> int:
        """S, the number of stages."""
        return len(self.rank)

    @property
    def crosses(self) -> Mask:
        """Whether the hop after stage s leaves its rank, bool of shape (S - 1,)."""
        return np.asarray(self.rank[1:] != self.rank[:-1])

    @property
    def room_bytes(self) -> Floats:
        """What is left on each rank for what micro-batches keep, float of shape (P,); below 0 where there is none."""
        return self.memory_bytes - np.bincount(self.rank, weights=self.state_bytes, minlength=self.ranks)

    @property
    def kept_bytes(self) -> Ints:
        """What a micro-batch keeps from its forward on, int64 of shape (S,); `stash_bytes` from its backward on."""
        return np.where(self.recomputes, self.input_bytes, self.stash_bytes)

    @property
    def exchange_s(self) -> Floats:
        """What each stage waits for after its sum: the shared embedding's exchange, on the ranks that have a part."""
        return np.where(np.isin(self.rank, self.rank[[0, -1]]), self.embedding_s, 0.0)

    @property
    def compute_s(self) -> Floats:
        """Seconds of one micro-batch on each rank, plain, float of shape (P,)."""
        each_s = self.forward_s + self.backward_s + self.weight_s
        return np.bincount(self.rank, weights=each_s, minlength=self.ranks).astype(np.float64)
