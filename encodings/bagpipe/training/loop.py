"""A user's own training loop by a plan: `planned` yields the batches of this trainer.

In every process of a training run, each a trainer and the server of a part of the rows::

    sharding = Sharding(table_rows, trainers)
    weights = 0.1 * torch.randn(len(sharding.rows_of(rank)), dimension)
    batches = planned("run.npz", sharding, weights, step_size=0.05)
    for batch in batches:
        loss = criterion(model(inputs[batch.examples], batch.pooled()), targets[batch.examples]).sum()
        optimiser.zero_grad()
        (loss / batch.batch_examples).backward()
        batch.update(model.parameters())
        optimiser.step()

What is fetched ahead, sent, synchronised and written back goes on in threads beside the passes, as the plan has it
(`carrier.py`). Needs the extra `torch`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from gapless.array_types import Ints
from gapless.encodings.bagpipe.execution.moves import BatchMoves
from gapless.encodings.bagpipe.execution.order import lanes_of
from gapless.encodings.bagpipe.execution.planned import asked_again
from gapless.encodings.bagpipe.execution.stream import BatchStream, BatchToRun, batches_to_run
from gapless.encodings.bagpipe.problem import RunDecision, problem_of
from gapless.encodings.bagpipe.question import SHARDED
from gapless.encodings.bagpipe.rows.descent import Descent
from gapless.encodings.bagpipe.rows.network import Network
from gapless.encodings.bagpipe.rows.served import Served
from gapless.encodings.bagpipe.rows.standing import Standing
from gapless.encodings.bagpipe.run.file import RunPlan
from gapless.encodings.bagpipe.training.carrier import Carrier, Networks
from gapless.errors import InputError
from gapless.io.plan import SavedPlan
from gapless.profiles.traces.trace import Trace
from gapless.result import read_saved
from gapless.torch.embeddings.lookup import Lookup
from gapless.torch.embeddings.roles import Roles
from gapless.torch.embeddings.sharding import Group, Sharding
from gapless.torch.library import Tensor, rank_count, torch

__all__ = ["Planned", "PlannedBatch", "planned"]


@dataclass(frozen=True)
class PlannedBatch(Lookup):
    """A trainer's part of a batch: `Lookup`, and what belongs to it.

    `number`: of the batch. `examples`: the numbers of this trainer's examples in the trace, int64. `moves`: what all
    processes fetch, send, synchronise and write back for it.
    """

    _: KW_ONLY
    number: int
    examples: Ints
    moves: BatchMoves
    loop: Planned

    def update(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """After the backward pass: update rows as planned, and add up the gradients of dense parameters over trainers.

        Raises `InputError` where it isn't this batch's turn, or there is no gradient.
        """
        self.loop.update(self.number, parameters)


def planned(
    run: str | Path | SavedPlan, sharding: Sharding, weights: Tensor, *, step_size: float, optimizer: str | None = None,
    trace: Trace | None = None, timeout_s: float = 300.0,
) -> Planned:  # fmt: skip
    """The batches of this process's trainer, as a run plans them.

    Parameters
    ----------
    run
        The file of a run of `gapless solve`, of any design with a cache; or such a plan, with its `trace`.
    sharding, weights
        Where the tables' rows are, and this process's: float, one row for each of its server's. Changed in place; whole
        once the last batch is over, and in `state_dict`.
    step_size
        Of the optimiser of rows; may be changed between batches, as `Planned.step_size`.
    optimizer
        One of `OPTIMIZERS`; the question's if None. Its state begins with zeros.
    trace
        The trace that was planned; the question's if None.
    timeout_s
        The longest that one process waits for another.

    All processes of the default group call it together. Raises `InputError` for a plan of other trainers than there are
    processes, of tables that lie on trainers, or of another trace, and for weights of another shape.
    """
    where = str(run) if isinstance(run, str | Path) else "run"
    plan = read_saved(run) if isinstance(run, str | Path) else run
    if not isinstance(plan.windows, RunPlan):
        raise InputError(f"{where}: must be a run of a cache of embeddings, got a plan of {plan.system}")
    design, ranks = RunDecision.of(plan, where).design, rank_count()
    if design in SHARDED:
        raise InputError(f"{where}: must have a cache, got design {design}, where nothing is planned ahead")
    trainers = plan.windows.machine.cluster.trainers
    if ranks != trainers or sharding.servers != trainers:
        got = f"{ranks} processes and {sharding.servers} servers in sharding"
        raise InputError(f"{where}: is for {trainers} trainers, one a process, each with a server; got {got}")
    asked = asked_again(plan, where) if trace is None or optimizer is None else None
    if trace is None:
        assert asked is not None
        trace = problem_of(asked).trace
    if optimizer is None:
        assert asked is not None
        optimizer = asked.optimizer
    rank = torch.distributed.get_rank()
    expected = len(sharding.rows_of(rank))
    if weights.ndim != 2 or len(weights) != expected:
        raise InputError(f"weights: must be {expected} rows x dimension, got shape {tuple(weights.shape)}")
    served = Served(weights, optimizer, sharding)
    batches = batches_to_run(plan.windows, trace, int(plan.problem["batch_size"]))
    return Planned(plan.windows, design, batches, served, Descent(optimizer, step_size, weights.shape[1]), timeout_s)


class Planned:
    """An iterator of one trainer's batches; made by `planned`."""

    def __init__(
        self, run: RunPlan, design: str, batches: Iterator[BatchToRun], served: Served, descent: Descent,
        timeout_s: float,
    ) -> None:  # fmt: skip
        self._run, self._design, self._served, self._descent = run, design, served, descent
        self._timeout_s = timeout_s
        ranks = torch.distributed.get_world_size()
        self._roles = Roles(torch.distributed.get_rank(), ranks, ranks)
        groups: list[Group] = [torch.distributed.new_group(timeout=timedelta(seconds=timeout_s)) for _ in range(4)]
        peers, up, down, own = (Network(group, self._roles.rank, ranks, None) for group in groups)
        self._networks = Networks(peers, up, down)
        placement = run.machine.cluster.placement
        self._stream = BatchStream(batches, run.count, design, placement, served.server_of)
        self._standing = Standing(self._stream, self._roles, own, served.server_of)
        self._digest, self._first, self._start = hashlib.sha256(), 0, 0
        self._carrier: Carrier | None = None

    def __len__(self) -> int:
        return self._run.count

    @property
    def step_size(self) -> float:
        """Of the optimiser of rows."""
        return self._descent.step_size

    @step_size.setter
    def step_size(self, step_size: float) -> None:
        self._descent.step_size = step_size

    def __iter__(self) -> Iterator[PlannedBatch]:
        """The batches that are left. When the last is over, all rows are at the servers."""
        carrier = self._begun()
        while carrier.batch < self._run.count:
            number = carrier.batch
            found, moves = carrier.lookup(), self._stream.of(number)
            own = self._first + np.flatnonzero(moves.trainer == self._roles.rank)
            yield PlannedBatch(
                found.rows, found.index, found.batch_examples, found.lengths,
                number=number, examples=own, moves=moves, loop=self,
            )  # fmt: skip
            if carrier.batch == number:
                raise InputError(f"batch {number}: must be updated before the next one")
        carrier.finish()

    def examples(self) -> Iterator[list[int]]:
        """Of all batches, the numbers of this trainer's examples; for `DataLoader(dataset, batch_sampler=...)`."""
        first = 0
        for number in range(self._run.count):
            trainer = self._run.trainer(number)
            yield (first + np.flatnonzero(trainer == self._roles.rank)).tolist()
            first += len(trainer)

    def update(self, number: int, parameters: Iterable[torch.nn.Parameter]) -> None:
        """As `PlannedBatch.update`, of the batch with this number."""
        carrier = self._begun()
        if carrier.batch != number:
            raise InputError(f"update: must be of batch {carrier.batch}, got batch {number}")
        moves = self._stream.of(number)
        carrier.update(parameters)
        self._pass(moves)

    def state_dict(self) -> dict[str, Any]:
        """What this process needs to go on after the last batch that was updated; all processes call it together.

        Plain values and tensors, for `torch.save`. Dense parameters and their optimiser are the caller's.
        """
        number = self._start if self._carrier is None else self._carrier.batch
        if self._carrier is not None:
            self._carrier.settle(number)
            self._standing.flush(self._carrier.store, self._served)
        return {
            "batch": number, "ids": self._digest.hexdigest(), "optimizer": self._descent.optimizer,
            "weights": self._served.weights.clone(), "state": self._served.state.clone(),
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was; before the first batch, in all processes.

        Raises `InputError` where it is of another run, optimiser or number of rows.
        """
        if self._carrier is not None or self._start:
            raise InputError("load_state_dict: must come before the first batch")
        for name in ("weights", "state"):
            own, given = getattr(self._served, name), state[name]
            if own.shape != given.shape:
                raise InputError(f"state: {name} must have shape {tuple(own.shape)}, got {tuple(given.shape)}")
        if state["optimizer"] != self._descent.optimizer:
            raise InputError(f"state: must be of optimiser {self._descent.optimizer}, got {state['optimizer']}")
        number = int(state["batch"])
        if not 0 <= number <= self._run.count:
            raise InputError(f"state: batch must be at most {self._run.count}, got {number}")
        for batch in range(number):
            self._pass(self._stream.of(batch))
            self._stream.forget(batch)
        if self._digest.hexdigest() != state["ids"]:
            raise InputError("state: must be of the same batches, has others")
        self._served.weights.copy_(state["weights"])
        self._served.state.copy_(state["state"])
        self._start = number

    # -- how a run begins, and what stands between two batches ---------------------------------------------------------

    def _begun(self) -> Carrier:
        if self._carrier is None:
            times, start = self._run.times, self._start
            lanes = lanes_of(times, self._design, self._run.machine.cluster.placement)
            carrier = Carrier(
                self._stream, lanes, times.is_relayed, self._roles, self._networks, self._served, self._descent,
                self._timeout_s, start=start,
            )  # fmt: skip
            if 0 < start < self._run.count:
                self._standing.refill(carrier.store, self._served)
            carrier.begin()
            self._carrier = carrier
        return self._carrier

    def _pass(self, moves: BatchMoves) -> None:
        """A batch is over."""
        self._standing.follow(moves)
        self._digest.update(moves.step.ids.astype("<i8").tobytes())
        self._first += moves.step.examples
