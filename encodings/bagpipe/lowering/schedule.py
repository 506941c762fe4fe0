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
Rooted rows lie with the trainers that use them: `exchanges.py`. Gradients count where a trainer's memory is given:
`gradients.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gapless.encodings.bagpipe.designs.pipeline import Spans, Times
from gapless.encodings.bagpipe.ids.distinct import distinct
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    EVERYWHERE,
    NOT_FETCHED,
    SHARED,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
    RowGroups,
)
from gapless.encodings.bagpipe.lowering.exchanges import BatchDraft, Holders, OwnedRows, RootedRows
from gapless.encodings.bagpipe.lowering.gradients import Gradients
from gapless.encodings.bagpipe.lowering.machine import FETCH_ALL, SERVERS, WRITE_ALL, Machine
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import Schedule
from gapless.ir.schedule_builder import ScheduleBuilder

__all__ = ["Stretch", "lowered", "to_schedule"]


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


def to_schedule(
    actions: Sequence[Actions], times: Times, machine: Machine, groups: RowGroups | None = None, first: int = 0
) -> Schedule:
    """The schedule of batches of a run from number `first` on, at the run's times. `groups`: of rows, those with one
    history together if None.

    Required at the end: all rows where they lay at first, at the servers or on their shards, with the updates of every
    batch that used them.
    """
    if groups is None:
        ids = distinct(np.concatenate([batch.ids for batch in actions]))
        groups = RowGroups.of(actions, ids, machine.device_of(ids))
    numbers = range(first, first + len(actions))
    stretch = Stretch(numbers, frozenset(numbers), {number: number - first for number in numbers})
    return lowered(groups, [0] * len(groups.rows), stretch, times, machine)


def lowered(
    groups: RowGroups, seen: list[int], stretch: Stretch, times: Times, machine: Machine, names: Iterable[str] = (),
    root: Sequence[int] = (),
) -> Schedule:  # fmt: skip
    """The schedule of a stretch. `seen`: the updates of each group's rows that batches before it made, as bits; those
    of its own batches are added. `names`: tokens that must be there, even if none of its batches has them. `root`: who
    holds each group before it, -1 for nobody, as for all if it is empty.
    """
    draft = ScheduleBuilder(counts_contributions=True)
    sizes: list[int] = (groups.rows * machine.cluster.row_bytes).tolist()
    draft.tensors([f"rows {number}" for number in range(len(sizes))], sizes)
    holders = Holders(list(root) or [-1] * len(groups.rows), stretch.from_s)
    device = np.full(len(groups.rows), SERVERS)
    device[groups.part] = machine.device_of(groups.ids)
    copies = list(enumerate(device.tolist()))
    for number, batch in zip(stretch.numbers, groups.batches, strict=True):
        part = (draft, machine, times, number, batch, seen, groups.rows, stretch.bits.get(number, 0))
        taken = _Batch(*part, stretch, OwnedRows(*part), RootedRows(*part, holders), Gradients(*part)).add()
        copies += [(tensor, SERVERS) for tensor in taken]
    for name in sorted(set(names).difference(draft.names)):
        draft.tensor(name)
    draft.initial = [(*copy, stretch.held) for copy in copies]
    draft.required = [(*copy, bits) for copy, bits in zip(copies[: len(groups.rows)], seen, strict=True)]
    draft.events = [event for event in draft.events if stretch.from_s <= event.start_s < stretch.until_s]
    return draft.schedule(machine.topology(), "bagpipe")


@dataclass
class _Batch(BatchDraft):
    """All of one batch."""

    stretch: Stretch
    owned: OwnedRows
    rooted: RootedRows
    gradients: Gradients

    def add(self) -> list[int]:
        """Add its events; returns its examples, which lie with the trace at first."""
        self._fetch()
        return self._use() if self.number in self.stretch.trains else []

    def _use(self) -> list[int]:
        """All that comes after the prefetch. Tokens are freed by whoever reads them last."""
        replicas = self.machine.replicas
        start_s = float(self.times.forward.start_s[self.number])
        exchanged = (*self.owned.exchange(start_s), *self.rooted.send())
        shared = self.batch.where(private_to=SHARED).tolist()
        for trainer in self.trainers:
            self._claim(trainer, start_s)
        looked_up = self.draft.tensor(f"batch {self.number} looked up")
        needs = {group: self.seen[group] for group in shared}
        lookup = Op(f"lookup {self.number}", tuple(shared), (looked_up,), (Implementation(0.0),), needs=needs)
        self.draft.run(lookup, replicas, start_s, start_s)
        examples, trained = [], []
        for trainer in self.trainers:
            taken, loaded = self._load(trainer, start_s)
            examples.append(taken)
            trained.append(self._train(trainer, (looked_up, *exchanged, loaded), start_s))
        before = len(self.draft.events)
        self.owned.give_back(trained)
        self._synchronise(trained, "now", self.times.sync_now, SYNC_NOW)
        self._synchronise(trained, "later", self.times.sync_later, SYNC_LATER)
        self.rooted.gather(trained)
        self.draft.free(trained, replicas, after=before)
        self._hold_gradients()
        if start_s < self.stretch.until_s:
            for group in self.batch.group.tolist():
                self.seen[group] |= 1 << self.bit
        self._write_back()
        return examples

    def _fetch(self) -> None:
        """Prefetch: first what single trainers fetch, then what all do, one after the other on the servers' network.

        Here as elsewhere, nothing starts before the activity that it belongs to, and nothing ends after it.
        """
        cluster = self.machine.cluster
        first_s, end_s = self.times.prefetch.of(self.number)
        self._carry("prefetch", self.times.prefetch)
        by_users = self.batch.fetched_by == BY_USERS
        alone = [self.batch.fetched_by == trainer for trainer in self.trainers]
        parts = [(FETCH_ALL, self.batch.where(fetched_by=EVERYWHERE))]
        parts += [
            (self.machine.link("fetch", trainer), self.batch.group[fetched | (by_users & uses)])
            for trainer, (fetched, uses) in enumerate(zip(alone, self.batch.users.T, strict=True))
        ]
        for link, group in parts:  # from the last one back: after the latency there may be time to spare
            start_s = max(first_s, end_s - self.bytes_of(group) * self.machine.per_byte_s(link))
            self.draft.move(link, group.tolist(), start_s, end_s - start_s)
            if link != FETCH_ALL:
                self.draft.move(self.machine.place_link(link), group.tolist(), end_s)
            if link == FETCH_ALL or cluster.placement != "colocated":
                end_s = start_s

    def _carry(self, name: str, spans: Spans) -> None:
        """The servers' part of a batch on the network that synchronises too, so that both can't use it at once."""
        start_s, end_s = spans.of(self.number)
        if self.machine.cluster.placement != "apart" and end_s > start_s:
            self.collective(f"{name} {self.number}", (), (), 0.0, start_s, end_s)

    def _claim(self, trainer: int, start_s: float) -> None:
        """Rows that all trainers hold and one alone uses for the last time: its copy is the one that counts."""
        groups = self.batch.where(private_to=trainer, fetched_by=NOT_FETCHED, sync=0).tolist()
        self.draft.move(self.machine.link("claim", trainer), groups, start_s)

    def _load(self, trainer: int, start_s: float) -> tuple[int, int]:
        """The trainer's examples, into its buffer and out of it: a byte each, so that its size is a number of them.

        Returns the examples, and a token that they were taken.
        """
        machine, name = self.machine, f"examples of batch {self.number} on trainer {trainer}"
        examples = self.draft.tensor(name, int(self.batch.examples[trainer]))
        loaded = self.draft.tensor(f"{name}, loaded")
        buffer = machine.buffer(trainer)
        self.draft.move(machine.link("load", trainer), [examples], start_s)
        load = Op(f"load {self.number} on {trainer}", (examples,), (loaded,), (Implementation(0.0),))
        self.draft.run(load, buffer, start_s, start_s, frees=[(examples, buffer)])
        self.draft.move(machine.link("go", trainer), [loaded], start_s, freed_on=(buffer,))
        return examples, loaded

    def _train(self, trainer: int, waits_for: tuple[int, ...], start_s: float) -> int:
        """Forward and backward pass, which updates the trainer's private rows; returns a token that it is done."""
        machine, cluster = self.machine, self.machine.cluster
        batch = self.batch
        private: tuple[int, ...] = tuple(batch.group[batch.is_kept & (batch.private_to == trainer)].tolist())
        lent = (batch.is_owned | batch.is_rooted) & ~batch.is_kept & batch.users[:, trainer]
        read: tuple[int, ...] = tuple(batch.group[lent].tolist())
        others = batch.group[lent & (batch.private_to != trainer)].tolist()
        done = self.draft.tensor(f"gradients of batch {self.number} on trainer {trainer}")
        is_last = trainer == cluster.trainers - 1
        freed_on = (machine.replicas,) if is_last else ()
        self.draft.move(machine.link("claim", trainer), [waits_for[0]], start_s, freed_on=freed_on)
        train = Op(
            f"train {self.number} on {trainer}",
            (*waits_for, *private, *read),
            (done, *private),
            (Implementation(sum(cluster.pass_s(float(self.batch.examples[trainer])))),),
            adds=self.bit,
            needs={group: self.seen[group] for group in (*private, *read)},
            updates=private,
        )
        end_s, here = float(self.times.backward.end_s[self.number]), machine.trainer(trainer)
        self.draft.run(train, here, start_s, end_s, frees=[(tensor, here) for tensor in (*waits_for, *others)])
        self.draft.move(machine.link("ready", trainer), [done], end_s, freed_on=(here,))
        return done

    def _synchronise(self, trained: list[int], when: str, spans: Spans, sync: int) -> None:
        """An all-reduce of the gradients of shared rows; the one on the critical path has the dense gradients too."""
        chosen, cluster = self.batch.where(private_to=SHARED, sync=sync), self.machine.cluster
        groups: tuple[int, ...] = tuple(chosen.tolist())
        dense_bytes = cluster.dense_bytes if sync == SYNC_NOW else 0
        size_bytes = float(int(self.rows[chosen].sum()) * cluster.gradient_bytes + dense_bytes)
        if not size_bytes:
            return
        duration_s = cluster.all_reduce_s(size_bytes)
        start_s, end_s = spans.of(self.number)
        if sync == SYNC_NOW:
            start_s = min(start_s + self.owned.peers_s + self.rooted.gather_s(SYNC_NOW), end_s)
        if self.batch.is_rooted.any():  # they are sent behind it
            end_s = min(start_s + duration_s, end_s)
        name = f"synchronise {self.number} {when}"
        self.collective(name, (*trained, *groups), groups, duration_s, start_s, end_s, updates=groups)

    def _hold_gradients(self) -> None:
        """Until they are synchronised, at once or later: what owners or roots gather, before the dense gradients."""
        if self.machine.gradient_bytes is None:
            return
        held, whole = self.gradients.hold(), self.batch.whole
        for sync, spans, owned_s in (
            (SYNC_NOW, self.times.sync_now, self.owned.peers_s), (SYNC_LATER, self.times.sync_later, 0.0)
        ):  # fmt: skip
            start_s, end_s = spans.of(self.number)
            if not ((whole.private_to == SHARED) & (whole.sync == sync)).any():
                end_s = min(start_s + owned_s + self.rooted.gather_s(sync), end_s)
            self.gradients.free(held, sync, start_s, end_s)

    def _write_back(self) -> None:
        """Private rows from their trainers, then the others: freed where they were, but not at the servers."""
        machine, cluster = self.machine, self.machine.cluster
        early = [(trainer, self.batch.where(private_to=trainer, evicted=1, sync=0)) for trainer in self.trainers]
        gone = (self.batch.evicted == 1) & (self.batch.sync != 0)
        late = [(trainer, self.batch.group[gone & (self.batch.private_to == trainer)]) for trainer in self.trainers]
        late.append((SHARED, self.batch.where(private_to=SHARED, evicted=1)))
        for spans, parts in ((self.times.write_early, early), (self.times.write_late, late)):
            first_s, end_s = spans.of(self.number)
            self._carry("write back", spans)
            for trainer, evicted in reversed(parts):
                link = WRITE_ALL if trainer == SHARED else machine.link("write", trainer)
                where = (machine.replicas,) if trainer == SHARED else (machine.trainer(trainer), machine.replicas)
                start_s = max(first_s, end_s - self.bytes_of(evicted) * machine.per_byte_s(link))
                self.draft.move(link, evicted.tolist(), start_s, end_s - start_s, freed_on=where)
                if cluster.placement != "colocated":
                    end_s = start_s
