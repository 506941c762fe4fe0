"""A TACCL-EF program flat, its steps numbered across the program, as arrays, and the rounds in which they can run."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from gapless.array_types import Ints as Numbers
from gapless.array_types import Mask as Flags
from gapless.io.taccl_ef.program import (
    READS_SOURCE,
    RECEIVING,
    SENDING,
    WRITES,
    Problem,
    Program,
    Step,
    ThreadBlock,
    place_text,
)

__all__ = ["Columns", "Flags", "Flat", "Numbers", "columns_of", "flatten", "rounds_of", "runs"]


@dataclass(frozen=True)
class Flat:
    """Steps and blocks numbered across the whole program, GPU by GPU and block by block in order of their ids.

    Block b holds the steps `first[b] .. first[b + 1] - 1`; `owner[n]` is the block of step n. `place[b]` is its
    (gpu, tb), `first_block[g]` the first block of GPU g. `outgoing[b]`, `incoming[b]`: its connections, -1 without a
    peer. A connection is a (sender, receiver, channel), `sender[c]` and `receiver[c]` its blocks, -1 where that side is
    missing. `awaited[n]`: the step that step n's dependency names, -1 without one.
    """

    steps: list[Step]
    owner: list[int]
    first: list[int]
    place: list[tuple[int, int]]
    first_block: list[int]
    connections: list[tuple[int, int, int]]
    outgoing: list[int]
    incoming: list[int]
    sender: list[int]
    receiver: list[int]
    awaited: list[int]

    def where(self, step: int) -> tuple[int, int, int]:
        """(gpu, tb, step) of a step."""
        block = self.owner[step]
        return (*self.place[block], step - self.first[block])

    def name(self, step: int) -> str:
        """`gpu 0 tb 1 step 2`."""
        return place_text(*self.where(step))

    def transfers(self, connection: int) -> tuple[list[int], list[int]]:
        """The sending and the receiving steps of a connection, each in order: the k-th of both belong together."""
        sent = self._steps(self.sender[connection], SENDING)
        return sent, self._steps(self.receiver[connection], RECEIVING)

    def _steps(self, block: int, types: frozenset[str]) -> list[int]:
        if block < 0:
            return []
        return [step for step in range(self.first[block], self.first[block + 1]) if self.steps[step].type in types]


def flatten(program: Program) -> tuple[Flat, list[Problem]]:
    """The flat form, and what it can't hold: a connection claimed twice, a dependency on what does not exist.

    The program must have passed the rules of `SHAPELESS`. Of two blocks that claim a connection the first has it.
    """
    gpus = sorted(program.gpus, key=lambda gpu: gpu.id)
    blocks = [(gpu.id, block) for gpu in gpus for block in sorted(gpu.threadblocks, key=lambda block: block.id)]
    first = list(accumulate((len(block.steps) for _, block in blocks), initial=0))
    first_block = list(accumulate((len(gpu.threadblocks) for gpu in gpus), initial=0))
    problems: list[Problem] = []
    connections: dict[tuple[int, int, int], int] = {}
    outgoing = [_claim(connections, (gpu, block.send, block.chan), block.send) for gpu, block in blocks]
    incoming = [_claim(connections, (block.recv, gpu, block.chan), block.recv) for gpu, block in blocks]
    flat = Flat(
        steps=[step for _, block in blocks for step in block.steps],
        owner=[number for number, (_, block) in enumerate(blocks) for _ in block.steps],
        first=first,
        place=[(gpu, block.id) for gpu, block in blocks],
        first_block=first_block,
        connections=list(connections),
        outgoing=outgoing,
        incoming=incoming,
        sender=_holders(outgoing, "send", blocks, list(connections), problems),
        receiver=_holders(incoming, "recv", blocks, list(connections), problems),
        awaited=[
            _awaited(step, gpu, block, first_block, first, problems) for gpu, block in blocks for step in block.steps
        ],
    )
    return flat, problems


def _claim(connections: dict[tuple[int, int, int], int], triple: tuple[int, int, int], peer: int) -> int:
    return connections.setdefault(triple, len(connections)) if peer >= 0 else -1


def _holders(
    claims: list[int],
    title: str,
    blocks: list[tuple[int, ThreadBlock]],
    connections: list[tuple[int, int, int]],
    problems: list[Problem],
) -> list[int]:
    """The block of one side of each connection, -1 where there is none."""
    holders = [-1] * len(connections)
    for number, connection in enumerate(claims):
        if connection < 0:
            continue
        if holders[connection] < 0:
            holders[connection] = number
            continue
        gpu, block = blocks[number]
        source, target, channel = connections[connection]
        other = blocks[holders[connection]][1].id
        message = f"{title} of (sender {source}, receiver {target}, chan {channel}) belongs to tb {other} already"
        problems.append(Problem("triple", message, gpu, block.id))
    return holders


def _awaited(
    step: Step, gpu: int, block: ThreadBlock, first_block: list[int], first: list[int], problems: list[Problem]
) -> int:
    """The flat number of the step that a dependency names, -1 without one or where it does not exist."""
    if step.depid == -1:  # the parsers look at deps only where a block is named
        return -1
    message = ""
    target, count = first_block[gpu] + step.depid, first_block[gpu + 1] - first_block[gpu]
    if step.depid < 0 or step.deps < 0:
        message = f"depid and deps must both be -1 or both be >= 0, got {step.depid} and {step.deps}"
    elif step.depid >= count:
        message = f"depid must be a block of this GPU, 0..{count - 1}, got {step.depid}"
    elif step.deps >= first[target + 1] - first[target]:
        message = f"deps must be a step of tb {step.depid}, 0..{first[target + 1] - first[target] - 1}, got {step.deps}"
    if message:
        problems.append(Problem("dep-missing", message, gpu, block.id, step.s))
        return -1
    return first[target] + step.deps


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
    received, turn = _turns(receives, flat.incoming, block)
    found[received] = _of_turns(turn, *_turns(sends, flat.outgoing, block))
    return found


def rounds_of(
    flat: Flat,
    columns: Columns,
    slots: int | None = None,
    never: Flags | None = None,
    lasts: Numbers | None = None,
) -> Numbers:
    """By step, the round in which it can run: after those of all steps that it waits for; 0 where it never can.

    A step waits for the one before it in its block, for its dependency, a receive for its message, and, where a
    connection holds `slots` messages, a send for the receive that makes room for it. With 0, a send waits until the
    other side stands at the receive. `never`: steps that can't run. `lasts`: how many rounds each step takes, the last
    of which is returned; 1 where nothing is said.
    """
    numbers = np.arange(len(flat.steps))
    first = np.array(flat.first, dtype=np.int64)[columns.block]
    awaited = np.array(flat.awaited, dtype=np.int64)
    edges = [(numbers - 1, numbers, numbers > first), (awaited, numbers, awaited >= 0)]
    edges.append((columns.sent_by, numbers, columns.sent_by >= 0))
    if slots is not None:
        found_edges, lost = _room_makers(flat, columns, slots)
        edges += found_edges
        never = lost if never is None else never | lost
    before = np.concatenate([one[flags] for one, _, flags in edges])
    after = np.concatenate([other[flags] for _, other, flags in edges])
    missing = np.bincount(after, minlength=len(numbers))
    if never is not None:
        missing[never] += 1
    order = np.argsort(before, kind="stable")
    followers, counts = after[order], np.bincount(before, minlength=len(numbers))
    start = np.cumsum(counts) - counts
    found, waited = np.zeros((2, len(numbers)), dtype=np.int64)
    ready = np.flatnonzero(missing == 0)
    while len(ready):
        found[ready] = waited[ready] + (1 if lasts is None else lasts[ready])
        released = followers[runs(start[ready], counts[ready])]
        np.maximum.at(waited, released, np.repeat(found[ready], counts[ready]))
        np.subtract.at(missing, released, 1)
        ready = np.unique(released[missing[released] == 0])
    return found


def _room_makers(
    flat: Flat, columns: Columns, slots: int
) -> tuple[list[tuple[Numbers, Numbers, Flags]], Flags]:  # fmt: skip
    """What sends wait for until there is room, as pairs of steps of which some count; and sends for which none ever is.

    That is the receive of the message `slots` before. Without slots it is the step before the message's own receive,
    and that receive's dependency.
    """
    sends, turn = _turns(columns.sends, flat.outgoing, columns.block)
    waits = turn % len(columns.block) >= slots
    sends = sends[waits]
    receives = _of_turns(turn[waits] - slots, *_turns(columns.receives, flat.incoming, columns.block))
    lost = np.zeros(len(columns.block), dtype=np.bool_)
    lost[sends[receives < 0]] = True
    if slots:
        return [(receives, sends, receives >= 0)], lost
    first = np.array(flat.first, dtype=np.int64)[columns.block[receives]]
    awaited = np.array(flat.awaited, dtype=np.int64)[receives]
    is_there = receives >= 0
    return [(receives - 1, sends, is_there & (receives > first)), (awaited, sends, is_there & (awaited >= 0))], lost


def _of_turns(wanted: Numbers, steps: Numbers, turn: Numbers) -> Numbers:
    """The steps with some turns, -1 where no step has a turn; see `_turns`."""
    at = np.minimum(np.searchsorted(turn, wanted), len(turn) - 1)
    return np.where(turn[at] == wanted, steps[at], -1) if len(turn) else np.full(len(wanted), -1)


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
