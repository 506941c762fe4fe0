"""A flat program's steps as arrays, and the rounds in which they can run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.program import READS_SOURCE, RECEIVING, SENDING, WRITES

__all__ = ["Columns", "Flags", "Numbers", "columns_of", "rounds_of", "runs"]

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """By flat number of a step: what it does, its count, its places, its block.

    `source`, `target`: GPU and buffer as one number, see `places`; `source_at`, `target_at`: the offsets. `sent_by`:
    the step whose message a receiving step takes, -1 for none.
    """

    receives: Flags
    sends: Flags
    reads: Flags
    adds: Flags
    writes: Flags
    copies: Flags
    cnt: Numbers
    source: Numbers
    source_at: Numbers
    target: Numbers
    target_at: Numbers
    block: Numbers
    sent_by: Numbers

    def places(self, bases: list[dict[str, int]], starts: Numbers) -> tuple[Numbers, Numbers]:
        """The first cells that steps read and write, in the memory of all GPUs; `starts[g]`: where GPU g's is in it."""
        table = np.array([[starts[gpu] + base[buffer] for buffer in "ios"] for gpu, base in enumerate(bases)]).ravel()
        return table[self.source] + self.source_at, table[self.target] + self.target_at


def columns_of(flat: Flat) -> Columns:
    """The arrays of a program."""
    steps = flat.steps
    kinds = np.array([step.type for step in steps])
    has = {name: np.isin(kinds, sorted(types)) for name, types in _TYPES.items()}
    block = np.array(flat.owner, dtype=np.int64)
    gpu = 3 * np.array([gpu for gpu, _ in flat.place], dtype=np.int64)[block]
    number = {"i": 0, "o": 1, "s": 2}
    return Columns(
        **has,
        cnt=np.where(kinds == "nop", 0, np.array([step.cnt for step in steps], dtype=np.int64)),
        source=gpu + np.array([number[step.srcbuf] for step in steps], dtype=np.int64),
        source_at=np.array([step.srcoff for step in steps], dtype=np.int64),
        target=gpu + np.array([number[step.dstbuf] for step in steps], dtype=np.int64),
        target_at=np.array([step.dstoff for step in steps], dtype=np.int64),
        block=block,
        sent_by=_sent_by(flat, has["sends"], has["receives"], block),
    )


_TYPES = {
    "receives": RECEIVING, "sends": SENDING, "reads": READS_SOURCE, "adds": {"re"}, "writes": WRITES, "copies": {"cpy"}
}  # fmt: skip


def _sent_by(flat: Flat, sends: Flags, receives: Flags, block: Numbers) -> Numbers:
    """The k-th receive of a connection takes the k-th message that is sent on it."""
    found = np.full(len(block), -1, dtype=np.int64)
    sent, sent_turn = _turns(sends, flat.outgoing, block)
    received, turn = _turns(receives, flat.incoming, block)
    at = np.searchsorted(sent_turn, turn)
    is_there = at < len(sent_turn)
    is_there[is_there] = sent_turn[at[is_there]] == turn[is_there]
    found[received[is_there]] = sent[at[is_there]]
    return found


def rounds_of(flat: Flat, columns: Columns, slots: int | None = None, never: Flags | None = None) -> Numbers:
    """By step, the round in which it can run: after those of all steps that it waits for; 0 where it never can.

    A step waits for the one before it in its block, for its dependency, a receive for its message, and, where a
    connection holds `slots` messages, a send for the receive that makes room for it. `never`: steps that can't run.
    """
    numbers = np.arange(len(flat.steps))
    first = np.array(flat.first, dtype=np.int64)[columns.block]
    awaited = np.array(flat.awaited, dtype=np.int64)
    edges = [(numbers - 1, numbers, numbers > first), (awaited, numbers, awaited >= 0)]
    edges.append((columns.sent_by, numbers, columns.sent_by >= 0))
    if slots is not None:
        receives, sends = _room_makers(flat, columns, slots)
        edges.append((receives, sends, np.ones(len(sends), dtype=np.bool_)))
    before = np.concatenate([one[flags] for one, _, flags in edges])
    after = np.concatenate([other[flags] for _, other, flags in edges])
    missing = np.bincount(after, minlength=len(numbers))
    if never is not None:
        missing[never] += 1
    order = np.argsort(before, kind="stable")
    followers, counts = after[order], np.bincount(before, minlength=len(numbers))
    start = np.cumsum(counts) - counts
    found = np.zeros(len(numbers), dtype=np.int64)
    ready = np.flatnonzero(missing == 0)
    at = 0
    while len(ready):
        at += 1
        found[ready] = at
        released = followers[runs(start[ready], counts[ready])]
        np.subtract.at(missing, released, 1)
        ready = np.unique(released[missing[released] == 0])
    return found


def _room_makers(flat: Flat, columns: Columns, slots: int) -> tuple[Numbers, Numbers]:
    """Pairs of a receive and the send of its connection that waits for the room that it makes."""
    by_turn = _turns(columns.sends, flat.outgoing, columns.block)
    receives = np.flatnonzero(columns.sent_by >= 0)
    taken = columns.sent_by[receives]
    position = np.empty(len(flat.steps), dtype=np.int64)
    position[by_turn[0]] = np.arange(len(by_turn[0]))
    later = position[taken] + slots
    is_there = later < len(by_turn[0])
    later = np.where(is_there, later, 0)
    outgoing = np.array(flat.outgoing, dtype=np.int64)[columns.block]
    is_there &= outgoing[by_turn[0][later]] == outgoing[taken] if len(by_turn[0]) else False
    return receives[is_there], by_turn[0][later[is_there]]


def _turns(flags: Flags, connections: list[int], block: Numbers) -> tuple[Numbers, Numbers]:
    """Steps by connection, in order, and for each a number that says its connection and how many came before it."""
    mine = np.flatnonzero(flags)
    connection = np.array(connections, dtype=np.int64)[block[mine]]
    order = np.argsort(connection, kind="stable")
    mine, connection = mine[order], connection[order]
    return mine, connection * len(block) + np.arange(len(mine)) - np.searchsorted(connection, connection)


def runs(first: Numbers, counts: Numbers) -> Numbers:
    """All runs `first[k] .. first[k] + counts[k] - 1`, one after the other."""
    ends = np.cumsum(counts)
    return np.repeat(first - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)
