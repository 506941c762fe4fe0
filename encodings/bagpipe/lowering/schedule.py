"""From the actions of a run of batches to a schedule in the graph IR.

Devices: the embedding servers (with the trace), each trainer's private part of the cache, the replicas (what every
trainer holds alike: one copy stands for all), and an input buffer a trainer. Tensors are groups of rows with one
history, the examples of a batch on a trainer, and tokens of no size that order what lies on different devices. A
private row keeps its place among the replicas too, in a copy that nobody reads, so that this device holds as many rows
as the lookahead counts: its memory is the size of the cache.

Batch b: rows are fetched from the servers; each trainer takes its examples into its buffer, whose size is its share of
a batch; the replicas are looked up, and must hold all updates of batches before b; each trainer trains, which updates
its private rows; synchronisation updates the shared ones, now or later; evicted rows are written back and freed. A row
that lies on all trainers and is private in its last batch leaves the replicas for the trainer that uses it. Rows that
one trainer owns and others use (a partitioned cache) go from the owner to its users and back in two collectives.
Rooted rows lie with the trainers that use them: `rooted.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.designs.pipeline import Spans, Times
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    EVERYWHERE,
    NOT_FETCHED,
    SHARED,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
    GroupedActions,
    RowGroups,
)
from gapless.encodings.bagpipe.lowering.machine import FETCH_ALL, SERVERS, WRITE_ALL, Machine
from gapless.encodings.bagpipe.lowering.rooted import Holders, RootedRows
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import EventKind, Schedule
from gapless.ir.schedule_builder import ScheduleBuilder

__all__ = ["to_schedule"]

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Stretch:
    """Part of a run that is lowered alone: the events that start from `from_s` on, and before `until_s`.

    `numbers`: of its batches, ascending; `trains`: those of which more than the prefetch is in it. `bits`: the
    contribution of each batch. `held`: what a row holds before any batch has updated it, as bits.
    """

    numbers: Sequence[int]
    trains: frozenset[int]
    bits: Mapping[int, int]
    from_s: float = -math.inf
    until_s: float = math.inf
    held: int = 0

    @classmethod
    def whole(cls, batches: int) -> Stretch:
        """All of a run."""
        numbers = range(batches)
        return cls(numbers, frozenset(numbers), {number: number for number in numbers})


def to_schedule(
    actions: Sequence[Actions], times: Times, machine: Machine, groups: RowGroups | None = None
) -> Schedule:
    """The schedule of a run, at the given times. `groups`: of rows, those with one history together if None.

    Required at the end: all rows at the servers, with the updates of every batch that used them.
    """
    groups = groups or RowGroups.of(actions)
    return lowered(groups, [0] * len(groups.rows), Stretch.whole(len(actions)), times, machine)


def lowered(
    groups: RowGroups, seen: list[int], stretch: Stretch, times: Times, machine: Machine, names: Iterable[str] = (),
    root: Sequence[int] = (),
) -> Schedule:  # fmt: skip
    """The schedule of a stretch. `seen`: the updates of each group's rows that batches before it made, as bits; those
    of its own batches are added. `names`: tokens that must be there, even if none of its batches has them. `root`: who
    holds each group before it, -1 for nobody, as for all if it is empty.
    """
    group_bytes = groups.rows * machine.cluster.row_bytes
    rows = ScheduleBuilder(counts_contributions=True)
    for number, size_bytes in enumerate(group_bytes.tolist()):
        rows.tensor(f"rows {number}", size_bytes)
    holders = Holders(list(root) or [-1] * len(groups.rows))
    copies = [(number, SERVERS) for number in range(len(groups.rows))]
    for number, batch in zip(stretch.numbers, groups.batches, strict=True):
        bit = stretch.bits.get(number, 0)
        rooted = RootedRows(rows, machine, times, number, batch, seen, holders, groups.rows, bit)
        taken = _Batch(rows, machine, times, number, batch, stretch, seen, group_bytes, rooted).add()
        copies += [(tensor, SERVERS) for tensor in taken]
    for name in sorted(set(names).difference(rows.names)):
        rows.tensor(name)
    rows.initial = [(*copy, stretch.held) for copy in copies]
    rows.required = [(*copy, bits) for copy, bits in zip(copies[: len(groups.rows)], seen, strict=True)]
    rows.events = [event for event in rows.events if stretch.from_s <= event.start_s < stretch.until_s]
    return rows.schedule(machine.topology(), "bagpipe")


@dataclass
class _Batch:
    """One batch, which adds itself to the schedule."""

    rows: ScheduleBuilder
    machine: Machine
    times: Times
    number: int
    batch: GroupedActions
    stretch: Stretch
    seen: list[int]
    group_bytes: Ints
    rooted: RootedRows

    def add(self) -> list[int]:
        """Add its events; returns its examples, which lie with the trace at first."""
        self._fetch()
        return self._use() if self.number in self.stretch.trains else []

    def _use(self) -> list[int]:
        """All that comes after the prefetch. Tokens are freed by whoever reads them last."""
        cluster, replicas = self.machine.cluster, self.machine.replicas
        trainers = range(cluster.trainers)
        start_s = float(self.times.forward.start_s[self.number])
        exchanged = (*self._exchange(start_s), *self.rooted.send())
        shared = self.batch.where(private_to=SHARED).tolist()
        for trainer in trainers:
            self._claim(trainer, start_s)
        looked_up = self.rows.tensor(f"batch {self.number} looked up")
        needs = {group: self.seen[group] for group in shared}
        lookup = Op(f"lookup {self.number}", tuple(shared), (looked_up,), (Implementation(0.0),), needs=needs)
        self.rows.run(lookup, replicas, start_s, start_s)
        examples, trained = [], []
        for trainer in trainers:
            taken, loaded = self._load(trainer, start_s)
            examples.append(taken)
            trained.append(self._train(trainer, (looked_up, *exchanged, loaded), start_s))
        before = len(self.rows.events)
        self._return(trained)
        self._synchronise(trained, "now", SYNC_NOW)
        self._synchronise(trained, "later", SYNC_LATER)
        self.rooted.gather(trained)
        self.rows.free(trained, replicas, after=before)
        if start_s < self.stretch.until_s:
            for group in self.batch.group.tolist():
                self.seen[group] |= 1 << self._bit
        self._write_back()
        return examples

    @property
    def _bit(self) -> int:
        """The number of its contribution."""
        return self.stretch.bits[self.number]

    def _fetch(self) -> None:
        """Prefetch: first what single trainers fetch, then what all do, one after the other on the servers' network.

        Here as elsewhere, nothing starts before the activity that it belongs to, and nothing ends after it.
        """
        cluster = self.machine.cluster
        span = self.times.prefetch
        first_s, end_s = float(span.start_s[self.number]), float(span.end_s[self.number])
        self._carry("prefetch", self.times.prefetch)
        by_users = self.batch.fetched_by == BY_USERS
        alone = [self.batch.fetched_by == trainer for trainer in range(cluster.trainers)]
        parts = [(FETCH_ALL, self.batch.where(fetched_by=EVERYWHERE))]
        parts += [
            (self.machine.link("fetch", trainer), self.batch.group[fetched | (by_users & uses)])
            for trainer, (fetched, uses) in enumerate(zip(alone, self.batch.users.T, strict=True))
        ]
        for link, group in parts:  # from the last one back: after the latency there may be time to spare
            start_s = max(first_s, end_s - self._bytes(group) * self.machine.per_byte_s(link))
            self.rows.move(link, group.tolist(), start_s, end_s - start_s)
            if link != FETCH_ALL:
                self.rows.move(self.machine.place_link(link), group.tolist(), end_s)
            if link == FETCH_ALL or cluster.placement != "colocated":
                end_s = start_s

    def _carry(self, name: str, spans: Spans) -> None:
        """The servers' part of a batch on the network that synchronises too, so that both can't use it at once."""
        start_s, end_s = float(spans.start_s[self.number]), float(spans.end_s[self.number])
        if self.machine.cluster.placement != "apart" and end_s > start_s:
            op = Op(f"{name} {self.number}", (), (), (Implementation(0.0),), "collective")
            self.rows.run(op, self.machine.network(start_s, end_s), start_s, end_s, kind=EventKind.COLLECTIVE)

    def _bytes(self, groups: Ints) -> float:
        return float(self.group_bytes[groups].sum())

    def _rows(self, groups: Ints) -> Ints:
        return self.group_bytes[groups] // self.machine.cluster.row_bytes

    def _claim(self, trainer: int, start_s: float) -> None:
        """Rows that all trainers hold and one alone uses for the last time: its copy is the one that counts."""
        groups = self.batch.where(private_to=trainer, fetched_by=NOT_FETCHED, sync=0).tolist()
        self.rows.move(self.machine.link("claim", trainer), groups, start_s)

    @cached_property
    def _owned(self) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Groups that one trainer owns and others may use, their owners, and who uses them."""
        owned = self.batch.is_owned
        return self.batch.group[owned], self.batch.private_to[owned], self.batch.users[owned]

    @cached_property
    def _peers_s(self) -> float:
        """How long the busiest trainer gets rows from others, or gives rows to them."""
        groups, owner, users = self._owned
        trainers = self.machine.cluster.trainers
        others = users & (np.arange(trainers) != owner[:, None])
        rows = self._rows(groups)
        received, sent = rows @ others, np.bincount(owner, weights=rows * others.sum(axis=1), minlength=trainers)
        return self.machine.cluster.peer_s(float(max(received.max(), sent.max())))

    def _exchange(self, start_s: float) -> tuple[int, ...]:
        """Owned rows reach their users before the forward pass; returns a token that they have, if there are any."""
        groups, owner, users = self._owned
        if not len(groups):
            return ()
        machine, duration_s = self.machine, self.machine.cluster.control_s + self._peers_s
        trained_s = float(self.times.sync_now.end_s[self.number - 1]) if self.number else 0.0
        begin_s = min(start_s, max(trained_s, float(self.times.prefetch.end_s[self.number])))
        if self.machine.cluster.placement != "apart":  # what else the network carries comes before
            begin_s = max(begin_s, start_s - duration_s)
        exchanged = self.rows.tensor(f"batch {self.number} exchanged")
        for trainer in range(machine.cluster.trainers):
            self.rows.move(machine.link("ready", trainer), groups[owner == trainer].tolist(), begin_s)
        needs = {group: self.seen[group] for group in groups.tolist()}
        implementation = Implementation(duration_s)
        op = Op(f"exchange {self.number}", tuple(needs), (exchanged,), (implementation,), "collective", needs=needs)
        self.rows.run(op, machine.network(begin_s, start_s), begin_s, start_s, kind=EventKind.COLLECTIVE)
        for trainer in range(machine.cluster.trainers):
            others = groups[users[:, trainer] & (owner != trainer)].tolist()
            self.rows.move(machine.link("claim", trainer), [exchanged, *others], start_s)
        self.rows.free([exchanged], machine.replicas, after=len(self.rows.events) - 1)
        return (exchanged,)

    def _return(self, trained: list[int]) -> None:
        """The gradients of owned rows go back to their owners, who update them, before the dense gradients' turn."""
        groups, owner, _ = self._owned
        if not len(groups):
            return
        machine, returned = self.machine, tuple(groups.tolist())
        start_s = float(self.times.sync_now.start_s[self.number])
        op = Op(
            f"return {self.number}", (*trained, *returned), returned, (Implementation(self._peers_s),), "collective",
            adds=self._bit, updates=returned,
        )  # fmt: skip
        end_s = min(start_s + self._peers_s, float(self.times.sync_now.end_s[self.number]))
        self.rows.run(op, machine.network(start_s, end_s), start_s, end_s, kind=EventKind.COLLECTIVE)
        for trainer in range(machine.cluster.trainers):
            self.rows.move(machine.link("claim", trainer), groups[owner == trainer].tolist(), end_s)

    def _load(self, trainer: int, start_s: float) -> tuple[int, int]:
        """The trainer's examples, into its buffer and out of it: a byte each, so that its size is a number of them.

        Returns the examples, and a token that they were taken.
        """
        machine, name = self.machine, f"examples of batch {self.number} on trainer {trainer}"
        examples = self.rows.tensor(name, int(self.batch.examples[trainer]))
        loaded = self.rows.tensor(f"{name}, loaded")
        buffer = machine.buffer(trainer)
        self.rows.move(machine.link("load", trainer), [examples], start_s)
        load = Op(f"load {self.number} on {trainer}", (examples,), (loaded,), (Implementation(0.0),))
        self.rows.run(load, buffer, start_s, start_s, frees=[(examples, buffer)])
        self.rows.move(machine.link("go", trainer), [loaded], start_s, freed_on=(buffer,))
        return examples, loaded

    def _train(self, trainer: int, waits_for: tuple[int, ...], start_s: float) -> int:
        """Forward and backward pass, which updates the trainer's private rows; returns a token that it is done."""
        machine, cluster = self.machine, self.machine.cluster
        batch = self.batch
        private: tuple[int, ...] = tuple(batch.group[batch.is_kept & (batch.private_to == trainer)].tolist())
        lent = (batch.is_owned | batch.is_rooted) & ~batch.is_kept & batch.users[:, trainer]
        read: tuple[int, ...] = tuple(batch.group[lent].tolist())
        others = batch.group[lent & (batch.private_to != trainer)].tolist()
        done = self.rows.tensor(f"gradients of batch {self.number} on trainer {trainer}")
        is_last = trainer == cluster.trainers - 1
        freed_on = (machine.replicas,) if is_last else ()
        self.rows.move(machine.link("claim", trainer), [waits_for[0]], start_s, freed_on=freed_on)
        train = Op(
            f"train {self.number} on {trainer}",
            (*waits_for, *private, *read),
            (done, *private),
            (Implementation(sum(cluster.pass_s(float(self.batch.examples[trainer])))),),
            adds=self._bit,
            needs={group: self.seen[group] for group in (*private, *read)},
            updates=private,
        )
        end_s, here = float(self.times.backward.end_s[self.number]), machine.trainer(trainer)
        self.rows.run(train, here, start_s, end_s, frees=[(tensor, here) for tensor in (*waits_for, *others)])
        self.rows.move(machine.link("ready", trainer), [done], end_s, freed_on=(here,))
        return done

    def _synchronise(self, trained: list[int], when: str, sync: int) -> None:
        """An all-reduce of the gradients of shared rows; the one on the critical path has the dense gradients too."""
        spans: Spans = getattr(self.times, f"sync_{when}")
        groups: tuple[int, ...] = tuple(self.batch.where(private_to=SHARED, sync=sync).tolist())
        dense_bytes = self.machine.cluster.dense_bytes if sync == SYNC_NOW else 0
        rows = int(self._rows(np.array(groups, dtype=np.int64)).sum())
        size_bytes = float(rows * self.machine.cluster.gradient_bytes + dense_bytes)
        if not size_bytes:
            return
        op = Op(
            name=f"synchronise {self.number} {when}",
            inputs=(*trained, *groups),
            outputs=groups,
            implementations=(Implementation(self.machine.cluster.all_reduce_s(size_bytes)),),
            kind="collective",
            adds=self._bit if groups else None,
            updates=groups,
        )
        start_s, end_s = float(spans.start_s[self.number]), float(spans.end_s[self.number])
        if sync == SYNC_NOW and len(self._owned[0]):
            start_s = min(start_s + self._peers_s, end_s)
        if self.batch.is_rooted.any():  # their exchanges follow
            end_s = start_s + self.machine.cluster.all_reduce_s(size_bytes)
        self.rows.run(op, self.machine.network(start_s, end_s), start_s, end_s, kind=EventKind.COLLECTIVE)

    def _write_back(self) -> None:
        """Private rows from their trainers, then the others: freed where they were, but not at the servers."""
        machine, cluster = self.machine, self.machine.cluster
        trainers = range(cluster.trainers)
        early = [(trainer, self.batch.where(private_to=trainer, evicted=1, sync=0)) for trainer in trainers]
        gone = (self.batch.evicted == 1) & (self.batch.sync != 0)
        late = [(trainer, self.batch.group[gone & (self.batch.private_to == trainer)]) for trainer in trainers]
        late.append((SHARED, self.batch.where(private_to=SHARED, evicted=1)))
        for spans, parts in ((self.times.write_early, early), (self.times.write_late, late)):
            first_s, end_s = float(spans.start_s[self.number]), float(spans.end_s[self.number])
            self._carry("write back", spans)
            for trainer, evicted in reversed(parts):
                link = WRITE_ALL if trainer == SHARED else machine.link("write", trainer)
                where = (machine.replicas,) if trainer == SHARED else (machine.trainer(trainer), machine.replicas)
                start_s = max(first_s, end_s - self._bytes(evicted) * machine.per_byte_s(link))
                self.rows.move(link, evicted.tolist(), start_s, end_s - start_s, freed_on=where)
                if cluster.placement != "colocated":
                    end_s = start_s
