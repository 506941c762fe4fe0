"""Rooted rows in a schedule: sent from the trainer that holds them to their next users, gathered at one of these.

Which copies are current where, of a row that batch b uses and batch x uses next (`cuts.py`): from the gathering after
b on its root's copy alone holds all updates up to b's; from the sending before x on those of x's users do. The others'
copies are freed as they become stale: users' that aren't the next root when they have trained, the old root's when it
has sent. Both exchanges run on the trainers' network: from b to b + 1 within the critical synchronisation of b, after
the dense gradients are all-reduced; else gathered in the background of b and sent in that of x - 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.designs.counts import busiest
from gapless.encodings.bagpipe.designs.pipeline import Times
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    SENT_LATER,
    SENT_NOW,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
    GroupedActions,
)
from gapless.encodings.bagpipe.lowering.machine import Machine
from gapless.errors import InputError
from gapless.ir.graph import Implementation, Op
from gapless.ir.schedule import EventKind
from gapless.ir.schedule_builder import ScheduleBuilder

__all__ = ["Holders", "RootedRows", "Settled"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


@dataclass
class Holders:
    """What is carried from batch to batch.

    `root`: who holds each group, -1 for nobody. `ready_s`: when what is gathered now or later after a batch has been.
    """

    root: list[int]
    ready_s: dict[tuple[str, int], float] = field(default_factory=dict)


class Settled:
    """Who holds each row after the first batches of a run, of which a stretch needs no more than that.

    Rows that were written back are forgotten: memory grows with the cache.
    """

    def __init__(self) -> None:
        self._ids = np.empty(0, dtype=np.int64)  # ascending
        self._root = np.empty(0, dtype=np.int64)

    def of(self, ids: Ints) -> Ints:
        """The holder of each row, -1 for nobody."""
        place, is_there = self._places(ids)
        root = np.full(len(ids), -1)
        root[is_there] = self._root[place[is_there]]
        return root

    def add(self, batch: Actions) -> None:
        """Go past the next batch."""
        rooted = batch.fetched_by <= BY_USERS
        place, is_there = self._places(batch.ids[rooted])
        stays = np.ones(len(self._ids), dtype=np.bool_)
        stays[place[is_there]] = False
        held = rooted & (batch.evicted == 0)
        ids = np.concatenate([self._ids[stays], batch.ids[held]])
        order = np.argsort(ids, kind="stable")  # two runs to merge
        self._ids, self._root = ids[order], np.concatenate([self._root[stays], batch.private_to[held]])[order]

    def _places(self, ids: Ints) -> tuple[Ints, Mask]:
        place = np.searchsorted(self._ids, ids)
        is_there = place < len(self._ids)
        is_there[is_there] = self._ids[place[is_there]] == ids[is_there]
        return place, is_there


@dataclass
class RootedRows:
    """The rooted rows of one batch, which add their exchanges to the schedule.

    `seen`: the updates of each group, as bits. `rows`: int64, of each group. `bit`: the number of the batch's update.
    """

    draft: ScheduleBuilder
    machine: Machine
    times: Times
    number: int
    batch: GroupedActions
    seen: list[int]
    holders: Holders
    rows: Ints
    bit: int

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
        machine = self.machine
        if slot < 0:
            raise InputError(f"fetched_by: batch {self.number} has rows sent {name}, when no batch has used them yet")
        groups, users = self.batch.group[chosen], self.batch.users[chosen]
        root = np.array([self.holders.root[group] for group in groups.tolist()])
        root = np.where(root < 0, self.batch.private_to[chosen], root)  # has no copy: the replay says so
        is_leaving = ~users[np.arange(len(groups)), root]
        count, most = busiest(users, root, weight=self.rows[groups])
        if not count:
            return
        spans = self.times.sync_now if name == "now" else self.times.sync_later
        duration_s, end_s = machine.cluster.exchange_s(float(most), machine.cluster.row_bytes), float(spans.end_s[slot])
        begin_s = self.holders.ready_s.get((name, slot), max(float(spans.start_s[slot]), end_s - duration_s))
        moving = users.sum(axis=1) > ~is_leaving
        for trainer in range(machine.cluster.trainers):
            for leaves in (False, True):
                own = groups[moving & (root == trainer) & (is_leaving == leaves)].tolist()
                freed_on = (machine.trainer(trainer),) if leaves else ()
                self.draft.move(machine.link("ready", trainer), own, begin_s, freed_on=freed_on)
        token = self.draft.tensor(f"rows of batch {self.number} sent {name}")
        needs = {group: self.seen[group] for group in groups[moving].tolist()}
        implementation = Implementation(duration_s)
        op = Op(f"send {self.number} {name}", tuple(needs), (token,), (implementation,), "collective", needs=needs)
        self.draft.run(op, machine.network(begin_s, end_s), begin_s, end_s, kind=EventKind.COLLECTIVE)
        for trainer in range(machine.cluster.trainers):
            arriving = groups[users[:, trainer] & (root != trainer)].tolist()
            self.draft.move(machine.link("claim", trainer), [token, *arriving], end_s)
        yield token

    def gather(self, trained: list[int]) -> None:
        """After the batch: gradients of the groups that several trainers use reach their roots, which update them."""
        rooted, machine = self.batch.is_rooted, self.machine
        if not rooted.any():
            return
        dense_s = machine.cluster.all_reduce_s(float(machine.cluster.dense_bytes))
        for sync, name, spans, after_s in (
            (SYNC_NOW, "now", self.times.sync_now, dense_s), (SYNC_LATER, "later", self.times.sync_later, 0.0)
        ):  # fmt: skip
            begin_s = float(spans.start_s[self.number]) + after_s
            self.holders.ready_s[name, self.number] = begin_s
            chosen = rooted & (self.batch.sync == sync)
            groups, root = self.batch.group[chosen], self.batch.private_to[chosen]
            if not len(groups):
                continue
            _, most = busiest(self.batch.users[chosen], root, weight=self.rows[groups])
            duration_s = machine.cluster.exchange_s(float(most), machine.cluster.gradient_bytes)
            # Sums of the same durations in another order may differ in the last bit: the activity ends when it ends.
            end_s = min(begin_s + duration_s, float(spans.end_s[self.number]))
            self.holders.ready_s[name, self.number] = end_s
            gathered = tuple(groups.tolist())
            op = Op(
                f"gather {self.number} {name}", (*trained, *gathered), gathered, (Implementation(duration_s),),
                "collective", adds=self.bit, updates=gathered,
            )  # fmt: skip
            self.draft.run(op, machine.network(begin_s, end_s), begin_s, end_s, kind=EventKind.COLLECTIVE)
            for trainer in range(machine.cluster.trainers):
                own = groups[root == trainer].tolist()
                self.draft.move(machine.link("claim", trainer), own, end_s)
        for group, holder in zip(
            self.batch.group[rooted].tolist(), self.batch.private_to[rooted].tolist(), strict=True
        ):  # fmt: skip
            self.holders.root[group] = holder
