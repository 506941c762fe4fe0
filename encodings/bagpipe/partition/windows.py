"""Windows: consecutive batches that are partitioned together for the objective `synchronised`, the cost of LRPP caches.

What a partition of a batch is worth depends on the batch before and on the one after. With rooted rows
(`lrpp-fine-grained`) the cost of a window is the number of rows that are synchronised at once from each of its batches
to the next, and from the batch before it to its first: all that both batches use, but for those that one trainer alone
uses in both. In the LRPP of the paper it doesn't depend on partitions how many rows are synchronised at once; there the
cost is the number of rows that aren't private.

`search` goes through the window once, each batch with regard to the one before and to what rows with one user are worth
later, then again with regard to both neighbours. `milp` is exact. Bounds are for each batch, after those before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition import milp
from gapless.encodings.bagpipe.partition.batch import uses_by_trainer
from gapless.encodings.bagpipe.partition.bounds import away_bound
from gapless.encodings.bagpipe.partition.cuts import Cuts, Past, Terminal, one_user, settled_roots
from gapless.encodings.bagpipe.partition.methods import Partition, decoded, whole_bound
from gapless.encodings.bagpipe.partition.private.search import search_private
from gapless.encodings.bagpipe.partition.search import place_all, search_cuts
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.bags import Bags, Lookups, lookups
from gapless.solvers.proofs import solve_proven

__all__ = ["Window", "WindowBatch"]


@dataclass(frozen=True)
class WindowBatch:
    """One batch of n rows, as far as its partition depends on it.

    `index`: the places of the examples' rows, none twice in an example. `ids`: int64 (n,), ascending. `in_next`,
    `evicted`: bool (n,), the next batch uses the row; no later batch of the lookahead does. `places`: int64, of each
    trainer.
    """

    index: Lookups
    ids: Ints
    in_next: Mask
    evicted: Mask
    places: Ints

    def users(self, trainer: Ints) -> Mask:
        """Who uses each row when example i is trained on `trainer[i]`, bool (n, p)."""
        used: Mask = uses_by_trainer(self.index, trainer, len(self.ids), len(self.places)).T > 0
        return used


@dataclass(frozen=True)
class Window:
    """Batches in a row. `past`: of the first batch's rows. `is_rooted`: whether rows are; else they are all-reduced
    unless private.
    """

    batches: tuple[WindowBatch, ...]
    past: Past
    is_rooted: bool
    parameters: Parameters

    objective = "synchronised"

    @property
    def capacities(self) -> list[Ints]:
        """The places of each trainer, by batch."""
        return [batch.places for batch in self.batches]

    def transported(self, options: SolveOptions) -> list[Partition]:
        """The start of the search, with bounds."""
        return self._searched(0, "transport", options)

    def searched(self, options: SolveOptions) -> list[Partition]:
        """By local search, with bounds."""
        return self._searched(self.parameters.search.rounds, "search", options)

    def _searched(self, rounds: int, method: str, options: SolveOptions) -> list[Partition]:
        deadline = Deadline(options)
        trainers, is_cut = self._trainers(rounds, options.seed, deadline)
        partitions = [replace(each, is_cut=is_cut) for each in self.worth(trainers, method)]
        return self._bounded(partitions, deadline)

    @cached_property
    def shared(self) -> list[tuple[Ints, Ints]]:
        """The places of the rows that each batch shares with the one after it, in both."""
        return [_common(one.ids, other.ids) for one, other in pairwise(self.batches)]

    def pasts(self, trainers: Sequence[Ints]) -> list[Past]:
        """What lies behind each batch's rows, for the trainers of the batches before it."""
        pasts = [self.past]
        for batch, trainer, (here, there) in zip(self.batches, trainers, self.shared, strict=False):
            after = Past.none(len(self.batches[len(pasts)].ids))
            users = batch.users(trainer)
            _, alone = one_user(users)
            after.root[there] = settled_roots(users, batch.ids, pasts[-1].root)[here]
            after.alone[there], after.at_once[there] = alone[here], True
            pasts.append(after)
        return pasts

    def _trainers(self, rounds: int, seed: int, deadline: Deadline) -> tuple[list[Ints], bool]:
        """The trainers of each batch, and whether the clock ended the search."""
        trainers: list[Ints] = []
        search, is_cut = replace(self.parameters.search, rounds=rounds), False
        for number, batch in enumerate(self.batches):
            if self.is_rooted:
                cuts = self._cuts(number, self.pasts(trainers)[number], None)
                searched = search_cuts(cuts, place_all(cuts, batch.places), search, seed, deadline)
            else:
                searched = search_private(batch.index, batch.evicted, batch.places, search, seed, deadline)
            trainers.append(searched.trainer)
            is_cut |= searched.is_cut
        for sweep in range(self.parameters.synchronised.sweeps if len(trainers) > 1 and self.is_rooted else 0):
            for number in range(len(trainers)) if sweep % 2 else reversed(range(len(trainers))):
                cuts = self._cuts(number, self.pasts(trainers)[number], self._terminal_after(number, trainers))
                searched = search_cuts(cuts, trainers[number], search, seed + 1 + sweep, deadline)
                trainers[number] = searched.trainer
                is_cut |= searched.is_cut
        return trainers, is_cut

    def _terminal_after(self, number: int, trainers: Sequence[Ints]) -> Ints | None:
        """Of each row of a batch the one trainer that uses it in the next batch of the window, -1 for none."""
        if number + 1 == len(self.batches):
            return None
        here, there = self.shared[number]
        user, alone = one_user(self.batches[number + 1].users(trainers[number + 1]))
        terminal = np.full(len(self.batches[number].ids), -1)
        terminal[here] = np.where(alone, user, -1)[there]
        return terminal

    def _cuts(self, number: int, past: Past, terminal_after: Ints | None) -> Cuts:
        """What a partition of one batch costs, the next one's being known or not."""
        batch, weights = self.batches[number], self.parameters.synchronised
        terminals = [Terminal(_terminal(past), 1.0)]
        split = np.where(batch.in_next, weights.next, 0.0)
        if terminal_after is not None:
            terminals.append(Terminal(terminal_after, 1.0))
            split = np.zeros(len(batch.ids))
        copy = weights.background + weights.message * (past.at_once.astype(np.float64) + batch.in_next)
        return Cuts(batch.index, len(batch.places), tuple(terminals), split, copy, past.root)

    def worth(self, trainers: Sequence[Ints], method: str) -> list[Partition]:
        """What these trainers are worth, batch by batch."""
        partitions = []
        for batch, trainer, past in zip(self.batches, trainers, self.pasts(trainers), strict=True):
            uses = uses_by_trainer(batch.index, trainer, len(batch.ids), len(batch.places))
            users = uses.T > 0
            if self.is_rooted:
                value = np.count_nonzero(past.at_once & ~past.kept(users))
            else:
                value = np.count_nonzero(~(batch.evicted & one_user(users)[1]))
            whole = None if isinstance(batch.index, Bags) else uses  # of bags, rows count once an example
            partitions.append(Partition(trainer, "synchronised", int(value), None, method, uses=whole))
        return partitions

    @charge("bound")
    def _bounded(self, partitions: list[Partition], deadline: Deadline) -> list[Partition]:
        """With a bound for each batch, if any is asked for: of its partitions, after those before it."""
        parameters = self.parameters.bound
        if not parameters.rounds:
            return partitions
        pasts = self.pasts([each.trainer for each in partitions])
        proven = []
        for batch, each, past in zip(self.batches, partitions, pasts, strict=True):
            if self.is_rooted:
                bound = int(np.count_nonzero(past.at_once & ~past.alone))
                bound += away_bound(batch.index, _terminal(past), batch.places, parameters, deadline)
            else:
                if each.uses is None:
                    uses = np.bincount(lookups(batch.index)[1], minlength=len(batch.ids))
                else:
                    uses = each.uses.sum(axis=0)
                bound = int(np.count_nonzero(~batch.evicted | (uses > batch.places.max())))
            proven.append(replace(each, bound=bound))
        return proven

    def modelled(self, options: SolveOptions) -> list[Partition] | None:
        """By a backend; the bound on the whole window is split up among the batches, the last having what is left."""
        encoding, solver = milp.encode_window(self._keeps(), self.capacities), options.solver or "highs"
        solution = solve_proven(encoding.model, options, solver)
        solved = decoded(encoding, solution)
        if solved is None:
            return None
        trainers = np.split(solved[0], np.cumsum([int(places.sum()) for places in self.capacities])[:-1])
        partitions = [replace(each, is_cut=solved[1]) for each in self.worth(trainers, f"milp+{solver}")]
        bound = whole_bound(solution)
        if bound is None:
            return partitions
        left = min(sum(each.value for each in partitions), self._fixed() + bound)
        proven = []
        for each in partitions:
            proven.append(replace(each, bound=min(each.value, left)))
            left -= min(each.value, left)
        return proven

    def _keeps(self) -> list[milp.Keep]:
        """The rows that some partition of the window keeps."""
        users = [_examples_of(batch) for batch in self.batches]
        firsts = np.cumsum([0, *(len(batch.index) for batch in self.batches)])
        if not self.is_rooted:
            return [
                milp.Keep(first + users[number][row], None)
                for number, (batch, first) in enumerate(zip(self.batches, firsts, strict=False))
                for row in np.flatnonzero(batch.evicted).tolist()
            ]
        terminal = _terminal(self.past)
        keeps = [milp.Keep(users[0][row], int(terminal[row])) for row in np.flatnonzero(terminal >= 0).tolist()]
        for number, (here, there) in enumerate(self.shared):
            for row, other in zip(here.tolist(), there.tolist(), strict=True):
                both = firsts[number] + users[number][row], firsts[number + 1] + users[number + 1][other]
                keeps.append(milp.Keep(np.concatenate(both), None))
        return keeps

    def _fixed(self) -> int:
        """Rows that no partition of the window keeps."""
        if self.is_rooted:
            return int(np.count_nonzero(self.past.at_once & ~self.past.alone))
        return sum(int(np.count_nonzero(~batch.evicted)) for batch in self.batches)


def _terminal(past: Past) -> Ints:
    """The one trainer that used each row in the batch before, -1 where there is none."""
    return np.where(past.at_once & past.alone, past.root, -1)


def _common(one: Ints, other: Ints) -> tuple[Ints, Ints]:
    """Where the ids that two ascending arrays share stand in each."""
    place = np.minimum(np.searchsorted(other, one), len(other) - 1)
    here = np.flatnonzero(other[place] == one)
    return here, place[here]


def _examples_of(batch: WindowBatch) -> list[Ints]:
    """The examples that use each row."""
    example, row = lookups(batch.index)
    order = np.argsort(row, kind="stable")
    ends = np.cumsum(np.bincount(row, minlength=len(batch.ids)))
    return np.split(example[order].astype(np.int64), ends[:-1])
