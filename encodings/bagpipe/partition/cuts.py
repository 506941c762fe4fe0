"""Roots and cuts: who holds a row between two uses in an LRPP cache, and what a partition costs such a cache.

**Roots** (the design `lrpp-fine-grained`). After batch b the gradients of a row that several trainers use are gathered
at its root, one of those trainers; where one alone uses it, that one is the root and nothing is gathered. The root's
copy is then the only current one. Before the row's next batch the root sends it to those of that batch's users that
aren't the root; so a row that one trainer alone uses in both batches moves nowhere. At the end of its life the root
writes it back. A root stays while it is among the users; else the next one is the first user after `id mod p`, so that
roots of rows that all trainers use are spread over the trainers.

**Cuts.** The rows of a batch are the edges of a hypergraph on its examples. A row is *cut* where several trainers use
it; with rooted rows it is cut too where its users aren't the one trainer that used it in the batch before, its
terminal, or will alone use it in the batch after. So with u(e) the trainers that use row e, a partition costs

    sum over e of  away(e) [u(e) is not {terminal(e)}]  for each of the two terminals
                 + split(e) [|u(e)| > 1]
                 + copy(e) |u(e) without the root of e|

In the field's terms, cut-net with fixed vertices, and connectivity. `away` counts rows that are synchronised at once;
`split` is what it is worth to the next batch that a row has one user now; `copy` counts messages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.array_types import Floats, Ints, Mask
from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.partition.batch import summed, uses_by_trainer
from gapless.profiles.traces.bags import Lookups, chosen, lookups

__all__ = ["Cuts", "Past", "Settled", "Terminal", "one_user", "settled_roots"]

_UNIT = 128
"""Marginal costs are rounded to 1/128 of a row."""


@dataclass(frozen=True)
class Past:
    """What lies behind the n rows of a batch when it begins; arrays of shape (n,).

    `root`: int64, who holds the row, -1 where no trainer does. `alone`: bool, the root alone used it in its last batch.
    `at_once`: bool, that was the batch before.
    """

    root: Ints
    alone: Mask
    at_once: Mask

    @classmethod
    def none(cls, rows: int) -> Past:
        """Of rows that no trainer holds."""
        return cls(np.full(rows, -1), np.zeros(rows, dtype=np.bool_), np.zeros(rows, dtype=np.bool_))

    @property
    def is_held(self) -> Mask:
        """A trainer holds the row: it isn't fetched from the servers."""
        return self.root >= 0

    def kept(self, users: Mask) -> Mask:
        """Rows that their root alone used and alone uses again: nothing moves. `users`: bool (n, p)."""
        user, is_one = one_user(users)
        return self.alone & is_one & np.equal(user, self.root)


def settled_roots(users: Mask, ids: Ints, root: Ints, one: tuple[Ints, Mask] | None = None) -> Ints:
    """The roots after a batch, of rows that had these, -1 for none, before it. `one`: `one_user(users)`, if known."""
    user, is_one = one or one_user(users)
    after = np.where(is_one, user, root)
    moving = np.flatnonzero(~is_one & ~_is_user(users, root))
    after[moving] = _first_users(users[moving], ids[moving])
    return after


def one_user(users: Mask) -> tuple[Ints, Mask]:
    """The last trainer that uses each row, and whether it is the only one."""
    if (compiled := partition_loops(users.size)) is not None:
        user_and_alone: tuple[Ints, Mask] = compiled.one_user(np.ascontiguousarray(users.T))
        return user_and_alone
    user = np.zeros(len(users), dtype=np.int64)
    count = np.zeros(len(users), dtype=np.int16)
    for trainer, uses in enumerate(users.T):
        user[uses] = trainer
        count += uses
    return user, np.equal(count, 1)


def _is_user(users: Mask, trainer: Ints) -> Mask:
    """Whether this trainer, -1 for none, uses the row."""
    is_user: Mask = users[np.arange(len(users)), np.maximum(trainer, 0)] & (trainer >= 0)
    return is_user


def _first_users(users: Mask, ids: Ints) -> Ints:
    """The first user of each row from trainer `id mod p` on."""
    trainers = users.shape[1]
    turn = (ids % trainers)[:, None] + np.arange(trainers)
    turn %= trainers
    first = np.take_along_axis(users, turn, axis=1).argmax(axis=1)
    first_user: Ints = np.take_along_axis(turn, first[:, None], axis=1)[:, 0]
    return first_user


@dataclass(frozen=True)
class Settled:
    """Of n rows: `users`, bool (n, p), column by column in memory; `only_user`, int64 (n,), the last of them, who is
    the only one where `is_alone`, bool (n,), says so; `owner` and `root`, int64 (n,), after the batch.
    """

    users: Mask
    only_user: Ints
    is_alone: Mask
    owner: Ints
    root: Ints

    @classmethod
    def of(cls, uses: NDArray[np.int32], ids: Ints, owner: Ints, root: Ints) -> Settled:
        """`uses`: trainers x rows, how often; each row is used. `owner`, `root`: before the batch, -1 for none."""
        if (compiled := partition_loops(uses.size)) is not None:
            users, *columns = compiled.settled_users(uses, ids, owner, root)
            return cls(users.T, *columns)
        users = uses.T > 0
        one = one_user(users)
        return cls(users, *one, _owners(uses, owner, ids), settled_roots(users, ids, root, one))


def _owners(uses: NDArray[np.int32], owner: Ints, ids: Ints) -> Ints:
    """What has no owner yet gets the trainer that uses it most; ties are spread by the id's number."""
    after, trainers = owner.copy(), len(uses)
    new = np.flatnonzero(owner < 0)
    turn = ids.take(new) % trainers
    most = np.full(len(new), -1)
    for trainer, times in enumerate(uses):
        rank = times.take(new) * np.int64(trainers)  # an unused trainer's is less than a used one's
        rank += turn
        after[new[rank > most]] = trainer
        np.maximum(most, rank, out=most)
        turn += 1
        turn[turn == trainers] = 0
    return after


@dataclass(frozen=True)
class Terminal:
    """For n rows the one trainer that used or will use them, int64, -1 for none; and what a row costs that is cut."""

    trainer: Ints
    away: float

    def cut(self, has: Mask, users: NDArray[np.integer]) -> Mask:
        """Rows that are cut. `has`: bool (n, p), who uses them; `users`: how many those are."""
        at_terminal = has[np.arange(len(has)), np.maximum(self.trainer, 0)]
        is_cut: Mask = (self.trainer >= 0) & ~((users == 1) & at_terminal)
        return is_cut


@dataclass(frozen=True)
class Cuts:
    """A batch of n rows and what its partitions cost.

    `index`: the places of the examples' rows, no row twice in an example. `terminals`: in the batches before and after,
    where they count. `split`, `copy`: float64 (n,). `root`: int64 (n,), who needs no copy, -1 for nobody.
    """

    index: Lookups
    trainers: int
    terminals: tuple[Terminal, ...]
    split: Floats
    copy: Floats
    root: Ints

    @property
    def examples(self) -> int:
        """The number of examples."""
        return len(self.index)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return len(self.root)

    def counts(self, trainer: Ints) -> NDArray[np.int32]:
        """How often each trainer's examples use each row, (n, p)."""
        return np.ascontiguousarray(uses_by_trainer(self.index, trainer, self.rows, self.trainers).T)

    def cost(self, counts: NDArray[np.int32]) -> float:
        """What a partition with these counts costs."""
        has = counts > 0
        users = has.sum(axis=1)
        others = users - (has[np.arange(self.rows), np.maximum(self.root, 0)] & (self.root >= 0))
        cut = sum(terminal.away * np.count_nonzero(terminal.cut(has, users)) for terminal in self.terminals)
        return float(cut + self.split[users > 1].sum() + (self.copy * others).sum())

    def marginal_costs(self, block: Ints, others: NDArray[np.int32]) -> NDArray[np.int32]:
        """What each example of a block adds on each trainer, in 1/128 of a row: block x trainers.

        `others`: the counts without the block's. An id that n examples of the block use is charged to each of them by
        what it costs alone, with weight (1 - 1/p)^(n - 1), as in `search.py`.
        """
        own = np.bincount(lookups(chosen(self.index, block))[1], minlength=self.rows)
        per_row = self._marginal_rows(others)
        per_row *= (_UNIT * (1.0 - 1.0 / self.trainers) ** np.maximum(own - 1, 0)).astype(np.float32)[:, None]
        marginal: NDArray[np.int32] = np.rint(summed(per_row, self.index, block)).astype(np.int32)
        return marginal

    def _marginal_rows(self, others: NDArray[np.int32]) -> NDArray[np.float32]:
        """What it costs that one more trainer uses a row, (n, p)."""
        has, every = others > 0, np.arange(self.rows)
        users = has.sum(axis=1)
        cost = np.empty(has.shape, np.float32)
        cost[:] = (np.where(users == 1, self.split, 0.0) + self.copy)[:, None]
        rooted = np.flatnonzero(self.root >= 0)
        cost[rooted, self.root[rooted]] -= self.copy[rooted].astype(np.float32)
        for terminal in self.terminals:
            at_terminal = has[every, np.maximum(terminal.trainer, 0)]
            whole = np.flatnonzero((terminal.trainer >= 0) & ((users == 0) | ((users == 1) & at_terminal)))
            cost[whole] += np.float32(terminal.away)
            cost[whole, terminal.trainer[whole]] -= np.float32(terminal.away)
        cost[has] = 0.0
        return cost
