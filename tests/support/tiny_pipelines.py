"""Pipelines so small that all of their orders can be tried."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import islice, product
from typing import Any

import numpy as np

from gapless.encodings.pipeline.cut.costs import even_cut, stages_of
from gapless.encodings.pipeline.order.orders import number, plain
from gapless.encodings.pipeline.order.room import peak_bytes
from gapless.encodings.pipeline.order.stages import Kind, Stages
from gapless.encodings.pipeline.order.timeline import timed
from gapless.encodings.pipeline.placement.named import rank_of_stages
from gapless.encodings.pipeline.problem import Problem, problem

MOST_ORDERS = 2500


def random_stages(seed: int, most_orders: int = MOST_ORDERS) -> Stages:
    """At most 3 ranks and 3 micro-batches, whole numbers for costs, hops shorter and longer than ops, memory for one
    micro-batch or more, in any placement; with so few orders that all can be tried."""
    rng = np.random.default_rng(seed)
    while True:
        stages = _random(rng)
        counts = [sum(1 for _ in islice(sequences(stages, rank), most_orders + 1)) for rank in range(stages.ranks)]
        if 1 < math.prod(counts) <= most_orders:
            return stages


def _random(rng: np.random.Generator) -> Stages:
    ranks, micro_batches = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    placement = str(rng.choice(["linear", "linear", "looped", "v"])) if ranks < 3 else "linear"
    chunks = 1 if placement == "linear" else 2
    rank, splits = rank_of_stages(placement, ranks, chunks), bool(rng.integers(3))
    count = len(rank)
    crosses = rank[1:] != rank[:-1]
    stash = rng.integers(1, 4, count)
    if rng.integers(2):
        stash[:] = 2
    recomputes = (rng.integers(3) == 0) & (rng.integers(2, size=count) == 0)
    whole = np.bincount(rank, weights=stash, minlength=ranks)
    room = whole * rng.integers(1, micro_batches + 1) + rng.integers(0, 3, ranks)
    replicas = rng.integers(2) * np.ones((1, count))
    longest = int(rng.choice([3, 12]))
    return Stages(
        ranks=ranks, micro_batches=micro_batches, rank=rank,
        forward_s=rng.integers(1, 9, count).astype(float), backward_s=rng.integers(1, 9, count).astype(float),
        weight_s=(rng.integers(0, 9, count) if splits else np.zeros(count)).astype(float), splits=splits,
        stash_bytes=stash, saved_bytes=np.minimum(stash, 1), recomputes=recomputes,
        weight_stash_bytes=stash if rng.integers(2) else rng.integers(0, stash + 1),
        state_bytes=np.ones(count, dtype=np.int64), parameter_bytes=np.ones(count, dtype=np.int64),
        boundary_bytes=np.ones(count - 1, dtype=np.int64), message_bytes=np.zeros((1, count - 1)),
        forward_hop_s=np.where(crosses, rng.integers(0, longest, count - 1), 0).astype(float),
        hop_s=np.where(crosses, rng.integers(0, longest, (1, count - 1)), 0).astype(float),
        encode_s=np.zeros((1, count - 1)), decode_s=np.zeros((1, count - 1)),
        reduce_s=replicas * rng.integers(0, 9, (1, count)), embedding_s=float(rng.integers(0, 2) * rng.integers(1, 6)),
        memory_bytes=room + np.bincount(rank, minlength=ranks), blocks=bool(rng.integers(4) == 0),
    )  # fmt: skip


def sequences(stages: Stages, rank: int) -> Iterator[list[int]]:
    """Every order of a rank's ops, first in, first out for each kind and stage, that stays within its memory.

    What follows from other ranks isn't looked at: some of these orders let ranks wait forever.
    """
    here = np.flatnonzero(stages.rank == rank).tolist()
    kinds = [Kind.FORWARD, Kind.BACKWARD, *([Kind.WEIGHT] if stages.splits else [])]
    kept = np.where(stages.recomputes, stages.saved_bytes, stages.stash_bytes)
    deferred = stages.weight_stash_bytes if stages.splits else np.zeros(stages.count)
    working = stages.stash_bytes if stages.working_bytes is None else stages.working_bytes
    full = np.maximum(np.maximum(working, kept), deferred)
    grows = {Kind.FORWARD: kept, Kind.BACKWARD: full - kept, Kind.WEIGHT: np.zeros(stages.count)}
    drops = {Kind.FORWARD: np.zeros(stages.count), Kind.BACKWARD: full - deferred, Kind.WEIGHT: deferred}
    room = float(stages.room_bytes[rank])

    def extend(done: dict[tuple[Kind, int], int], live: float, ops: list[int]) -> Iterator[list[int]]:
        if len(ops) == len(done) * stages.micro_batches:
            yield ops
        for kind, stage in done:
            at = done[kind, stage]
            is_open = at < stages.micro_batches and (kind is Kind.FORWARD or at < done[Kind(kind - 1), stage])
            other = stage + (stages.weighted if kind is Kind.BACKWARD else -stages.weighted)
            if stages.slices > 1 and kind is not Kind.WEIGHT and 0 <= other < stages.count:
                is_open = is_open and at < done[kind, other]  # of the slice whose turn is before
            after = live + grows[kind][stage]
            if is_open and after <= room:
                after -= drops[kind][stage]
                op = number(stages, kind, stage, at)
                yield from extend({**done, (kind, stage): at + 1}, after, [*ops, op])

    yield from extend(dict.fromkeys(product(kinds, here), 0), 0.0, [])


def best_cost_s(stages: Stages) -> float:
    """The least step time, or longest span, of all orders; each of them stays within memory."""
    best_s = math.inf
    for chosen in product(*(list(sequences(stages, rank)) for rank in range(stages.ranks))):
        timeline = timed(stages, plain(stages, list(chosen)))
        if timeline is not None:
            assert (peak_bytes(stages, timeline.program) <= stages.room_bytes).all()
            best_s = min(best_s, timeline.cost_s)
    return best_s


@cache
def tiny(seed: int) -> tuple[Stages, float]:
    """Random stages and the least step time of all of their orders."""
    stages = random_stages(seed)
    return stages, best_cost_s(stages)


@cache
def tiny_span(seed: int) -> tuple[Stages, float]:
    """The same where spans are minimised, and the least longest span, of fewer orders."""
    stages = replace(random_stages(seed, MOST_ORDERS // 8), by_span=True)
    return stages, best_cost_s(stages)


def trial(
    ranks: int, micro_batches: int, in_flight: int, placement: str = "linear", **values: Any
) -> tuple[Problem, Stages]:
    """Forward, backward and weight gradient of 10, 12 and 8 s, hops of 2 s."""
    asked: dict[str, Any] = {"profile": "uniform:f=10,b=12,w=8", "hop": 2.0, **values}
    question = problem(
        ranks=ranks, micro_batches=micro_batches, in_flight=in_flight, placement=placement, **asked
    )  # fmt: skip
    return question, stages_of(question, even_cut(question.profile.layer_count, question.stage_count))
