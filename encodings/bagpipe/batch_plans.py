"""Batch plans: for each batch of a trace, which trainer gets which example, and what is fetched, synchronised, evicted.

The cache is logically replicated and physically partitioned (LRPP, section 5.2.3): a row lies on every trainer, unless
one trainer alone uses it and no later batch of the window does; that trainer fetches it for itself and writes it back
without synchronising. The others are synchronised after the batch: on the critical path where the next batch uses them,
in the background where it doesn't.

Beside that, every cached row has an owner, one trainer, by which partitions are judged: the cost of an example on a
trainer is the number of its rows that others own. An owner is chosen when a row enters the cache and stays until it
leaves: the trainer that uses it most in its first batch (`first-touch`), or one by the row's number (`hash`).

The fine-grained variant of LRPP (design `lrpp-fine-grained`) has a root for every row instead, which moves to where the
row is used: `partition/cuts.py`. Plans say both, so that designs can be compared by the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.cluster import places_of
from gapless.encodings.bagpipe.designs.sharding import shard_of
from gapless.encodings.bagpipe.ids.distinct import positions
from gapless.encodings.bagpipe.lookahead.processes import lookahead_by_table
from gapless.encodings.bagpipe.lookahead.steps import MOST_LOOKAHEAD, Step, lookahead_steps
from gapless.encodings.bagpipe.lookahead.without_lookahead import (
    bare_steps,
    cacheless_steps,
    demand_steps,
    with_replicated,
)
from gapless.encodings.bagpipe.parameters import Parameters
from gapless.encodings.bagpipe.partition.batch import Batch, Traffic, uses_by_trainer
from gapless.encodings.bagpipe.partition.cuts import Past, Settled
from gapless.encodings.bagpipe.partition.messages import MessageBatch
from gapless.encodings.bagpipe.partition.methods import OneBatch, Partition, Partitioned, checked_choice, partitioned
from gapless.encodings.bagpipe.partition.windows import Window, WindowBatch
from gapless.encodings.bagpipe.problem import REPLICATING, Planning
from gapless.encodings.bagpipe.question import BASELINES, SHARDED
from gapless.errors import InputError
from gapless.methods import MethodChoice
from gapless.methods.ledger import charge
from gapless.options import Deadline, SolveOptions
from gapless.profiles.traces.bags import Bags, Lookups, of_tables
from gapless.profiles.traces.trace import Block, Trace

__all__ = ["BatchPlan", "Budget", "NoTimeLeftError", "Pace", "batch_plans"]

_Kind = TypeVar("_Kind", bound=np.generic)

_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)
"""Of Fibonacci hashing: the upper bits of the product are well mixed."""


class NoTimeLeftError(Exception):
    """There is no time to look further ahead."""


@dataclass(frozen=True)
class Pace:
    """Seconds a batch: to plan with the quickest partition; to lower, replay and write."""

    plan_s: float = 0.0
    finish_s: float = 0.0


class Budget:
    """How many batches there is time for, from batch to batch.

    What is planned has to be replayed and written, all within the time limit. What that takes is measured on the first
    batch of the run (`Pace`), never guessed, and grows in proportion to the batches, since all of it goes window by
    window. Each batch has the partition that was asked for; planning ends where finishing what is planned takes all
    that is left. Without a limit none of this decides anything, and once somebody has asked to stop, it ends at once.
    """

    def __init__(self, deadline: Deadline, pace: Pace) -> None:
        self._deadline, self._pace, self._planned = deadline, pace, 0

    def check_reading(self) -> None:
        """Called before a batch is read. Raises `NoTimeLeftError` where there is no time to plan one more."""
        if not self._allows(self._left_s()):
            raise NoTimeLeftError

    def goes_on(self) -> bool:
        """Called for each batch that was planned: whether there is time for another one."""
        self._planned += 1
        return self._allows(self._left_s() - self._pace.plan_s)

    def partition_options(self) -> SolveOptions | None:
        """Under which the next batch may be partitioned; None where there is no time for a search."""
        left_s = self._left_s()
        return self._deadline.stage(left_s) if self._allows(left_s) else None

    def _left_s(self) -> float:
        """What is left when the next batch is finished too."""
        return self._deadline.remaining_s - (self._planned + 1) * self._pace.finish_s

    def _allows(self, left_s: float) -> bool:
        if left_s <= 0 < self._deadline.remaining_s:
            self._deadline.strike()  # the clock decides, though it has not yet run out
        return left_s > 0


@dataclass(frozen=True)
class BatchPlan:
    """The plan of one batch with n distinct ids for p trainers; masks are bool, shape (n,), in the order of `step.ids`.

    `step`: what the lookahead says. `index`: int32, the place in `step.ids` of each lookup, (examples, tables) or bags.
    `trainer`: int64, one per example. `owner`: int64 (n,), whose part of the cache a row was in before, -1: in none.
    `past`: where the rows were used last. `settled`: who uses them, and whose part and whose root they are from now on;
    the owner of a row without one before is chosen here.
    """

    step: Step
    index: Lookups
    partition: Partition
    owner: Ints
    past: Past
    settled: Settled

    @property
    def trainer(self) -> Ints:
        """The trainer of each example."""
        return self.partition.trainer

    @cached_property
    def is_private(self) -> Mask:
        """One trainer uses the row, and no later batch of the window: it is written back from there, unsynchronised."""
        private: Mask = self.step.evicted & self.is_alone
        return private

    @property
    def users(self) -> Mask:
        """bool (n, p), which trainers' examples use an id, column by column in memory."""
        return self.settled.users

    @property
    def owner_after(self) -> Ints:
        """int64 (n,), whose part a row is in from now on."""
        return self.settled.owner

    @property
    def root(self) -> Ints:
        """int64 (n,), who holds the rows from now on, if one trainer does."""
        return self.settled.root

    @property
    def is_alone(self) -> Mask:
        """One trainer uses the row."""
        return self.settled.is_alone

    @property
    def sync_now(self) -> Mask:
        """The next batch uses the row: synchronised on the critical path."""
        return self.step.in_next

    @cached_property
    def sync_later(self) -> Mask:
        """Synchronised in the background."""
        return ~self.is_private & ~self.step.in_next

    @property
    def only_user(self) -> Ints:
        """The trainer that uses a private row; int64 (n,), of no meaning for the others."""
        return self.settled.only_user

    @cached_property
    def traffic(self) -> Traffic:
        """What would move between trainers if each row lay with its owner alone (a partitioned cache)."""
        return Traffic.of_users(self.users, self.owner)


def batch_plans(
    trace: Trace, planning: Planning, parameters: Parameters | None = None, options: SolveOptions | None = None,
    budget: Budget | None = None, known: Iterable[Ints] = (),
) -> Iterator[BatchPlan]:  # fmt: skip
    """The plans of a trace's batches, in order, each as soon as the lookahead can make it.

    Runs ahead of its caller by no more than the lookahead's window, and as many batches as `parameters` partitions
    together. The trace is read twice, side by side. `budget` says when there is no time to read on, which raises
    `NoTimeLeftError`, and what time a partition has; None for no limit. `known`: the trainers of the first batches'
    examples, which are not partitioned again. Raises `InputError` for a cache smaller than a batch, and for what
    `partition` refuses.
    """
    options, parameters = options or SolveOptions(), parameters or Parameters()
    budget = budget or Budget(Deadline(options), Pace())
    choice = checked_choice(planning.objective, planning.method, options.solver, parameters)
    planner = _Planner(planning, parameters, choice, budget, iter(known))
    examples = trace.batches(planning.batch_size, planning.batches)
    coming = _while(trace.batches(planning.batch_size, planning.batches), budget.check_reading)
    steps = _steps(trace, planning, coming, planner.parameters.lookahead.processes)
    while together := _next_steps(steps, planner.together):
        yield from planner.plans([(step, next(examples)) for step in together])


@charge("lookahead")
def _next_steps(steps: Iterator[Step], count: int) -> list[Step]:
    """So many of the steps that are left, or all."""
    return list(islice(steps, count))


def _steps(trace: Trace, planning: Planning, coming: Iterable[Block], processes: int) -> Iterator[Step]:
    """What the lookahead decides, of the tables that aren't replicated, with the rows of those that are."""
    replicated, tables = planning.replicated, trace.table_count
    if not replicated:
        return _looked_ahead(planning, coming, tables, processes)
    _check_replicated(planning, tables)
    cached = np.setdiff1d(np.arange(tables), replicated)
    if len(cached):
        others = (of_tables(batch, cached) for batch in coming)
        steps = _looked_ahead(planning, others, len(cached), processes)
    else:
        steps = bare_steps(coming, planning.lookahead or MOST_LOOKAHEAD)
    again = trace.batches(planning.batch_size, planning.batches)
    return with_replicated(steps, again, replicated, tables)


def _looked_ahead(planning: Planning, coming: Iterable[Block], tables: int, processes: int) -> Iterator[Step]:
    if planning.design in SHARDED:
        return cacheless_steps(coming)
    if planning.design in BASELINES:
        assert planning.cache_rows is not None, "a planning of a baseline has a cache"
        return demand_steps(coming, planning.cache_rows, planning.design)
    if processes == 1:
        return lookahead_steps(coming, planning.lookahead, planning.cache_rows)
    if planning.cache_rows is not None or planning.lookahead is None:
        raise InputError(f"processes: must be 1 where L is what fits {planning.cache_rows} rows, got {processes}")
    return lookahead_by_table(coming, tables, planning.lookahead, processes)


def _check_replicated(planning: Planning, tables: int) -> None:
    """Tables that are there, each once, and a design in which rows may lie on all trainers."""
    replicated = planning.replicated
    if planning.design not in REPLICATING:
        raise InputError(f"replicated: goes with a design of {', '.join(REPLICATING)}, got {planning.design}")
    if len(set(replicated)) < len(replicated) or not set(replicated) <= set(range(tables)):
        got = ", ".join(map(str, replicated))
        raise InputError(f"replicated: must be different tables, 0..{tables - 1}, got {got}")


def _while(batches: Iterable[Block], check: Callable[[], None]) -> Iterator[Block]:
    """The batches, as long as the check before each of them lets it be."""
    for batch in batches:
        check()
        yield batch


class _Roots:
    """The root of every cached row, batch after batch."""

    def __init__(self) -> None:
        self._root = np.zeros(0, dtype=np.int32)  # by cache row, as the last; twice, one more where it alone used it
        self._last = np.zeros(0, dtype=np.int32)
        self._next: tuple[Step, Past] | None = None

    def past(self, step: Step) -> Past:
        """What lies behind the rows of the next batch."""
        if self._next is None or self._next[0] is not step:
            self._next = step, self._past(step)
        return self._next[1]

    def _past(self, step: Step) -> Past:
        most = int(step.rows.max()) + 1
        self._root, self._last = _grown(self._root, most), _grown(self._last, most)
        held, is_held = self._root.take(step.rows), ~step.prefetched
        root = np.where(is_held, held >> 1, np.int64(-1))
        at_once = np.equal(self._last.take(step.rows), step.batch - 1)
        return Past(root, is_held & np.equal(held & 1, 1), is_held & at_once)

    def settle(self, step: Step, after: Settled) -> None:
        """Keep where a batch left its rows."""
        self._root[step.rows], self._last[step.rows] = 2 * after.root + after.is_alone, step.batch


def _grown(column: NDArray[_Kind], rows: int) -> NDArray[_Kind]:
    """A column with room for so many rows of the cache; of new ones it says nothing until they are prefetched."""
    if rows <= len(column):
        return column
    grown = np.zeros(max(rows, 2 * len(column), 1024), dtype=column.dtype)  # memory that is taken once it is used
    grown[: len(column)] = column
    return grown


class _Planner:
    """Knows whose part of the cache each row is in."""

    def __init__(
        self, planning: Planning, parameters: Parameters, choice: MethodChoice, budget: Budget, known: Iterator[Ints]
    ) -> None:  # fmt: skip
        self._planning, self.parameters, self._choice = planning, parameters, choice
        self._budget, self._known = budget, known
        self._owner = np.zeros(0, dtype=np.int32)  # by cache row
        self._roots = _Roots()

    @property
    def together(self) -> int:
        """How many batches are partitioned together."""
        return self.parameters.synchronised.window if self._planning.objective == "synchronised" else 1

    def plans(self, coming: Sequence[tuple[Step, Block]]) -> Iterator[BatchPlan]:
        """The plans of the next batches, at most `together`."""
        with charge("partition"):
            indices = [positions(step.ids, step.bounds, examples) for step, examples in coming]
            known = list(islice(self._known, len(coming)))
            if len(known) == len(coming):
                partitions = [Partition(trainer, self._planning.objective, 0, None, "known") for trainer in known]
            else:
                partitions = self._partitions([step for step, _ in coming], indices)
        for (step, _), index, each in zip(coming, indices, partitions, strict=True):
            yield self._settled(step, index, each)

    def _settled(self, step: Step, index: Lookups, chosen: Partition) -> BatchPlan:
        """The plan of the next batch, once it has a partition."""
        owner, past = self._owners_before(step), self._roots.past(step)
        uses = chosen.uses
        if uses is None:
            uses = uses_by_trainer(index, chosen.trainer, len(step.ids), self._planning.trainers)
        after = Settled.of(uses, step.ids, owner, past.root)
        self._owner[step.rows] = after.owner
        self._roots.settle(step, after)
        return BatchPlan(step, index, replace(chosen, uses=None), owner, past, after)

    def _places(self, index: Lookups) -> Ints:
        planning = self._planning
        return places_of(len(index), planning.batch_size, planning.trainers, planning.shares)

    def _partitions(self, steps: Sequence[Step], indices: Sequence[Lookups]) -> list[Partition]:
        """As asked for; contiguous where the methods find nothing in time."""
        asked, options = self._asked(steps, indices), self._budget.partition_options()
        partitions = None if options is None else partitioned(asked, self._choice, options)
        if partitions is not None:
            return partitions
        whole = partitioned(asked, MethodChoice(only=("contiguous",)), SolveOptions())
        assert whole is not None, "there is always a contiguous partition"
        return [replace(each, is_cut=self._planning.method != "contiguous") for each in whole]

    def _asked(self, steps: Sequence[Step], indices: Sequence[Lookups]) -> Partitioned:
        """Batches that are partitioned together, or the one."""
        planning, places = self._planning, [self._places(index) for index in indices]
        if planning.objective == "time":
            past = self._roots.past(steps[0])
            return MessageBatch(_slots(indices[0]), steps[0].in_next, past, places[0], self.parameters)
        if planning.objective != "synchronised":
            batch = Batch(_slots(indices[0]), self._owners_before(steps[0]), planning.trainers)
            return OneBatch(batch, places[0], planning.objective, self.parameters)
        batches = [
            WindowBatch(_slots(index), step.ids, step.in_next, step.evicted, own)
            for step, index, own in zip(steps, indices, places, strict=True)
        ]
        is_rooted = planning.design == "lrpp-fine-grained"
        return Window(tuple(batches), self._roots.past(steps[0]), is_rooted, self.parameters)

    def _owners_before(self, step: Step) -> Ints:
        """The owner of each id when its batch begins; what is only now prefetched has one under `hash` alone.

        Of a table that lies on the trainers: where the row lies.
        """
        if self._planning.design in SHARDED:
            self._owner = _grown(self._owner, len(step.ids))
            return shard_of(step.ids, self._planning.trainers, self._planning.design)
        self._owner = _grown(self._owner, int(step.rows.max()) + 1)
        owner = np.where(step.prefetched, np.int64(-1), self._owner.take(step.rows))
        if self._planning.ownership == "hash":
            owner[step.prefetched] = _hashed(step.prefetch_ids, self._planning.trainers)
        return owner


def _slots(index: Lookups) -> Lookups:
    """What an example costs: each row once, also where a bag holds it twice."""
    return index.once() if isinstance(index, Bags) else index


def _hashed(ids: Ints, trainers: int) -> Ints:
    mixed = (ids.astype(np.uint64) * _HASH_FACTOR) >> np.uint64(40)
    return (mixed % np.uint64(trainers)).astype(np.int64)
