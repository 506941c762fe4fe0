"""Messages: what a partition of one batch costs in seconds where rows are rooted, the objective `time`.

Passes and the dense all-reduce take as long in every partition of the same sizes. What is left on the critical path is
the exchange: gradients that are gathered after a batch, of rows that the next one uses, and rows that are sent before
it, of those that the batch before used. Both take as long as their busiest trainer, so messages count, and all that are
on the critical path count alike; those in the background, and rows that are fetched, count next to nothing. With U(e)
the trainers that use row e,

    gather(e) |U(e)| + send(e) |U(e) without the root of e|    summed over the rows, and one less for each gathered row

in the field's terms connectivity with fixed vertices. `milp` is exact. Blocks of examples are searched as in
`search.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.batch import Sharing, add_uses, summed, uses_by_trainer
from gapless.encodings.bagpipe.partition.cuts import Past
from gapless.encodings.bagpipe.partition.methods import Partition, contiguous, decoded, whole_bound
from gapless.encodings.bagpipe.partition.search import searched
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.bags import Bags, Lookups, chosen, lookups
from gapless.solvers.proofs import solve_proven

__all__ = ["MessageBatch"]

_UNIT = 64
"""Of weights: a message on the critical path."""
_FINER = 16
"""Of what one use costs, so that sums of whole numbers are equal in any order."""


@dataclass(frozen=True)
class MessageBatch:
    """A batch of n rows, as far as the messages of its partitions depend on it.

    `index`: the places of the examples' rows, none twice in an example. `in_next`: bool (n,), the next batch uses the
    row. `past`: where rows were used last. `places`: int64, of each trainer.
    """

    index: Lookups
    in_next: Mask
    past: Past
    places: Ints
    parameters: Parameters

    objective = "time"

    @property
    def capacities(self) -> list[Ints]:
        """The places of each trainer."""
        return [self.places]

    @property
    def trainers(self) -> int:
        """p."""
        return len(self.places)

    @property
    def rows(self) -> int:
        """n."""
        return len(self.in_next)

    @cached_property
    def weight(self) -> Ints:
        """What it costs that one more trainer uses a row, int64 (n,); where it lies nothing."""
        background = max(1, round(self.parameters.synchronised.background * _UNIT))
        return _UNIT * (self.in_next.astype(np.int64) + self.past.at_once) + background

    def worth(self, trainers: Sequence[Ints], method: str) -> list[Partition]:
        """The messages on the critical path."""
        return [Partition(each, self.objective, self._messages(each), None, method) for each in trainers]

    def _messages(self, trainer: Ints) -> int:
        users = uses_by_trainer(self.index, trainer, self.rows, self.trainers).T > 0
        gathered = int(users[self.in_next].sum()) - int(np.count_nonzero(self.in_next))
        once = np.flatnonzero(self.past.at_once)
        own = users[once, self.past.root[once]]
        return gathered + int(users[once].sum()) - int(np.count_nonzero(own))

    def transported(self, options: SolveOptions) -> list[Partition]:
        """The start of the search."""
        return self.worth([self.start()], "transport")

    def searched(self, options: SolveOptions) -> list[Partition]:
        """By local search; never more than the contiguous partition."""
        starts = [State(self, each) for each in (self.start(), contiguous(self.places))]
        state = min(starts, key=State.cost)
        found = searched(state, self.parameters.search, options.seed, Deadline(options))
        whole, best = (self.worth([each], "search")[0] for each in (contiguous(self.places), found.trainer))
        least = min(best, whole, key=lambda each: each.value)
        return [Partition(least.trainer, self.objective, least.value, None, "search", is_cut=found.is_cut)]

    def modelled(self, options: SolveOptions) -> list[Partition] | None:
        """By a backend, exactly."""
        uses = np.bincount(lookups(self.index)[1], minlength=self.rows).astype(np.int64)
        sharing = Sharing(self.index, np.full(self.rows, -1), uses, self.trainers)
        is_root = self.past.root[:, None] == np.arange(self.trainers)
        worth = self.in_next[:, None].astype(np.int64) + (self.past.at_once[:, None] & ~is_root)
        encoding, solver = milp.encode_messages(sharing, worth, self.places), options.solver or "highs"
        solution = solve_proven(encoding.model, options, solver)
        answer = decoded(encoding, solution)
        if answer is None:
            return None
        value, bound = self._messages(answer[0]), whole_bound(solution)
        bound = None if bound is None else min(value, bound - int(np.count_nonzero(self.in_next)))
        return [Partition(answer[0], self.objective, value, bound, f"milp+{solver}", is_cut=answer[1])]

    def start(self) -> Ints:
        """All examples at once, each where its rows cost least if nobody shared them."""
        state = State(self, None)
        return transport(state.costs(np.arange(len(self.index))), self.places).trainer


class State:
    """A partition with the counts of its rows' uses, kept up to date; None for no example on any trainer."""

    def __init__(self, asked: MessageBatch, trainer: Ints | None) -> None:
        self._asked, self._index, self._root = asked, asked.index, asked.past.root
        self._taken = np.zeros(asked.rows, dtype=np.int32)
        self._compiled = None if isinstance(asked.index, Bags) else partition_loops(asked.index.size)
        if self._compiled is not None:
            self._index, self._room = np.asfortranarray(asked.index), np.empty((asked.rows, asked.trainers), np.int32)
        if trainer is None:
            self.trainer, self._counts = np.empty(0, np.int64), np.zeros((asked.rows, asked.trainers), np.int32)
            self._taken += np.bincount(lookups(asked.index)[1], minlength=asked.rows).astype(np.int32)
        else:
            self.trainer = trainer.copy()
            self._counts = np.ascontiguousarray(uses_by_trainer(asked.index, trainer, asked.rows, asked.trainers).T)
        self._cost = self._summed()
        self._share = _FINER * (1.0 - 1.0 / asked.trainers) ** np.maximum(np.arange(len(asked.index) + 1) - 1, 0)

    @property
    def best(self) -> tuple[Ints, float]:
        """The last: no step is up."""
        return self.trainer, self._cost

    def take(self, examples: Ints, trainer: Ints) -> None:
        """Take examples off these trainers, one each."""
        self._move(examples, trainer, -1)
        if self._compiled is not None:
            self._compiled.count_uses(self._index, examples, self._taken)
        else:
            taken = lookups(chosen(self._index, examples))[1]
            self._taken += np.bincount(taken, minlength=len(self._taken)).astype(np.int32)

    def put(self, examples: Ints, trainer: Ints) -> None:
        """Put all examples that were taken on these trainers, one each."""
        self._move(examples, trainer, 1)
        self._taken[:] = 0

    def costs(self, examples: Ints) -> NDArray[np.integer]:
        """What each of the examples that were taken adds on each trainer: examples x trainers. Rows that several of
        them use count as in `Uses.costs`.
        """
        per_row = np.rint(self._asked.weight * self._share[self._taken]).astype(np.int32)
        added: NDArray[np.integer]
        if self._compiled is not None:
            added = self._compiled.message_costs(self._index, examples, self._counts, per_row, self._root, self._room)
        else:
            cost = np.where(self._counts > 0, 0, per_row[:, None])
            held = np.flatnonzero(self._is_free)
            cost[held, self._root[held]] = 0
            added = summed(cost.astype(np.int32), self._index, examples)
        costs: NDArray[np.integer] = (added + _FINER // 2) // _FINER
        return costs

    def cost(self) -> float:
        """What the search descends along, with all examples put."""
        return float(self._cost)

    def keep(self) -> None:
        """The last step stays."""

    @property
    def _is_free(self) -> Mask:
        """Rows that a trainer holds."""
        return self._root >= 0

    def _summed(self) -> int:
        users = self._counts > 0
        held = np.flatnonzero(self._is_free)
        others = users.sum(axis=1)
        others[held] -= users[held, self._root[held]]
        return int((self._asked.weight * others).sum())

    def _move(self, examples: Ints, trainer: Ints, times: int) -> None:
        if self._compiled is not None:
            self._cost += self._compiled.move_messages(
                self._index, examples, trainer, times, self._root, self._asked.weight, self._counts
            )
        else:
            add_uses(self._index, self._counts, examples, trainer, times)
            self._cost = self._summed()
