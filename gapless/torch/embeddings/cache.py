"""The LRPP cache of one trainer, executed as its plans say, for training in p processes of PyTorch.

Every process is a trainer and an embedding server: it keeps the rows whose number is its rank modulo p. In each::

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

from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Ints, Mask
from gapless.errors import InputError
from gapless.profiles.traces.bags import Bags, chosen
from gapless.profiles.traces.trace import split_global_ids
from gapless.torch.embeddings.optimizers import stepped, with_state
from gapless.torch.embeddings.plans import BatchPlan, Group, Sharding
from gapless.torch.library import rank_count, torch

__all__ = ["MOVES", "Lookup", "LrppCache", "add_gradients"]

_EMPTY = -1

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


@dataclass(frozen=True)
class _Moves:
    """A plan as one trainer carries it out.

    `server`, `local`: of each id, its server and its place there. `fetches`, `writes`: bool (n, p), which trainers
    fetch a row and which write it back.
    """

    plan: BatchPlan
    server: Ints
    local: Ints
    fetches: Mask
    writes: Mask

    @classmethod
    def of(cls, plan: BatchPlan, sharding: Sharding) -> _Moves:
        """Private rows move to and from their only user, the others to all trainers and from one of them."""
        rows = sharding.rows(plan.step.ids)
        server, trainers = rows % sharding.servers, np.arange(sharding.servers)
        private = plan.is_private[:, None]
        fetches = plan.step.prefetched[:, None] & (plan.users | ~private)
        writes = plan.step.evicted[:, None] & np.where(private, plan.users, server[:, None] == trainers)
        return cls(plan, server, rows // sharding.servers, fetches, writes)


class LrppCache:
    """One trainer's cache, and its part of the embedding servers.

    Parameters
    ----------
    plans
        Of all batches, in order, the same in every process. Taken as far ahead as prefetches may start.
    sharding, weights
        Where the tables' rows are, and this process's: float, one row for each of `sharding.rows_of(rank)`. Changed in
        place by write-backs.
    step_size
        Of the optimiser; may be changed between batches.
    optimizer
        One of `OPTIMIZERS`; its state begins with zeros.
    timeout_s
        The longest that the background waits for another process.

    `moved_bytes`: by kind of `MOVES`, what has reached this process: rows from servers (its own too) and rows written
    back to its server, with their state, and gradients from other processes.

    All processes of the default group make it together. Raises `InputError` where plans, sharding and group differ in
    the number of trainers, and for weights of another shape.
    """

    def __init__(
        self, plans: Iterable[BatchPlan], sharding: Sharding, weights: torch.Tensor, *, step_size: float,
        optimizer: str = "sgd", timeout_s: float = 300.0,
    ) -> None:  # fmt: skip
        self.step_size, self._optimizer = step_size, optimizer
        self.moved_bytes = dict.fromkeys(MOVES, 0)
        if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
            raise InputError("cache: needs a process group; call torch.distributed.init_process_group first")
        self._rank, self._ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
        if sharding.servers != self._ranks:
            raise InputError(f"sharding: must have a server in each of {self._ranks} processes, got {sharding.servers}")
        expected = len(sharding.rows_of(self._rank))
        if weights.ndim != 2 or len(weights) != expected:
            raise InputError(f"weights: must be {expected} rows x dimension, got shape {tuple(weights.shape)}")
        self._sharding, self._weights = sharding, weights.detach()  # the same memory
        self._dimension = weights.shape[1]
        self._state = with_state(optimizer, self._weights)[:, self._dimension :]
        self._cached = self._weights.new_empty((0, self._dimension + self._state.shape[1]))
        self._held: Ints = np.empty(0, dtype=np.int64)  # the id in each row of the cache
        self._is_busy: Mask = np.empty(0, dtype=np.bool_)  # rows that the background works on
        self._plans, self._coming = iter(plans), deque[_Moves]()
        self._next = next(self._plans, None)
        self._current: tuple[_Moves, torch.Tensor] | None = None
        self._done = -1
        self._group = torch.distributed.new_group(timeout=timedelta(seconds=timeout_s))
        self._thread = ThreadPoolExecutor(1, "cache")
        self._background: Future[None] | None = self._thread.submit(self._fetch, self._released())

    # -- one batch -----------------------------------------------------------------------------------------------------

    def lookup(self) -> Lookup:
        """The rows of this trainer's examples of the next batch.

        Raises `InputError` for a row that isn't in the cache, or not yet up to date.
        """
        if self._current is not None:
            raise InputError("cache: lookup must be followed by update, got another lookup")
        moves = self._next_moves()
        plan = moves.plan
        if plan.step.prefetch_after >= self._done:
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
        self._join()
        self._synchronise(plan, "sync_now", gradient, None)
        self._apply_alone(plan, gradient)
        self._current = None
        self._done += 1
        self._is_busy[plan.step.rows[plan.sync_later | plan.step.evicted]] = True
        released = self._released()
        self._background = self._thread.submit(self._after, moves, gradient, released)

    def flush(self) -> None:
        """Wait for the background, and let the servers have the current value of every row that is still cached.

        Training may go on afterwards. All processes call it; then `weights` are what training made of them so far.
        """
        if self._current is not None:
            raise InputError("cache: lookup must be followed by update, got flush")
        self._join()
        slots = np.flatnonzero(self._held != _EMPTY)
        rows = self._sharding.rows(self._held[slots])
        own = rows % self._ranks == self._rank  # every trainer has these, up to date: private ones are evicted by now
        self._store(rows[own] // self._ranks, self._cached[slots[own]])

    def close(self) -> None:
        """End the background thread."""
        self._thread.shutdown()

    # -- the background ------------------------------------------------------------------------------------------------

    def _after(self, moves: _Moves, gradient: torch.Tensor, released: list[_Moves]) -> None:
        """What is left of a batch, then the prefetches that had to wait for it."""
        self._synchronise(moves.plan, "sync_later", gradient, self._group)
        self._write_back(moves)
        self._fetch(released)

    def _write_back(self, moves: _Moves) -> None:
        step = moves.plan.step
        sent = [moves.writes[:, self._rank] & (moves.server == server) for server in range(self._ranks)]
        received = [moves.writes[:, trainer] & (moves.server == self._rank) for trainer in range(self._ranks)]
        slots = self._slots(moves.plan, _places(sent), "written back")
        places, values = self._exchange(self._cached[slots], sent, received, self._group)
        self._store(moves.local[places], values)
        self._count("written", len(places), values)
        self._held[step.rows[step.evicted]] = _EMPTY

    def _fetch(self, released: list[_Moves]) -> None:
        """Fetch what these batches prefetch. Raises `InputError` for a place in the cache that isn't free."""
        for moves in released:
            step = moves.plan.step
            sent = [moves.fetches[:, trainer] & (moves.server == self._rank) for trainer in range(self._ranks)]
            received = [moves.fetches[:, self._rank] & (moves.server == server) for server in range(self._ranks)]
            stored = moves.local[_places(sent)]
            rows = torch.cat([self._weights[stored], self._state[stored]], dim=1)
            places, values = self._exchange(rows, sent, received, self._group)
            self._count("fetched", len(places), values)
            slots = step.rows[places]
            if (self._held[slots] != _EMPTY).any():
                slot = slots[(self._held[slots] != _EMPTY).argmax()]
                raise InputError(f"batch {step.batch}: must prefetch into free rows of the cache, row {slot} isn't")
            self._cached[slots] = values
            self._held[slots] = step.ids[places]

    def _store(self, places: Ints, values: torch.Tensor) -> None:
        """Take rows back into this process's part of the servers."""
        self._weights[places], self._state[places] = values[:, : self._dimension], values[:, self._dimension :]

    def _count(self, kind: str, rows: int, values: torch.Tensor) -> None:
        self.moved_bytes[kind] += rows * values.shape[1] * values.element_size()

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
        _, values = self._exchange(own.repeat(self._ranks, 1), everyone, used, group)
        self._count(kind, len(values) - len(own), values)
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
        self._cached[slots] = stepped(self._optimizer, self._cached[slots], gradient, self.step_size, step)

    def _trained(self) -> tuple[_Moves, torch.Tensor]:
        if self._current is None:
            raise InputError("cache: update must follow a lookup, got none")
        moves, rows = self._current
        if rows.grad is None and len(rows):
            raise InputError("cache: update must follow the backward pass, got rows without a gradient")
        return moves, torch.zeros_like(rows) if rows.grad is None else rows.grad

    # -- plans and places ----------------------------------------------------------------------------------------------

    def _released(self) -> list[_Moves]:
        """The batches whose prefetches waited for what is done by now; the background must be idle."""
        released = []
        while self._next is not None and self._next.step.prefetch_after <= self._done:
            if self._next.users.shape[1] != self._ranks:
                raise InputError(
                    f"plans: must be for {self._ranks} trainers, one a process, got {self._next.users.shape[1]}"
                )
            released.append(_Moves.of(self._next, self._sharding))
            self._next = next(self._plans, None)
        self._coming.extend(released)
        self._make_room(max((int(moves.plan.step.rows.max()) + 1 for moves in released), default=0))
        return released

    def _next_moves(self) -> _Moves:
        if self._coming:
            return self._coming.popleft()
        if self._next is None:
            raise InputError(f"cache: the plan has {self._done + 1} batches, got a lookup for one more")
        step = self._next.step
        rule = f"must not wait for batch {step.prefetch_after}"
        raise InputError(f"batch {step.batch}: prefetches {rule}, which comes no earlier")

    def _make_room(self, rows: int) -> None:
        more = max(rows, 2 * len(self._held)) - len(self._held)
        if rows > len(self._held):
            self._cached = torch.cat([self._cached, self._cached.new_empty((more, self._cached.shape[1]))])
            self._held = np.concatenate([self._held, np.full(more, _EMPTY, dtype=np.int64)])
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

    def _exchange(
        self,
        values: torch.Tensor,
        sent: Sequence[Mask],
        received: Sequence[Mask],
        group: Group,
    ) -> tuple[Ints, torch.Tensor]:
        """Send each process its rows; which rows of the batch come back, process after process, and their values."""
        numbers = [int(each.sum()) for each in received]
        arrived = values.new_empty((sum(numbers), values.shape[1]))
        torch.distributed.all_to_all_single(
            arrived, values.contiguous(), numbers, [int(each.sum()) for each in sent], group=group
        )
        return _places(received), arrived


def add_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Add up the gradients of all processes, in the order of ranks. A parameter without one counts as zero."""
    params = list(parameters)
    if not params:
        return
    own = torch.cat([(torch.zeros_like(each) if each.grad is None else each.grad).reshape(-1) for each in params])
    parts = [torch.empty_like(own) for _ in range(rank_count())]
    torch.distributed.all_gather(parts, own)
    total = torch.zeros_like(own)
    for part in parts:
        total += part
    for parameter, gradient in zip(params, total.split([each.numel() for each in params]), strict=True):
        parameter.grad = gradient.reshape(parameter.shape)


def _places(masks: Sequence[Mask]) -> Ints:
    """Where they hold, mask after mask."""
    return np.concatenate([np.flatnonzero(mask) for mask in masks])


def _place_among(mask: Mask) -> Ints:
    """For each entry where a mask holds: how many before it do."""
    places: Ints = np.cumsum(mask) - 1
    return places
