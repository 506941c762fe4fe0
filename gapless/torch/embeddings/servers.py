"""Embedding servers: the rows that each has, and how they come to the trainers and back, as plans say.

A server is a process of its own, or one of the trainers. All of them follow the same plans, so that nobody asks for
rows: who has a row sends it when its time comes. Needs the extra `torch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.errors import InputError
from gapless.torch.embeddings.journal import BEFORE_ALL, Journal
from gapless.torch.embeddings.optimizers import with_state
from gapless.torch.embeddings.plans import BatchPlan, Group, Sharding
from gapless.torch.library import torch

__all__ = ["EMPTY", "Groups", "Moves", "Roles", "ServedRows", "Timeline", "copied", "exchanged", "places_of", "serve"]

EMPTY = -1
"""In a place of a cache, instead of an id."""


@dataclass(frozen=True)
class Roles:
    """Who is what: the first processes are `trainers`; servers are some of these, or where `apart`, those after them.

    Raises `InputError` unless the processes of the default group are so many.
    """

    rank: int
    trainers: int
    servers: int
    apart: bool = False

    def __post_init__(self) -> None:
        ranks, needed = torch.distributed.get_world_size(), self.trainers + (self.servers if self.apart else 0)
        if ranks != needed:
            raise InputError(f"servers: must make {ranks} processes with {self.trainers} trainers, got {self.servers}")

    @property
    def ranks(self) -> int:
        """All processes."""
        return self.trainers + (self.servers if self.apart else 0)

    @property
    def is_trainer(self) -> bool:
        """Whether this process trains."""
        return self.rank < self.trainers

    def server(self, rank: int) -> int | None:
        """Which server a process is, if it is one."""
        number = rank - self.trainers if self.apart else rank
        return number if 0 <= number < self.servers else None


@dataclass(frozen=True)
class Groups:
    """Who exchanges what: trainers on the critical path and beside it, and all processes rows of servers."""

    critical: Group
    later: Group
    rows: Group

    @classmethod
    def of(cls, roles: Roles, timeout_s: float) -> Groups:
        """Made by all processes together: a thread has groups of its own, as exchanges of two could be mixed up."""
        wait = timedelta(seconds=timeout_s)
        rows = torch.distributed.new_group(timeout=wait)
        if not roles.apart:
            return cls(None, rows, rows)
        trainers = list(range(roles.trainers))
        critical, later = (torch.distributed.new_group(trainers, timeout=wait) for _ in range(2))
        return cls(critical, later, rows)


@dataclass(frozen=True)
class Moves:
    """Rows of n ids between servers and trainers.

    `places`: of each id in the caches. `server`, `local`: its server, and its place there. `fetches`, `writes`: bool
    (n, p), which trainers fetch a row and which write it back. `plan`: whose rows they are, if a batch's.
    """

    ids: Ints
    places: Ints
    server: Ints
    local: Ints
    fetches: Mask
    writes: Mask
    plan: BatchPlan | None = None

    @classmethod
    def of(cls, plan: BatchPlan, sharding: Sharding, trainers: int) -> Moves:
        """Private rows move to and from their only user, the others to all trainers and from one of them."""
        whole = cls.replicated(plan.step.ids, plan.step.rows.astype(np.int64), sharding, trainers)
        private = plan.is_private[:, None]
        fetches = plan.step.prefetched[:, None] & (plan.users | ~private)
        writes = plan.step.evicted[:, None] & np.where(private, plan.users, whole.writes)
        return replace(whole, fetches=fetches, writes=writes, plan=plan)

    @classmethod
    def replicated(cls, ids: Ints, places: Ints, sharding: Sharding, trainers: int) -> Moves:
        """To all trainers, and from one of them."""
        rows = sharding.rows(ids)
        writes = (rows % trainers)[:, None] == np.arange(trainers)
        return cls(ids, places, rows % sharding.servers, rows // sharding.servers, np.ones_like(writes), writes)

    def private_of(self, trainer: int) -> Moves:
        """What one trainer fetches for itself."""
        assert self.plan is not None
        is_own = (self.plan.is_private[:, None] & (np.arange(self.fetches.shape[1]) == trainer)).astype(np.bool_)
        return replace(self, fetches=self.fetches & is_own)


class Timeline:
    """When prefetches may start: each batch's waits for a batch before it to be written back."""

    def __init__(self, plans: Iterable[BatchPlan], sharding: Sharding, trainers: int) -> None:
        self.done = -1
        self._all, self._sharding, self._trainers = plans, sharding, trainers
        self._coming = deque[Moves]()
        self._plans: Iterator[BatchPlan] = iter(plans)
        self._next = next(self._plans, None)

    def released(self) -> list[Moves]:
        """The batches whose prefetches waited for what is done by now."""
        released = []
        while self._next is not None and self._next.step.prefetch_after <= self.done:
            if self._next.users.shape[1] != self._trainers:
                raise InputError(
                    f"plans: must be for {self._trainers} trainers, one a process, got {self._next.users.shape[1]}"
                )
            released.append(Moves.of(self._next, self._sharding, self._trainers))
            self._next = next(self._plans, None)
        self._coming.extend(released)
        return released

    def take(self) -> Moves:
        """Of the batch that comes now."""
        if self._coming:
            return self._coming.popleft()
        if self._next is None:
            raise InputError(f"cache: the plan has {self.done + 1} batches, got a lookup for one more")
        step = self._next.step
        rule = f"must not wait for batch {step.prefetch_after}"
        raise InputError(f"batch {step.batch}: prefetches {rule}, which comes no earlier")

    def is_over(self) -> bool:
        """Whether no batch is left."""
        return not self._coming and self._next is None

    def rewind(self, done: int) -> list[Moves]:
        """Go to where batch `done` is done; the batches whose prefetches were released by then."""
        if not isinstance(self._all, Sequence):
            raise InputError("plans: must be a sequence to go back in, got what is read once")
        self.done = done
        self._coming.clear()
        self._plans = iter(self._all[done + 1 :])
        self._next = next(self._plans, None)
        return self.released()

    def begin(self, start: int) -> list[Moves]:
        """What is fetched before batch `start`, where all rows are at the servers."""
        released = self.rewind(start - 1) if start else self.released()
        return [self._replicated(), *released] if start else released

    def _replicated(self) -> Moves:
        """What every trainer has once the batches up to `done` are written back."""
        assert isinstance(self._all, Sequence)
        held: dict[int, int] = {}
        for plan in self._all[: self.done + 1]:
            step, shared = plan.step, plan.step.prefetched & ~plan.is_private
            held.update(zip(step.rows[shared].tolist(), step.ids[shared].tolist(), strict=True))
            for place in step.rows[step.evicted].tolist():
                held.pop(place, None)
        ids, places = np.array(list(held.values()), dtype=np.int64), np.array(list(held), dtype=np.int64)
        return Moves.replicated(ids, places, self._sharding, self._trainers)


class ServedRows:
    """All servers' rows, seen from one process.

    `weights`: float, of this process's own server, one row for each of its rows, changed in place; none for a process
    that is no server. `state`: what the optimiser keeps for each. `replicated`: the id that every trainer has in each
    place of its cache, or `EMPTY`. Raises `InputError` for weights of another shape.
    """

    def __init__(
        self, weights: torch.Tensor, optimizer: str, sharding: Sharding, roles: Roles, group: Group, journal: Journal,
        state: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        if sharding.servers != roles.servers:
            raise InputError(f"sharding: must have {roles.servers} servers, as roles have, got {sharding.servers}")
        self._own = roles.server(roles.rank)
        expected = 0 if self._own is None else len(sharding.rows_of(self._own))
        if weights.ndim != 2 or len(weights) != expected:
            raise InputError(f"weights: must be {expected} rows x dimension, got shape {tuple(weights.shape)}")
        self.weights = weights.detach()  # the same memory
        self.state = self.state_of(self.weights, optimizer) if state is None else state
        self.replicated: Ints = np.full(0, EMPTY, dtype=np.int64)
        self.sharding, self.roles, self.group, self.journal = sharding, roles, group, journal

    @staticmethod
    def state_of(weights: torch.Tensor, optimizer: str) -> torch.Tensor:
        """What an optimiser begins with."""
        return with_state(optimizer, weights)[:, weights.shape[1] :]

    def fetch(self, moves: Moves, batch: int) -> tuple[Ints, torch.Tensor]:
        """Send trainers their rows: which of them have come to this one, and their values with state.

        `batch`: after which it happens.
        """
        me = self.roles.rank
        sent = [self._between(moves, moves.fetches, rank, me) for rank in range(self.roles.ranks)]
        received = [self._between(moves, moves.fetches, me, rank) for rank in range(self.roles.ranks)]
        stored = moves.local[places_of(sent)]
        found = exchanged(torch.cat([self.weights[stored], self.state[stored]], dim=1), sent, received, self.group)
        shared: Mask = np.asarray(moves.fetches.any(axis=1))
        if moves.plan is not None:
            shared = shared & ~moves.plan.is_private
        self.replicated = _grown(self.replicated, moves.places, shared)
        self._record(batch, "replicated", moves.places[shared])
        self.replicated[moves.places[shared]] = moves.ids[shared]
        return found

    def write_back(self, moves: Moves, values_at: Callable[[Ints], torch.Tensor], batch: int) -> int:
        """Let servers have rows back, of which `values_at` are those of a trainer; how many bytes have come here."""
        me = self.roles.rank
        sent = [self._between(moves, moves.writes, me, rank) for rank in range(self.roles.ranks)]
        received = [self._between(moves, moves.writes, rank, me) for rank in range(self.roles.ranks)]
        places, values = exchanged(values_at(places_of(sent)), sent, received, self.group)
        stored, dimension = moves.local[places], self.weights.shape[1]
        for name in ("weights", "state"):
            self._record(batch, name, stored)
        self.weights[stored], self.state[stored] = values[:, :dimension], values[:, dimension:]
        if moves.plan is not None:
            evicted = moves.places[moves.plan.step.evicted]
            evicted = evicted[evicted < len(self.replicated)]
            self._record(batch, "replicated", evicted)
            self.replicated[evicted] = EMPTY
        return int(values.numel() * values.element_size())

    def held(self) -> Moves:
        """What every trainer has in its cache."""
        places = np.flatnonzero(self.replicated != EMPTY)
        return Moves.replicated(self.replicated[places], places, self.sharding, self.roles.trainers)

    def recover(self, group: Group, lost: int) -> None:
        """In a new group, let the process that stands in for a lost trainer know what all trainers have."""
        self.group = group
        donor = 0 if lost else 1
        size = torch.tensor([len(self.replicated)])
        torch.distributed.broadcast(size, donor, group=group)
        held = torch.from_numpy(np.resize(self.replicated, int(size)))
        torch.distributed.broadcast(held, donor, group=group)
        self.replicated = np.array(held.numpy())

    def no_rows(self, places: Ints) -> torch.Tensor:
        """What a process that isn't a trainer writes back."""
        assert not len(places)
        return self.weights.new_empty((0, self.weights.shape[1] + self.state.shape[1]))

    def _between(self, moves: Moves, which: Mask, trainer: int, server: int) -> Mask:
        """Which of the rows a trainer and a server exchange, both by their ranks."""
        number = self.roles.server(server)
        if number is None or trainer >= self.roles.trainers:
            return np.zeros(len(which), dtype=np.bool_)
        between: Mask = which[:, trainer] & (moves.server == number)
        return between

    def _record(self, batch: int, name: str, places: Ints) -> None:
        self.journal.record(batch, self, name, places)


def serve(rows: ServedRows, timeline: Timeline, start: int, after: Callable[[int], object]) -> int:
    """What a server that doesn't train does until the plans end; how many bytes are written back to it.

    `after` each batch is called with its number.

    Goes on after what the journal of `rows` says is settled, where `timeline` has to be then.
    """
    journal = rows.journal
    if journal.settled == BEFORE_ALL:
        for moves in timeline.begin(start):
            rows.fetch(moves, start - 1)
        journal.settle(start - 1)
    written = 0
    while not timeline.is_over():
        moves = timeline.take()
        batch = timeline.done + 1
        written += rows.write_back(moves, rows.no_rows, batch)
        timeline.done = batch
        for released in timeline.released():
            rows.fetch(released, batch)
        journal.settle(batch)
        after(batch)
    return written


def exchanged(
    values: torch.Tensor, sent: Sequence[Mask], received: Sequence[Mask], group: Group
) -> tuple[Ints, torch.Tensor]:
    """Send each process its rows; which rows come back, process after process, and their values."""
    numbers = [int(each.sum()) for each in received]
    arrived = values.new_empty((sum(numbers), values.shape[1]))
    torch.distributed.all_to_all_single(
        arrived, values.contiguous(), numbers, [int(each.sum()) for each in sent], group=group
    )
    return places_of(received), arrived


def copied(values: torch.Tensor, roles: Roles, lost: int, group: Group) -> torch.Tensor:
    """What the trainers have, in the one that stands in for a lost one too: each of the others sends it a slice.

    `values` (n, width): of n entries, the new one's too.
    """
    survivors = [trainer for trainer in range(roles.trainers) if trainer != lost]
    bounds = np.linspace(0, len(values), len(survivors) + 1).astype(np.int64)
    parts = [np.zeros(len(values), dtype=np.bool_) for _ in range(roles.trainers)]
    for trainer, first, end in zip(survivors, bounds, bounds[1:], strict=False):
        parts[trainer][first:end] = True
    none = np.zeros(len(values), dtype=np.bool_)
    is_new = roles.rank == lost
    own = none if is_new else parts[roles.rank]
    sent = [own if trainer == lost else none for trainer in range(roles.trainers)]
    _, arrived = exchanged(values[own], sent, parts if is_new else [none] * roles.trainers, group)
    return arrived if is_new else values


def places_of(masks: Sequence[Mask]) -> Ints:
    """Where they hold, mask after mask."""
    return np.concatenate([np.flatnonzero(mask) for mask in masks])


def _grown(held: Ints, places: Ints, which: Mask) -> Ints:
    """With room for these places."""
    size = int(places[which].max(initial=-1)) + 1
    if size <= len(held):
        return held
    return np.concatenate([held, np.full(max(size, 2 * len(held)) - len(held), EMPTY, dtype=np.int64)])
