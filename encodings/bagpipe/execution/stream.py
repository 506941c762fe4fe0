"""Stream: the moves of a run's batches, made one after the other as somebody asks for them, and forgotten."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.execution.moves import BatchMoves, Holders, IdsOfBatch, moves_of
from gapless.encodings.bagpipe.execution.order import POOLING
from gapless.encodings.bagpipe.ids.distinct import positions, unique_ids
from gapless.encodings.bagpipe.lowering.actions import Actions
from gapless.encodings.bagpipe.question import LAYOUTS
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.errors import InputError
from gapless.profiles.traces.bags import Lookups
from gapless.profiles.traces.trace import Trace

__all__ = ["BatchStream", "BatchToRun", "batches_to_run"]


@dataclass(frozen=True)
class BatchToRun:
    """What a run says of a batch, and what its examples look up: places in `actions.ids`."""

    number: int
    actions: Actions
    trainer: Ints
    index: Lookups

    @property
    def step(self) -> IdsOfBatch:
        """Its ids."""
        return IdsOfBatch(self.number, len(self.trainer), self.actions.ids)


def batches_to_run(run: RunPlan, trace: Trace, batch_size: int) -> Iterator[BatchToRun]:
    """The batches of a run, with the lookups of its trace. Raises `InputError` where the trace has other ids."""
    batches = trace.batches(batch_size, run.count)
    for number in range(run.count):
        actions, trainer = run.actions(number), run.trainer(number)
        examples = next(batches, None)
        if examples is None or len(examples) != len(trainer):
            got = "none" if examples is None else f"one of {len(examples)}"
            raise InputError(f"trace: must have {len(trainer)} examples in batch {number}, as the run, got {got}")
        ids, bounds = unique_ids(examples)
        if not np.array_equal(ids, actions.ids):
            raise InputError(f"trace: must have the ids of the run in batch {number}, has others")
        yield BatchToRun(number, actions, trainer, positions(ids, bounds, examples))


class BatchStream:
    """The moves of batches by number, made in their order; of several threads each may ask.

    `server_of`: as for `moves_of`.
    """

    def __init__(
        self, batches: Iterator[BatchToRun], count: int, design: str, placement: str, server_of: Callable[[Ints], Ints]
    ) -> None:  # fmt: skip
        self.count = count
        self._coming, self.server_of = batches, server_of
        self._writer_is_server, self._pools = placement == "colocated", LAYOUTS[design] == POOLING
        self._lock, self._made, self._next = threading.Lock(), dict[int, BatchMoves](), 0
        self.holders = Holders()

    def of(self, number: int) -> BatchMoves:
        """The moves of a batch that isn't forgotten."""
        with self._lock:
            while self._next <= number:
                self._make()
            return self._made[number]

    def forget(self, below: int) -> None:
        """Batches that nobody asks for any more."""
        with self._lock:
            for number in [each for each in self._made if each < below]:
                del self._made[number]

    def _make(self) -> None:
        batch = next(self._coming)
        ids = batch.actions.ids
        before = self.holders.before(ids)
        moves = moves_of(
            self._next, batch.actions, batch.trainer, batch.index, before, self.server_of, self._writer_is_server,
            self._pools,
        )  # fmt: skip
        self._made[self._next] = moves
        self.holders.settle(ids, moves.holder, moves.evicted)
        self._next += 1
