"""A flat program's steps as arrays, with every chunk that they touch, and the rounds in which they can run together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.program import READS_SOURCE, RECEIVING, SENDING, WRITES

__all__ = ["Columns", "columns_of", "runs"]

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Columns:
    """By flat number of a step: what it does, its count, its places, its block.

    `source`, `target`: (GPU and buffer as one number, see `places`) and the offsets `source_at`, `target_at`.
    `sent_by`: the step whose message a receiving step takes, -1 for none. `round`: that of a step comes after those of
    all steps that it must wait for.
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
    round: Numbers

    def places(self, bases: list[dict[str, int]], starts: Numbers) -> tuple[Numbers, Numbers]:
        """The first cells that steps read and write, in the memory of all GPUs; `starts[g]`: where GPU g's is in it."""
        table = np.array([[starts[gpu] + base[buffer] for buffer in "ios"] for gpu, base in enumerate(bases)]).ravel()
        return table[self.source] + self.source_at, table[self.target] + self.target_at


def columns_of(flat: Flat, trace: list[int]) -> Columns:
    """The arrays of a program that runs to its end in the order of `trace`."""
    steps = flat.steps
    kinds = np.array([step.type for step in steps])
    has = {name: np.isin(kinds, sorted(types)) for name, types in _TYPES.items()}
    block = np.array(flat.owner, dtype=np.int64)
    gpu = 3 * np.array([gpu for gpu, _ in flat.place], dtype=np.int64)[block]
    number = {"i": 0, "o": 1, "s": 2}
    sent_by = _sent_by(flat, has["sends"], has["receives"], block)
    return Columns(
        **has,
        cnt=np.where(kinds == "nop", 0, np.array([step.cnt for step in steps], dtype=np.int64)),
        source=gpu + np.array([number[step.srcbuf] for step in steps], dtype=np.int64),
        source_at=np.array([step.srcoff for step in steps], dtype=np.int64),
        target=gpu + np.array([number[step.dstbuf] for step in steps], dtype=np.int64),
        target_at=np.array([step.dstoff for step in steps], dtype=np.int64),
        block=block,
        sent_by=sent_by,
        round=_rounds(flat, trace, sent_by.tolist()),
    )


_TYPES = {
    "receives": RECEIVING, "sends": SENDING, "reads": READS_SOURCE, "adds": {"re"}, "writes": WRITES, "copies": {"cpy"}
}  # fmt: skip


def _sent_by(flat: Flat, sends: Flags, receives: Flags, block: Numbers) -> Numbers:
    """The k-th receive of a connection takes the k-th message that is sent on it."""
    found = np.full(len(block), -1, dtype=np.int64)
    steps, turns = [], []
    for flags, connections in ((sends, flat.outgoing), (receives, flat.incoming)):
        mine = np.flatnonzero(flags)
        connection = np.array(connections, dtype=np.int64)[block[mine]]
        order = np.argsort(connection, kind="stable")
        mine, connection = mine[order], connection[order]
        first = np.searchsorted(connection, connection)
        steps.append(mine)
        turns.append(connection * len(block) + np.arange(len(mine)) - first)
    at = np.searchsorted(turns[0], turns[1])
    is_there = at < len(turns[0])
    is_there[is_there] = turns[0][at[is_there]] == turns[1][is_there]
    found[steps[1][is_there]] = steps[0][at[is_there]]
    return found


def _rounds(flat: Flat, trace: list[int], sent_by: list[int]) -> Numbers:
    found = [0] * (len(sent_by) + 1)  # the last one is for -1
    last = [0] * len(flat.place)
    for number in trace:
        block = flat.owner[number]
        at = 1 + max(last[block], found[flat.awaited[number]], found[sent_by[number]])
        last[block] = found[number] = at
    return np.array(found[:-1], dtype=np.int64)


def runs(first: Numbers, counts: Numbers) -> Numbers:
    """All runs `first[k] .. first[k] + counts[k] - 1`, one after the other."""
    ends = np.cumsum(counts)
    return np.repeat(first - ends + counts, counts) + np.arange(ends[-1] if len(ends) else 0)
