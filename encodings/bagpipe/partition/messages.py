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
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.ids.loops import message_loops
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.batch import Sharing, uses_by_trainer
from gapless.encodings.bagpipe.partition.cuts import Past
from gapless.encodings.bagpipe.partition.message_state import SharedUses, State
from gapless.encodings.bagpipe.partition.methods import Partition, contiguous, decoded, whole_bound
from gapless.encodings.bagpipe.partition.search import searched
from gapless.encodings.bagpipe.partition.transport import transport
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.bags import Bags, Lookups, lookups
from gapless.solvers.proofs import solve_proven

__all__ = ["MessageBatch", "messages"]

_UNIT = 64
"""Of weights: a message on the critical path."""


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
        return [self._worth(each, method) for each in trainers]

    def _worth(self, trainer: Ints, method: str) -> Partition:
        uses = uses_by_trainer(self.index, trainer, self.rows, self.trainers)
        value = messages(uses, self.in_next, self.past)
        whole = None if isinstance(self.index, Bags) else uses  # of bags, rows count once an example
        return Partition(trainer, self.objective, value, None, method, uses=whole)

    def transported(self, options: SolveOptions) -> list[Partition]:
        """The start of the search."""
        return self.worth([self.start()], "transport")

    def searched(self, options: SolveOptions) -> list[Partition]:
        """By local search; never more than the contiguous partition."""
        uses, whole = self.shared, contiguous(self.places)
        state = State(uses, self.start())
        if state.cost() > uses.contiguous_cost:
            state = State(uses, whole)
        found = searched(state, self.parameters.search, options.seed, Deadline(options))
        least = self.worth([found.trainer], "search")[0]
        if (messages := self.contiguous_messages) < least.value:
            least = Partition(whole, self.objective, messages, None, "search")
        return [replace(least, is_cut=found.is_cut)]

    @property
    def contiguous_messages(self) -> int:
        """What the contiguous partition is worth."""
        users, at_root = self.shared.contiguous_users, self.shared.contiguous_at_root
        gathered = int(users[self.in_next].sum()) - int(np.count_nonzero(self.in_next))
        return gathered + int((users - at_root)[self.past.at_once].sum())

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
        value, bound = self._worth(answer[0], "milp").value, whole_bound(solution)
        bound = None if bound is None else min(value, bound - int(np.count_nonzero(self.in_next)))
        return [Partition(answer[0], self.objective, value, bound, f"milp+{solver}", is_cut=answer[1])]

    def start(self) -> Ints:
        """All examples at once, each where its rows cost least if nobody shared them."""
        state = State(self.shared)
        return transport(state.costs(np.arange(len(self.index))), self.places).trainer

    @cached_property
    def shared(self) -> SharedUses:
        return SharedUses.of(self.index, self.places, self.weight, self.past.root)


def messages(uses: NDArray[np.int32], in_next: Mask, past: Past) -> int:
    """The messages on the critical path. `uses`: trainers x rows, how often."""
    if (compiled := message_loops(uses.size)) is not None:
        return int(compiled.messages(uses, in_next, past.at_once, past.root))
    users = uses.T > 0
    gathered = int(users[in_next].sum()) - int(np.count_nonzero(in_next))
    once = np.flatnonzero(past.at_once)
    own = users[once, past.root[once]]
    return gathered + int(users[once].sum()) - int(np.count_nonzero(own))
