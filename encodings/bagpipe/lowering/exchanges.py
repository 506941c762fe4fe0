"""Exchanges of rows between trainers in a schedule: from whoever holds a row to its users, and gradients back.

**Owned rows** (a partitioned cache, or tables that lie on the trainers) go from the owner to its users before the
forward pass, and their gradients back to the owner before the dense gradients' turn.

**Rooted rows** are sent from the trainer that holds them to their next users, and gathered at one of these. Which
copies are current where, of a row that batch b uses and batch x uses next (`cuts.py`): from the gathering after
b on its root's copy alone holds all updates up to b's; from the sending before x on those of x's users do. The others'
copies are freed as they become stale: users' that aren't the next root when they have trained, the old root's when it
has sent. Both exchanges run on the trainers' network: from b to b + 1 within the critical synchronisation of b,
gathered before the dense gradients are all-reduced and sent after it; else gathered in the background of b and sent in
that of x - 2. From b to b + 1 the servers may relay a row instead: its root writes it back, and who uses it next
fetches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gapless.array_types import Ints, Mask
from gapless.encodings.bagpipe.designs.counts import busiest
from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.designs.sharding import pooled_vectors
from gapless.encodings.bagpipe.lowering.actions import SENT_LATER, SENT_NOW, SYNC_LATER, SYNC_NOW, GroupedActions
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.errors import InputError
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import EventKind
from gapless.ir.schedule_builder import ScheduleBuilder

__all__ = ["BatchDraft", "Holders", "OwnedRows", "RootedRows"]


@dataclass
class BatchDraft:
    """One batch, which adds itself to a schedule.

    `seen`: the updates of each group, as bits. `rows`: int64, of each group. `bit`: the number of the batch's update.
    """

    draft: ScheduleBuilder
    machine: Machine
    times: Times
    number: int
    batch: GroupedActions
    seen: list[int]
    rows: Ints
    bit: int

    @property
    def trainers(self) -> range:
        """Their numbers."""
        return range(self.machine.cluster.trainers)

    def collective(
        self, name: str, inputs: tuple[int, ...], outputs: tuple[int, ...], duration_s: float, start_s: float,
        end_s: float, *, needs: dict[int, int] | None = None, updates: tuple[int, ...] = (),
    ) -> None:  # fmt: skip
        """An op on the trainers' network; `updates`: the groups that hold the batch's update from then on."""
        op = Op(
            name, inputs, outputs, (Implementation(duration_s),), "collective", adds=self.bit if updates else None,
            needs=needs or {}, updates=updates,
        )  # fmt: skip
        self.draft.run(op, self.machine.network(start_s, end_s), start_s, end_s, kind=EventKind.COLLECTIVE)

    def bytes_of(self, groups: Ints) -> float:
        """Of all rows of some groups."""
        return float(self.rows[groups].sum() * self.machine.cluster.row_bytes)

    def in_turn(self, span_s: tuple[float, float], parts: list[tuple[int, Ints]]) -> None:
        """Groups over links of the servers' network, one link after the other. The last ends with the activity: after
        the latency there may be time to spare.
        """
        first_s, end_s = span_s
        for link, groups in reversed(parts):
            start_s = max(first_s, end_s - self.bytes_of(groups) * self.machine.per_byte_s(link))
            self.draft.move(link, groups.tolist(), start_s, end_s - start_s)
            end_s = start_s

    def leave(self, groups: Ints, holder: Ints, is_leaving: Mask, time_s: float) -> None:
        """Groups lie among the replicas as their holders have them; those that are leaving there alone."""
        for trainer in self.trainers:
            for leaves in (False, True):
                own = groups[(holder == trainer) & (is_leaving == leaves)].tolist()
                freed_on = (self.machine.trainer(trainer),) if leaves else ()
                self.draft.move(self.machine.link("ready", trainer), own, time_s, freed_on=freed_on)

    def lend(
        self, name: str, token: str, groups: Ints, holder: Ints, users: Mask, duration_s: float, start_s: float,
        end_s: float, is_leaving: Mask | None = None,
    ) -> int:  # fmt: skip
        """Groups go from their holders to their users, and those that are leaving away; returns a token of arrival."""
        leaving = np.zeros(len(groups), dtype=np.bool_) if is_leaving is None else is_leaving
        self.leave(groups, holder, leaving, start_s)
        arrived = self.draft.tensor(token)
        needs = {group: self.seen[group] for group in groups.tolist()}
        self.collective(name, tuple(needs), (arrived,), duration_s, start_s, end_s, needs=needs)
        for trainer in self.trainers:
            arriving = groups[users[:, trainer] & (holder != trainer)].tolist()
            self.draft.move(self.machine.link("claim", trainer), [arrived, *arriving], end_s)
        return arrived

    def collect(
        self, name: str, trained: list[int], groups: Ints, holder: Ints, duration_s: float, start_s: float,
        end_s: float,
    ) -> None:  # fmt: skip
        """The gradients of groups reach their holders, who update them."""
        updated = tuple(groups.tolist())
        self.collective(name, (*trained, *updated), updated, duration_s, start_s, end_s, updates=updated)
        for trainer in self.trainers:
            own = groups[holder == trainer].tolist()
            self.draft.move(self.machine.link("claim", trainer), own, end_s)


@dataclass
class OwnedRows(BatchDraft):
    """The rows of one batch that a trainer owns and others may use."""

    @cached_property
    def _owned(self) -> tuple[Ints, Ints, Mask]:
        """The groups, their owners, and who uses them."""
        owned = self.batch.is_owned
        return self.batch.group[owned], self.batch.private_to[owned], self.batch.users[owned]

    @cached_property
    def peers_s(self) -> float:
        """How long the busiest trainer gets rows from others, or gives rows to them."""
        machine = self.machine
        if machine.sharding:
            most = pooled_vectors(self.batch.examples, machine.tables, machine.sharding)[1]
            return machine.cluster.peer_s(float(most))
        return self.machine.cluster.peer_s(float(self.batch.whole.busiest[0]))

    def exchange(self, start_s: float) -> list[int]:
        """They reach their users before the forward pass; returns a token that they have, if there are any."""
        groups, owner, users = self._owned
        if not len(groups):
            return []
        cluster = self.machine.cluster
        duration_s = self.peers_s + (0.0 if self.machine.sharding else cluster.control_s)
        trained_s = float(self.times.sync_now.end_s[self.number - 1]) if self.number else 0.0
        begin_s = min(start_s, max(trained_s, float(self.times.prefetch.end_s[self.number])))
        if cluster.placement != "apart":  # what else the network carries comes before
            begin_s = max(begin_s, start_s - duration_s)
        name, token = f"exchange {self.number}", f"batch {self.number} exchanged"
        exchanged = self.lend(name, token, groups, owner, users, duration_s, begin_s, start_s)
        self.draft.free([exchanged], self.machine.replicas, after=len(self.draft.events) - 1)
        return [exchanged]

    def give_back(self, trained: list[int]) -> None:
        """Their gradients go back to their owners, before the dense gradients' turn."""
        groups, owner, _ = self._owned
        if len(groups):
            start_s, end_s = self.times.sync_now.of(self.number)
            end_s = min(start_s + self.peers_s, end_s)
            before = len(self.draft.events)
            self.collect(f"return {self.number}", trained, groups, owner, self.peers_s, start_s, end_s)
            if self.machine.sharding:  # nothing is cached
                self.draft.free(groups.tolist(), self.machine.replicas, after=before)


@dataclass
class Holders:
    """What is carried from batch to batch.

    `root`: who holds each group, -1 for nobody; after all batches that have been trained by `since_s`, and those that
    have been added. `gathered_s`: when what is gathered in the background of a batch is.
    """

    root: list[int]
    since_s: float
    gathered_s: dict[int, float] = field(default_factory=dict)


@dataclass
class RootedRows(BatchDraft):
    """The rooted rows of one batch."""

    holders: Holders

    def send(self) -> list[int]:
        """Before the batch, what the batch before it used and what only earlier ones did; returns tokens of arrival."""
        sent: list[int] = []
        for action, after, name in ((SENT_LATER, 2, "later"), (SENT_NOW, 1, "now")):
            chosen = self.batch.fetched_by == action
            if chosen.any():
                sent += self._sent(chosen, self.number - after, name)
        return sent

    def _sent(self, chosen: Mask, slot: int, name: str) -> Iterator[int]:
        """Groups that their roots send in the synchronisation after batch `slot`."""
        cluster = self.machine.cluster
        if slot < 0:
            raise InputError(f"fetched_by: batch {self.number} has rows sent {name}, when no batch has used them yet")
        groups, users = self.batch.group[chosen], self.batch.users[chosen]
        root = np.array([self.holders.root[group] for group in groups.tolist()])
        root = np.where(root < 0, self.batch.private_to[chosen], root)  # has no copy: the replay says so
        is_leaving = ~users[np.arange(len(groups)), root]
        count, most = busiest(users, root, weight=self.rows[groups])
        if not count:
            return
        moving = np.flatnonzero(users.sum(axis=1) > ~is_leaving)
        moved = groups[moving], root[moving], users[moving], is_leaving[moving]
        if name == "now" and self.times.is_relayed[slot]:
            self._relay(slot, *moved)
            return
        start_s, end_s = (self.times.sync_now if name == "now" else self.times.sync_later).of(slot)
        duration_s = cluster.peer_s(float(most), cluster.row_bytes)
        begin_s = max(start_s, end_s - duration_s)
        if name == "later":
            begin_s = self.holders.gathered_s.get(slot, begin_s)
        yield self.lend(
            f"send {self.number} {name}", f"rows of batch {self.number} sent {name}", *moved[:3], duration_s, begin_s,
            end_s, moved[3],
        )  # fmt: skip

    def _relay(self, slot: int, groups: Ints, root: Ints, users: Mask, is_leaving: Mask) -> None:
        """Groups that the servers relay: written back by their roots, fetched by the others that use them."""
        machine = self.machine
        own = root[:, None] == np.arange(len(self.trainers))
        written, fetched = (
            [(machine.link(kind, trainer), groups[chosen[:, trainer]]) for trainer in self.trainers]
            for kind, chosen in (("write", own), ("fetch", users & ~own))
        )
        self.in_turn(self.times.relay_write.of(slot), written)
        self.leave(groups, root, is_leaving, self.times.relay_write.of(slot)[1])
        self.in_turn(self.times.relay_fetch.of(slot), fetched)

    def gather_s(self, sync: int) -> float:
        """How long gathering takes, now or later."""
        return self.machine.cluster.peer_s(float(self.batch.whole.busiest[sync]))

    def gather(self, trained: list[int]) -> None:
        """After the batch: gradients of the groups that several trainers use reach their roots, which update them."""
        rooted = self.batch.is_rooted
        if not rooted.any():
            return
        for sync, name, spans in ((SYNC_NOW, "now", self.times.sync_now), (SYNC_LATER, "later", self.times.sync_later)):
            begin_s, latest_s = spans.of(self.number)
            chosen = rooted & (self.batch.sync == sync)
            groups, root = self.batch.group[chosen], self.batch.private_to[chosen]
            if sync == SYNC_LATER:
                self.holders.gathered_s[self.number] = begin_s
            if not len(groups):
                continue
            duration_s = self.gather_s(sync)
            # Sums of the same durations in another order may differ in the last bit: the activity ends when it ends.
            end_s = min(begin_s + duration_s, latest_s)
            if sync == SYNC_LATER:
                self.holders.gathered_s[self.number] = end_s
            self.collect(f"gather {self.number} {name}", trained, groups, root, duration_s, begin_s, end_s)
        if self.times.is_trained(self.number, self.holders.since_s):
            return
        for group, holder in zip(
            self.batch.group[rooted].tolist(), self.batch.private_to[rooted].tolist(), strict=True
        ):  # fmt: skip
            self.holders.root[group] = holder
