"""The LRPP cache of one trainer, executed as its plans say, for training in p processes of PyTorch.

Every process is a trainer and an embedding server: it keeps the rows whose number is its rank modulo p. With `Roles`,
servers are processes of their own, which `servers.serve` their rows. In each trainer::

    cache = LrppCache(plans, sharding, weights, step_size=0.1)
    for inputs, targets in loader:
        embeddings = cache.lookup()
        loss = criterion(model(inputs, embeddings.pooled()), targets).sum() / embeddings.batch_examples
        loss.backward()
        cache.update()
        add_gradients(model.parameters())
        optimiser.step()
    cache.flush()

A row takes the optimiser's state with it from its server to the caches and back; gradients are exchanged, state never
is, as all who hold a row take the same steps. What happens to rows in batch b, and when:

| rows | when | what |
|---|---|---|
| used by this trainer | `lookup` | copied from the cache into one leaf tensor |
| used in the next batch | `update` | all trainers exchange gradients and apply them (critical path) |
| private | `update` | the only user applies its own gradient |
| others of the batch | background | all trainers exchange gradients and apply them |
| evicted | background, then | written back: by the only user, or by the trainer that is the row's server |
| prefetched, where b is the batch they wait for | background, then | fetched: by the only user, or by all trainers |

The background is a thread with a process group of its own. It runs while the next batch is looked up and trained, and
has ended before that batch's critical path begins (section 5.2.3), or before its lookup if that needs a row fetched
meanwhile. It touches no row that the next batch uses.

**Nothing else moves.** A row that the plan doesn't bring into the cache, keeps too short or leaves to the background
too long is an `InputError` where it is looked up or synchronised, never a silent fetch.

**Sums.** A row's gradients are added in the order of ranks, and so are those of `add_gradients`: the result doesn't
depend on the plan, only on which trainer has which example. Needs the extra `torch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, chosen
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.embeddings.journal import BEFORE_ALL, Journal
from gapless.torch.embeddings.optimizers import stepped
from gapless.torch.embeddings.plans import BatchPlan, Group, Sharding
from gapless.torch.embeddings.servers import EMPTY, Groups, Moves, Roles, ServedRows, Timeline, copied, exchanged
from gapless.torch.library import torch

__all__ = ["MOVES", "Lookup", "LrppCache", "add_gradients"]

MOVES = ("fetched", "written", "sync_now", "sync_later")
"""Kinds of what processes exchange: rows with their state, then gradients."""


@dataclass(frozen=True)
class Lookup:
    """What a trainer needs of a batch.

    `rows`: a leaf tensor of the distinct rows that its examples use. `index`: int64 (own examples, tables), the place
    of each lookup in `rows`, in the order of the sampler; of bags (n,), one after another, with `lengths`: int64 (own
    examples, tables). `batch_examples`: of all trainers, by which a sum of losses is divided to make the step that of
    the whole batch.
    """

    rows: torch.Tensor
    index: torch.Tensor
    batch_examples: int
    lengths: torch.Tensor | None = None

    def pooled(self) -> torch.Tensor:
        """The sum of each bag's rows, zeros for an empty one; (own examples, tables, dimension)."""
        if self.lengths is None:
            return torch.nn.functional.embedding(self.index, self.rows)
        offsets = torch.zeros(self.lengths.numel() + 1, dtype=torch.int64)
        torch.cumsum(self.lengths.reshape(-1), dim=0, out=offsets[1:])
        summed = torch.nn.functional.embedding_bag(self.index, self.rows, offsets, mode="sum", include_last_offset=True)
        return summed.reshape(*self.lengths.shape, -1)


class LrppCache:
    """One trainer's cache, and its part of the embedding servers.

    Parameters
    ----------
    plans
        Of all batches, in order, the same in every process. Taken as far ahead as prefetches may start.
    sharding, weights
        Where the tables' rows are, and this process's: float, one row for each of its server's. Changed in place by
        write-backs.
    step_size
        Of the optimiser; may be changed between batches.
    optimizer
        One of `OPTIMIZERS`; its state begins with zeros.
    timeout_s
        The longest that the background waits for another process.
    roles
        Who trains and who serves; all processes do both if None.
    journal
        Of what the last batches changed here, to `recover` by. Plans must be a sequence then.
    state
        What the optimiser keeps for each of `weights`, changed in place; its beginning if None.
    start
        The first batch to train, before which all rows are at the servers. None where `recover` will say, in a process
        that stands in for a lost one.

    `moved_bytes`: by kind of `MOVES`, what has reached this process: rows from servers (its own too) and rows written
    back to its server, with their state, and gradients from other processes.

    All processes of the default group make it together. Raises `InputError` where plans, sharding and group differ in
    the number of trainers, and for weights of another shape.
    """

    def __init__(
        self, plans: Iterable[BatchPlan], sharding: Sharding, weights: torch.Tensor, *, step_size: float,
        optimizer: str = "sgd", timeout_s: float = 300.0, roles: Roles | None = None, journal: Journal | None = None,
        state: torch.Tensor | None = None, start: int | None = 0,
    ) -> None:  # fmt: skip
        self.step_size, self._optimizer, self._timeout_s = step_size, optimizer, timeout_s
        self.moved_bytes = dict.fromkeys(MOVES, 0)
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise InputError("cache: needs a process group; call torch.distributed.init_process_group first")
        ranks = torch.distributed.get_world_size()
        self.roles = Roles(torch.distributed.get_rank(), ranks, ranks) if roles is None else roles
        self._rank, self._ranks = self.roles.rank, self.roles.trainers
        self._journal = Journal(is_kept=False) if journal is None else journal
        self._groups = Groups(None, None, None) if start is None else Groups.of(self.roles, timeout_s)
        self._rows = ServedRows(weights, optimizer, sharding, self.roles, self._groups.rows, self._journal, state)
        self._dimension = weights.shape[1]
        self._cached = self._rows.no_rows(np.empty(0, dtype=np.int64))
        self._held: Ints = np.empty(0, dtype=np.int64)  # the id in each row of the cache
        self._is_busy: Mask = np.empty(0, dtype=np.bool_)  # rows that the background works on
        self._timeline = Timeline(plans, sharding, self._ranks)
        self._current: tuple[Moves, torch.Tensor] | None = None
        self._thread = ThreadPoolExecutor(1, "cache")
        self._start = start or 0
        self._background: Future[None] | None = None if start is None else self._begin()

    def _begin(self) -> Future[None]:
        first = self._timeline.begin(self._start)
        self._make_room(max((int(moves.places.max(initial=-1)) + 1 for moves in first), default=0))
        return self._thread.submit(self._fetch, first, self._start - 1)

    # -- one batch -----------------------------------------------------------------------------------------------------

    def lookup(self) -> Lookup:
        """The rows of this trainer's examples of the next batch.

        Raises `InputError` for a row that isn't in the cache, or not yet up to date.
        """
        if self._current is not None:
            raise InputError("cache: lookup must be followed by update, got another lookup")
        moves = self._timeline.take()
        plan = moves.plan
        assert plan is not None
        if plan.step.prefetch_after >= self._timeline.done or self._timeline.done == self._start - 1:
            self._join()
        used = plan.users[:, self._rank]
        slots = self._slots(plan, used, "looked up")
        is_busy = self._is_busy[slots]
        if is_busy.any():
            raise self._error(plan, used, is_busy, "must not be left to the background by the batch before")
        rows = self._cached[slots][:, : self._dimension].contiguous().requires_grad_()
        self._current = moves, rows
        own = chosen(plan.index, np.flatnonzero(plan.trainer == self._rank))
        place = _place_among(used)
        if isinstance(own, Bags):
            index, lengths = torch.from_numpy(place[own.values]), torch.from_numpy(own.lengths)
            return Lookup(rows, index, plan.step.examples, lengths)
        return Lookup(rows, torch.from_numpy(place[own]), plan.step.examples)

    def update(self) -> None:
        """After the backward pass: apply the gradients of the rows looked up, as the plan says, and start the rest.

        Raises `InputError` where no gradient is there, or a row to synchronise isn't in the cache.
        """
        moves, gradient = self._trained()
        plan = moves.plan
        assert plan is not None
        self._join()
        self._synchronise(plan, "sync_now", gradient, self._groups.critical)
        self._apply_alone(plan, gradient)
        self._current = None
        self._timeline.done += 1
        self._is_busy[plan.step.rows[plan.sync_later | plan.step.evicted]] = True
        released = self._released()
        self._background = self._thread.submit(self._after, moves, plan, gradient, released)

    def flush(self) -> None:
        """Wait for the background, and let the servers have the current value of every row that is still cached.

        Training may go on afterwards. All processes call it; then `weights` are what training made of them so far.
        """
        if self._current is not None:
            raise InputError("cache: lookup must be followed by update, got flush")
        self._join()
        held = self._rows.held()  # every trainer has these, up to date: private ones are evicted by now
        self._rows.write_back(held, lambda places: self._cached[held.places[places]], self._timeline.done)

    @property
    def rows(self) -> ServedRows:
        """The servers, as far as they are here; up to date after `flush`."""
        return self._rows

    @property
    def trainers(self) -> Group:
        """The group of all trainers, for what they exchange beside rows."""
        return self._groups.critical

    def abandon(self) -> None:
        """Wait until the background ends, well or not, after another process was lost."""
        if self._background is not None:
            self._background.exception()

    def recover(self, lost: int) -> int:
        """Take up training where the journal was undone to, in new groups; how many bytes of rows the new trainer got.

        All processes call it, servers as `ServedRows.recover`, once trainer `lost` has been replaced. The others send
        it a slice each of what all trainers have; what it alone had fetched ahead it fetches from the servers again.
        """
        self._groups = Groups.of(self.roles, self._timeout_s)
        last = self._journal.settled
        self._rows.recover(self._groups.rows, lost)
        self._current, self._background, self._is_busy[:] = None, None, False
        if last == BEFORE_ALL:
            self._background = self._begin()
            return 0
        coming, held = self._timeline.rewind(last), self._rows.held()
        self._make_room(max(int(moves.places.max(initial=-1)) + 1 for moves in (held, *coming)))
        values = copied(self._cached[held.places], self.roles, lost, self._groups.critical)
        if self._rank == lost:
            self._cached[held.places], self._held[held.places] = values, held.ids
        self._fetch([moves.private_of(lost) for moves in coming], last)
        return int(values.numel() * values.element_size())

    def close(self) -> None:
        """End the background thread."""
        self._thread.shutdown()

    # -- the background ------------------------------------------------------------------------------------------------

    def _after(self, moves: Moves, plan: BatchPlan, gradient: torch.Tensor, released: list[Moves]) -> None:
        """What is left of a batch, then the prefetches that had to wait for it."""
        self._synchronise(plan, "sync_later", gradient, self._groups.later)
        self._write_back(moves, plan)
        self._fetch(released, plan.step.batch)

    def _write_back(self, moves: Moves, plan: BatchPlan) -> None:
        def values(places: Ints) -> torch.Tensor:
            return self._cached[self._slots(plan, places, "written back")]

        self.moved_bytes["written"] += self._rows.write_back(moves, values, plan.step.batch)
        self._hold(plan.step.rows[plan.step.evicted], EMPTY, plan.step.batch)

    def _fetch(self, released: list[Moves], batch: int) -> None:
        """Fetch what these batches prefetch, after a batch, which is settled then.

        Raises `InputError` for a place in the cache that isn't free.
        """
        for moves in released:
            places, values = self._rows.fetch(moves, batch)
            self.moved_bytes["fetched"] += values.numel() * values.element_size()
            slots = moves.places[places]
            if (self._held[slots] != EMPTY).any():
                slot = slots[(self._held[slots] != EMPTY).argmax()]
                rule = f"must prefetch into free rows of the cache, row {slot} isn't"
                raise InputError(f"batch {'' if moves.plan is None else moves.plan.step.batch}: {rule}")
            self._cached[slots] = values
            self._hold(slots, moves.ids[places], batch)
        self._journal.settle(batch)

    def _hold(self, slots: NDArray[np.integer], ids: Ints | int, batch: int) -> None:
        self._journal.record(batch, self, "_held", slots)
        self._held[slots] = ids

    def _join(self) -> None:
        """Wait for the background; raises what went wrong there."""
        if self._background is not None:
            self._background.result()
            self._background = None
            self._is_busy[:] = False

    # -- gradients -----------------------------------------------------------------------------------------------------

    def _synchronise(self, plan: BatchPlan, kind: str, gradient: torch.Tensor, group: Group) -> None:
        """Add up the gradients of some rows over the trainers that use them, and apply the sums on every trainer."""
        rows: Mask = getattr(plan, kind)
        slots = self._slots(plan, rows, "synchronised")
        used = [rows & plan.users[:, trainer] for trainer in range(self._ranks)]
        own = gradient[_place_among(plan.users[:, self._rank])[used[self._rank]]]
        # Each trainer's rows arrive one after another, so that they are added in the order of ranks.
        everyone = [used[self._rank]] * self._ranks
        _, values = exchanged(own.repeat(self._ranks, 1), everyone, used, group)
        self.moved_bytes[kind] += (values.numel() - own.numel()) * values.element_size()
        total = gradient.new_zeros((len(slots), gradient.shape[1]))
        place = _place_among(rows)
        for part, uses in zip(values.split([int(each.sum()) for each in used]), used, strict=True):
            total[place[uses]] += part
        self._descend(slots, total, plan)

    def _apply_alone(self, plan: BatchPlan, gradient: torch.Tensor) -> None:
        """Apply this trainer's gradients of the rows that nobody synchronises."""
        used = plan.users[:, self._rank]
        alone = used & ~plan.sync_now & ~plan.sync_later
        self._descend(self._slots(plan, alone, "updated"), gradient[_place_among(used)[alone]], plan)

    def _descend(self, slots: NDArray[np.int32], gradient: torch.Tensor, plan: BatchPlan) -> None:
        step = plan.step.batch + 1
        self._journal.record(plan.step.batch, self, "_cached", slots)
        self._cached[slots] = stepped(self._optimizer, self._cached[slots], gradient, self.step_size, step)

    def _trained(self) -> tuple[Moves, torch.Tensor]:
        if self._current is None:
            raise InputError("cache: update must follow a lookup, got none")
        moves, rows = self._current
        if rows.grad is None and len(rows):
            raise InputError("cache: update must follow the backward pass, got rows without a gradient")
        return moves, torch.zeros_like(rows) if rows.grad is None else rows.grad

    # -- plans and places ----------------------------------------------------------------------------------------------

    def _released(self) -> list[Moves]:
        """The batches whose prefetches waited for what is done by now; the background must be idle."""
        released = self._timeline.released()
        self._make_room(max((int(moves.places.max()) + 1 for moves in released), default=0))
        return released

    def _make_room(self, rows: int) -> None:
        more = max(rows, 2 * len(self._held)) - len(self._held)
        if rows > len(self._held):
            self._cached = torch.cat([self._cached, self._cached.new_empty((more, self._cached.shape[1]))])
            self._held = np.concatenate([self._held, np.full(more, EMPTY, dtype=np.int64)])
            self._is_busy = np.concatenate([self._is_busy, np.zeros(more, dtype=np.bool_)])

    def _slots(self, plan: BatchPlan, rows: Mask | Ints, purpose: str) -> NDArray[np.int32]:
        """Where in the cache some of a batch's rows are. Raises `InputError` for one that isn't there."""
        slots = plan.step.rows[rows]
        is_missing = self._held[slots] != plan.step.ids[rows]
        if is_missing.any():
            rule = f"must be in the cache of trainer {self._rank} to be {purpose}; the plan didn't bring or keep it"
            raise self._error(plan, rows, is_missing, rule)
        return slots

    def _error(self, plan: BatchPlan, rows: Mask | Ints, is_bad: Mask, rule: str) -> InputError:
        table, id_ = split_global_ids(plan.step.ids[rows][is_bad][:1])
        return InputError(f"batch {plan.step.batch}: id {id_[0]} of table {table[0]} {rule}")


def add_gradients(parameters: Iterable[torch.nn.Parameter], group: Group = None) -> None:
    """Add up the gradients of all processes of a group, in the order of ranks. A parameter without one counts as 0."""
    params = list(parameters)
    if not params:
        return
    own = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).reshape(-1) for each in params])
    parts = [torch.empty_like(own) for _ in range(torch.distributed.get_world_size(group))]
    torch.distributed.all_gather(parts, own, group=group)
    total = torch.zeros_like(own)
    for part in parts:
        total += part
    for parameter, gradient in zip(params, total.split([each.numel() for each in params]), strict=True):
        parameter.grad = gradient.reshape(parameter.shape)


def _place_among(mask: Mask) -> Ints:
    """For each entry where a mask holds: how many before it do."""
    places: Ints = np.cumsum(mask) - 1
    return places
