"""What the one-sided operations of a TACCL-EF program's steps need to know beyond the steps themselves.

A place is fresh where it is written once and holds nothing before: a put may go there as soon as its GPU has started.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.memory import layout
from gapless.io.taccl_ef.program import WRITES, Program, Step

__all__ = ["Acts", "Messages", "find_messages"]


@dataclass(frozen=True)
class Acts:
    """A sending or receiving step. `place`: where the data goes at the receiver.

    `signals_ready`: the receiver says that the place is free; `is_ready_from_start`: as soon as it starts.
    `signals_arrival`: it says that the data has come.
    """

    place: tuple[str, int] = ("", -1)
    signals_ready: bool = False
    is_ready_from_start: bool = False
    signals_arrival: bool = False


@dataclass(frozen=True)
class Messages:
    """Per connection its `kind` of channel; per step of `flat` its `acts`, and the semaphores of its GPU that it
    acquires before and releases after.

    `semaphores[g]`: GPU g's (releasing, acquiring) blocks. `staged_chunks[g]`: chunks of scratch for what is to be
    added. `bases[g]`: where GPU g's buffers start in its memory.
    """

    flat: Flat
    kind: list[str]
    acts: list[Acts]
    acquired: list[list[int]]
    released: list[list[int]]
    semaphores: list[list[tuple[int, int]]]
    staged_chunks: list[int]
    bases: list[dict[str, int]] = field(default_factory=list)

    def starts_ready(self, connection: int) -> bool:
        """Whether the receiver says at once that the first message may come."""
        _, received = self.flat.transfers(connection)
        return bool(received) and self.acts[received[0]].is_ready_from_start

    def cells(self, number: int, step: Step, side: str) -> range:
        """The cells of its GPU's memory that a step's source (`src`) or target (`dst`) is."""
        base = self.bases[self.flat.where(number)[0]]
        buffer, offset = (step.srcbuf, step.srcoff) if side == "src" else (step.dstbuf, step.dstoff)
        return range(base[buffer] + offset, base[buffer] + offset + step.cnt)

    def touched(self, number: int, step: Step) -> tuple[list[int], range]:
        """The cells that a local step, or the adding part of a receive, reads and writes."""
        reads = [*self.cells(number, step, "src")]
        if step.type == "re":
            reads += self.cells(number, step, "dst")
        if step.type == "rrc":
            place = self.acts[number].place
            start = self.bases[self.flat.where(number)[0]][place[0]] + place[1]
            reads += range(start, start + step.cnt)
        return reads, self.cells(number, step, "dst")


def find_messages(
    program: Program, flat: Flat, sizes: list[tuple[int, int]], node_of_rank: tuple[int, ...]
) -> Messages:
    """Look at all steps; `sizes[g]`: chunks of GPU g's input and output."""
    acquired, released, semaphores = _semaphores(flat)
    messages = Messages(
        flat=flat,
        kind=["memory" if node_of_rank[a] == node_of_rank[b] else "port" for a, b, _ in flat.connections],
        acts=[Acts()] * len(flat.steps),
        acquired=acquired,
        released=released,
        semaphores=semaphores,
        staged_chunks=[0] * len(sizes),
        bases=[layout(rank, *sizes[rank], program.inplace) for rank in range(len(sizes))],
    )
    scratch = [gpu.s_chunks for gpu in sorted(program.gpus, key=lambda gpu: gpu.id)]
    fillings = _fillings(messages, sizes, scratch)
    for connection, kind in enumerate(messages.kind):
        pairs = list(zip(*flat.transfers(connection), strict=True))
        for turn, (sent, received) in enumerate(pairs):
            source, target = flat.connections[connection][:2]
            step = flat.steps[received]
            place, is_fresh = (step.dstbuf, step.dstoff), True
            if step.type == "rrc":
                place = ("s", scratch[target] + messages.staged_chunks[target])
                messages.staged_chunks[target] += step.cnt
            else:
                is_fresh = bool((fillings[target][list(messages.cells(received, step, "dst"))] == 1).all())
            again = (fillings[source][list(messages.cells(sent, flat.steps[sent], "src"))] > 1).any()
            acts = Acts(
                place=place,
                signals_ready=turn == 0 or not is_fresh,
                is_ready_from_start=turn == 0 and is_fresh,
                signals_arrival=kind == "port" and (bool(again) or turn + 1 == len(pairs)),
            )
            messages.acts[sent] = messages.acts[received] = acts
    return messages


def _fillings(messages: Messages, sizes: list[tuple[int, int]], scratch: list[int]) -> list[NDArray[np.int64]]:
    """How often each cell of each GPU is filled: by the caller, or by a step."""
    fillings = []
    for rank, (inputs, _) in enumerate(sizes):
        base = messages.bases[rank]
        fillings.append(np.zeros(base["s"] + scratch[rank], dtype=np.int64))
        fillings[rank][base["i"] : base["i"] + inputs] = 1
    for number, step in enumerate(messages.flat.steps):
        if step.type in WRITES:
            fillings[messages.flat.where(number)[0]][list(messages.cells(number, step, "dst"))] += 1
    return fillings


def _semaphores(flat: Flat) -> tuple[list[list[int]], list[list[int]], list[list[tuple[int, int]]]]:
    """By step the semaphores that it acquires and releases, and by GPU the pair of blocks of each.

    A block that waited for a step of another one need not wait for an earlier step of that one again.
    """
    waits: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for number, target in enumerate(flat.awaited):
        pair = (flat.owner[target], flat.owner[number]) if target >= 0 else (-1, -1)
        if pair[0] != pair[1] and (pair not in waits or waits[pair][-1][0] < target):
            waits.setdefault(pair, []).append((target, number))
    acquired: list[list[int]] = [[] for _ in flat.steps]
    released: list[list[int]] = [[] for _ in flat.steps]
    by_gpu: list[list[tuple[int, int]]] = [[] for _ in flat.first_block[:-1]]
    for pair in sorted(waits):
        mine = by_gpu[flat.place[pair[0]][0]]
        for target, number in waits[pair]:
            released[target].append(len(mine))
            acquired[number].append(len(mine))
        mine.append(pair)
    return acquired, released, by_gpu
