"""What a rank does, or a pair of links, apart from all others: how long, in which order, between which times.

All that a micro-batch passes but its weight gradients is one chain, through its copy of the model: forwards and
activations up to the last stage, input gradients and their messages back to the first. What happens elsewhere is a lag
between two of its links.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from gapless.array_types import Floats, Ints
from gapless.encodings.pipeline.bounds.heads import Heads
from gapless.encodings.pipeline.order.messages import waiting_links
from gapless.encodings.pipeline.order.stages import Kind, Stages

__all__ = ["Activities", "Lag", "Memory", "of_links", "of_rank", "passes_s"]


class Lag(NamedTuple):
    """Of the same micro-batch, activity `after` starts no sooner than `by` after the start of `before`."""

    before: int
    after: int
    by: float


@dataclass(frozen=True)
class Memory:
    """From the start of activity `begins[k]` to the end of `ends[k]` a micro-batch keeps `sizes[k]` of `room` units."""

    begins: Ints
    ends: Ints
    sizes: Ints
    room: int


@dataclass(frozen=True)
class Activities:
    """K activities, each done once for each of M micro-batches, first in, first out; times in the stages' unit.

    `hold`: float, shape (K,), how long each holds its machine. `head`, `rest`: float, shape (K, M), the least start,
    and the least from a start to the step's end. `machines`: which activities share one. `memory`: None where there is
    enough for all.
    """

    hold: Floats
    head: Floats
    rest: Floats
    lags: tuple[Lag, ...]
    machines: tuple[Ints, ...]
    memory: Memory | None = None


def of_rank(heads: Heads, rank: int, parts_s: Floats | None = None) -> Activities:
    """The ops of a rank, in the order of kinds, and within a kind of stages. `parts_s`: one of `stages.least_s`.

    In a cell it is as if the forward held the rank for its part first, and the backward for its own from then on: so
    what comes after the backward comes sooner after its start, by as much as its part is shorter.
    """
    stages, kinds = heads.stages, len(heads.own_s)
    held_s, own_s = heads.held_s, heads.own_s
    if stages.has_cells:
        held_s, own_s = held_s.copy(), own_s.copy()
        held_s[: Kind.WEIGHT] = stages.least_s[0] if parts_s is None else parts_s
        own_s[Kind.BACKWARD] = held_s[Kind.BACKWARD]
    here = np.flatnonzero(stages.rank == rank)
    turn = np.stack([here, 2 * stages.count - here]).reshape(-1)
    chain = np.tile(here // stages.depth, 2)
    hold, own, head, tail = (
        column[:, here].reshape(kinds * len(here), *column.shape[2:])
        for column in (held_s, own_s, heads.head_s, heads.tail_s)
    )
    rest = own[:, None] + tail
    late = np.concatenate([np.zeros(len(here)), (heads.own_s - own_s)[Kind.BACKWARD, here]])
    lags = _chained(chain, turn, passes_s(heads)[:, here].reshape(-1), late) + _slice_turns(stages, here, hold)
    if stages.splits:
        lags += [Lag(k, k + len(here), float(hold[k])) for k in range(len(here), 2 * len(here))]
    return Activities(hold, head, rest, tuple(lags), (np.arange(len(hold)),), _memory(stages, rank, here))


def of_links(heads: Heads) -> Iterator[Activities]:
    """The messages between two ranks, in both directions, where one of them could wait for another."""
    stages, links = heads.stages, waiting_links(heads.stages)
    for a, b in sorted({(min(link), max(link)) for link in links}):
        sends = [links.get((a, b), []), links.get((b, a), [])]
        kind, hop = np.array(sends[0] + sends[1], dtype=np.int64).T
        maker, user = hop + kind, hop + 1 - kind
        own_s, hop_s = heads.own_s[kind, maker], np.stack([stages.forward_hop_s, stages.hop_s.min(axis=0)])[kind, hop]
        rest = hop_s[:, None] + heads.own_s[kind, user, None] + heads.tail_s[kind, user]
        machines = np.split(np.arange(len(hop)), [len(sends[0])])
        lags = _chained(maker // stages.depth, np.where(kind == Kind.FORWARD, maker, 2 * stages.count - maker),
                        passes_s(heads)[kind, maker] + own_s, np.zeros(len(hop)))  # fmt: skip
        yield Activities(hop_s, heads.head_s[kind, maker] + own_s[:, None], rest, tuple(lags),
                         tuple(own for own in machines if len(own)))  # fmt: skip


def passes_s(heads: Heads) -> Floats:
    """When a micro-batch that never waits would come to its forwards and backwards, float of shape (2, S)."""
    return np.concatenate([_pass(heads, chain) for chain in heads.stages.chains], axis=1)


def _pass(heads: Heads, chain: slice) -> Floats:
    """Through the stages of a copy, or of a slice."""
    stages, hops = heads.stages, slice(chain.start, chain.stop - 1)
    own_s = heads.own_s[:, chain]
    forward_s = np.concatenate([[0.0], np.cumsum(own_s[Kind.FORWARD, :-1] + stages.forward_hop_s[hops])])
    back_s = own_s[Kind.BACKWARD, 1:] + stages.hop_s[:, hops].min(axis=0)
    later = heads.own_s[:, stages.depth * np.arange(chain.stop // stages.depth + 1, stages.slices + 1) - 1]
    turn_s = forward_s[-1] + own_s[Kind.FORWARD, -1] + later[: Kind.WEIGHT].sum()  # of later slices, forth and back
    return np.stack([forward_s, turn_s + np.concatenate([np.cumsum(back_s[::-1])[::-1], [0.0]])])


def _chained(chain: Ints, turn: Ints, when: Floats, late: Floats) -> list[Lag]:
    """Between what a micro-batch of a copy comes to one after the other: in its `turn`, and `when` it does; it may
    start so `late` that it ends when it would.
    """
    turns = np.lexsort((turn, chain)).tolist()
    return [Lag(a, b, float(when[b] - when[a] - late[a])) for a, b in pairwise(turns) if chain[a] == chain[b]]


def _slice_turns(stages: Stages, here: Ints, hold: Floats) -> list[Lag]:
    """Between the slices of a micro-batch on a rank, which go forth one after the other, and back in reverse."""
    if stages.slices == 1:
        return []
    forward = np.arange(len(here)).reshape(stages.slices, -1)
    pairs = list(zip(forward[:-1].reshape(-1).tolist(), forward[1:].reshape(-1).tolist(), strict=True))
    back = [(then + len(here), first + len(here)) for first, then in pairs]
    return [Lag(before, after, float(hold[before])) for before, after in (*pairs, *back)]


def _memory(stages: Stages, rank: int, here: Ints) -> Memory | None:
    """What micro-batches keep on a rank, None where there is room for all of them."""
    room_bytes = float(stages.room_bytes[rank])
    if stages.full_bytes[here].sum() * stages.micro_batches <= room_bytes:
        return None
    own = np.arange(len(here))
    parts = [(span.begin * len(here) + own, span.end * len(here) + own, span.size_bytes[here]) for span in stages.spans]
    begins, ends, sizes = (np.concatenate([part[k] for part in parts])[_keeps(parts)] for k in range(3))
    unit = int(np.gcd.reduce(sizes))
    return Memory(begins, ends, sizes // unit, int(max(room_bytes, 0.0) // unit))


def _keeps(parts: list[tuple[Ints, Ints, Ints]]) -> Ints:
    return np.flatnonzero(np.concatenate([sizes for _, _, sizes in parts]))
