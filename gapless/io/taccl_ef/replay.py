"""The data side of a run: what every step of a program reads, receives, adds and writes, round after round."""

from __future__ import annotations

import numpy as np

from gapless.io.taccl_ef.columns import Columns, Numbers, runs
from gapless.io.taccl_ef.flat import Flat
from gapless.io.taccl_ef.memory import ELEMENTS, Memory
from gapless.io.taccl_ef.program import Problem

__all__ = ["replay"]


def replay(flat: Flat, columns: Columns, rounds: Numbers, memory: Memory) -> list[Problem]:
    """Apply all steps to the memory, round after round; returns reads of nothing, and messages of another count.

    Steps of one round don't wait for each other, so that they may run together; if two of them touch one chunk, they
    race, which races.py finds.
    """
    order = np.argsort(rounds, kind="stable")
    counts = columns.cnt[order]
    step = np.repeat(order, counts)
    k = runs(np.zeros(len(order), dtype=np.int64), counts)
    source, target = (first[step] + k for first in columns.places(memory.bases, memory.starts))
    first_message = np.cumsum(columns.cnt) - columns.cnt
    outgoing = first_message[step] + k
    sent_by = columns.sent_by[step]
    comes = columns.receives[step] & (k < columns.cnt[sent_by])
    incoming = first_message[sent_by] + k
    messages = np.zeros((int(columns.cnt.sum()), ELEMENTS), dtype=np.int64)
    ends = np.searchsorted(rounds[step], np.arange(1, int(rounds.max(initial=0)) + 2))
    reads, adds, writes, sends = (each[step] for each in (columns.reads, columns.adds, columns.writes, columns.sends))
    unwritten: list[tuple[Numbers, bool]] = []
    for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        value = np.zeros((end - begin, ELEMENTS), dtype=np.int64)
        here = begin + np.flatnonzero(comes[begin:end])
        value[here - begin] = messages[incoming[here]]
        for flags, cells, is_target in ((reads, source, False), (adds, target, True)):
            here = begin + np.flatnonzero(flags[begin:end])
            value[here - begin] += memory.store[cells[here]]
            unwritten.append((step[here[~memory.store_is_written[cells[here]]]], is_target))
        here = begin + np.flatnonzero(writes[begin:end])
        memory.store[target[here]] = value[here - begin]
        memory.store_is_written[target[here]] = True
        here = begin + np.flatnonzero(sends[begin:end])
        messages[outgoing[here]] = value[here - begin]
    problems = [
        _unwritten(flat, number, is_target) for numbers, is_target in unwritten for number in np.unique(numbers)
    ]
    return problems + _mismatches(flat, columns)


def _unwritten(flat: Flat, number: int, is_target: bool) -> Problem:
    step = flat.steps[number]
    name = f"{step.dstbuf}[{step.dstoff}]" if is_target else f"{step.srcbuf}[{step.srcoff}]"
    text = f"reads {step.cnt} chunks from {name} on, where nothing was written before"
    return Problem("unwritten-read", text, *flat.where(number))


def _mismatches(flat: Flat, columns: Columns) -> list[Problem]:
    is_other = columns.receives & (columns.cnt != columns.cnt[columns.sent_by])
    return [
        Problem(
            "cnt-mismatch",
            f"takes {columns.cnt[number]} chunks of a message of {columns.cnt[columns.sent_by[number]]}",
            *flat.where(number),
        )
        for number in np.flatnonzero(is_other).tolist()
    ]
