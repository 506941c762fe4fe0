"""Lookahead by table: several processes look ahead, each for its own tables, and their steps are put together.

What happens to an id depends on the batches that use it and on nothing else, so tables may be looked at apart (section
5.2.5): for 1,000 features on ten processes, each decides for its 100. The caller's thread reads the trace and hands
each process its columns; steps come back batch by batch. They say the same as those of one process; only the cache rows
have other numbers, those of process k of n being k, k + n, k + 2 n, ...

A cache size is of all tables together, and L would have to shrink in all processes at once: L must be given.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from typing import IO, Any

import numpy as np

from gapless.encodings.bagpipe.lookahead.steps import Step, lookahead_steps
from gapless.errors import GaplessError, InputError, SolverError
from gapless.processes.workers import own_group
from gapless.profiles.traces.bags import Bags, bags_of_tables, by_table
from gapless.profiles.traces.trace import TABLE_SHIFT, Block

__all__ = ["lookahead_by_table"]


def lookahead_by_table(batches: Iterable[Block], tables: int, lookahead: int, processes: int) -> Iterator[Step]:
    """The steps of a stream of batches with so many tables, as `lookahead_steps` gives them, made by `processes`.

    Processes are at most the tables. Raises `InputError` as `lookahead_steps` does, and for numbers below 1.
    """
    for title, value in (("lookahead", lookahead), ("processes", processes)):
        if value < 1:
            raise InputError(f"lookahead: {title} must be >= 1, got {value}")
    cuts = np.linspace(0, tables, min(processes, tables) + 1).astype(int).tolist()
    return _steps(batches, [slice(start, stop) for start, stop in pairwise(cuts)], lookahead)


def _steps(batches: Iterable[Block], parts: list[slice], lookahead: int) -> Iterator[Step]:
    workers = [_Worker(lookahead) for _ in parts]
    failed: list[Exception] = []
    threading.Thread(target=_hand_out, args=(batches, parts, workers, failed), daemon=True).start()
    try:
        while (steps := [worker.answer() for worker in workers])[0] is not None:
            yield _joined(steps, [part.start for part in parts])
        if failed:
            raise failed[0]
    finally:
        for worker in workers:
            worker.end()


class _Worker:
    """A process that is handed columns and answers with steps, over two pipes; Ctrl-C doesn't reach it."""

    def __init__(self, lookahead: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, **own_group()
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin, self._process.stdout
        self.hand(sys.path)
        self.hand(lookahead)

    def hand(self, value: object) -> None:
        """Hand it something, if it is still there to take it."""
        with suppress(OSError, ValueError):  # a pipe that is broken, or closed
            pickle.dump(value, self._to, protocol=5)
            self._to.flush()

    def answer(self) -> Step | None:
        """Its next step, None once there is none."""
        try:
            answer: object = pickle.load(self._from)
        except EOFError:
            raise SolverError("lookahead: a process that looks at some tables has gone") from None
        if isinstance(answer, GaplessError):
            raise answer
        assert answer is None or isinstance(answer, Step)
        return answer

    def end(self) -> None:
        """Whatever it is doing."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._to, self._from):
            with suppress(OSError):
                pipe.close()


def _hand_out(batches: Iterable[Block], parts: list[slice], workers: list[_Worker], failed: list[Exception]) -> None:
    """Each process its columns of every batch, then None; what goes wrong in reading is for the caller."""
    try:
        for batch in batches:
            for part, worker in zip(parts, workers, strict=True):
                worker.hand(_columns(batch, part))
    except Exception as error:
        failed.append(error)
    for worker in workers:
        worker.hand(None)


def _columns(batch: Block, part: slice) -> Block:
    """Some tables of a batch."""
    if not isinstance(batch, Bags):
        return np.ascontiguousarray(batch[:, part])
    return bags_of_tables(by_table(batch)[0][part], batch.lengths[:, part])


def _joined(steps: list[Step | None], first_table: list[int]) -> Step:
    """One step of all tables: ids are global, so that those of later tables are larger."""
    parts = [step for step in steps if step is not None]
    ends = np.cumsum([0, *(len(step.ids) for step in parts)])
    columns: dict[str, Any] = {
        name: np.concatenate([getattr(step, name) for step in parts]) for name in ("prefetched", "last_use", "in_next")
    }
    return replace(
        parts[0],
        ids=np.concatenate([step.ids + (table << TABLE_SHIFT) for step, table in zip(parts, first_table, strict=True)]),
        bounds=np.append(
            np.concatenate([step.bounds[:-1] + end for step, end in zip(parts, ends, strict=False)]), ends[-1]
        ),
        rows=np.concatenate([step.rows * len(parts) + np.int32(number) for number, step in enumerate(parts)]),
        cache_rows=sum(step.cache_rows for step in parts),
        **columns,
    )


# -- in a process ------------------------------------------------------------------------------------------------------


_PROGRAM = (
    "import sys; sys.path[:] = filter(None, sys.path); import pickle; sys.path[:] = pickle.load(sys.stdin.buffer);"
    " from gapless.encodings.bagpipe.lookahead.processes import serve; serve(sys.stdin.buffer, sys.stdout.buffer)"
)


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Read the lookahead and then batches up to None; write their steps and then None, or what is wrong."""

    def write(value: object) -> None:
        pickle.dump(value, target, protocol=5)
        target.flush()

    with suppress(EOFError, BrokenPipeError):  # the caller has gone
        try:
            lookahead = pickle.load(source)
            for step in lookahead_steps(_handed(source), lookahead):
                write(step)
            write(None)
        except GaplessError as error:
            write(error)


def _handed(source: IO[bytes]) -> Iterator[Block]:
    while (batch := pickle.load(source)) is not None:
        yield batch
