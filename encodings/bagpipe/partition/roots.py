"""Roots: which one trainer holds each cached row between two uses (the design `lrpp-fine-grained`).

After batch b the gradients of a row that several trainers use are gathered at its root, one of those trainers; where
one alone uses it, that one is the root and nothing is gathered. The root's copy is then the only current one. Before
the row's next batch the root sends it to those of that batch's users that aren't the root; so a row that one trainer
alone uses in both batches moves nowhere. At the end of its life the root writes it back.

A root stays while it is among the users; else the next one is the first user after `id mod p`, so that roots of rows
that all trainers use are spread over the trainers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gapless.encodings.bagpipe.ids.loops import partition_loops
from gapless.encodings.bagpipe.lookahead.steps import Step

__all__ = ["Past", "Roots", "one_user", "settled_roots"]

Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


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


class Roots:
    """The root of every cached row, batch after batch."""

    def __init__(self) -> None:
        self._root = np.zeros(0, dtype=np.int64)  # by cache row, as the others
        self._alone = np.zeros(0, dtype=np.bool_)
        self._last = np.zeros(0, dtype=np.int64)

    def past(self, step: Step) -> Past:
        """What lies behind the rows of the next batch."""
        self._grow(int(step.rows.max()) + 1)
        root = np.where(step.prefetched, -1, self._root[step.rows])
        last = self._last[step.rows]
        return Past(root, self._alone[step.rows] & (root >= 0), (root >= 0) & np.equal(last, step.batch - 1))

    def settle(self, step: Step, past: Past, users: Mask) -> Ints:
        """The roots of a batch's rows after it. `users`: bool (n, p), at least one each."""
        root = settled_roots(users, step.ids, past.root)
        self._root[step.rows], self._alone[step.rows], self._last[step.rows] = root, one_user(users)[1], step.batch
        return root

    def _grow(self, rows: int) -> None:
        more = rows - len(self._root)
        if more > 0:
            more = max(more, len(self._root), 1024)
            self._root = np.concatenate([self._root, np.zeros(more, dtype=np.int64)])
            self._alone = np.concatenate([self._alone, np.zeros(more, dtype=np.bool_)])
            self._last = np.concatenate([self._last, np.zeros(more, dtype=np.int64)])


def settled_roots(users: Mask, ids: Ints, root: Ints) -> Ints:
    """The roots after a batch, of rows that had these, -1 for none, before it."""
    user, is_one = one_user(users)
    after = np.where(is_one, user, root)
    moving = np.flatnonzero(~is_one & ~_is_user(users, root))
    after[moving] = _first_users(users[moving], ids[moving])
    return after


def one_user(users: Mask) -> tuple[Ints, Mask]:
    """The last trainer that uses each row, and whether it is the only one."""
    if (compiled := partition_loops(users.size)) is not None:
        found: tuple[Ints, Mask] = compiled.one_user(np.ascontiguousarray(users.T))
        return found
    user = np.zeros(len(users), dtype=np.int64)
    count = np.zeros(len(users), dtype=np.int16)
    for trainer, uses in enumerate(users.T):
        user[uses] = trainer
        count += uses
    return user, np.equal(count, 1)


def _is_user(users: Mask, trainer: Ints) -> Mask:
    """Whether this trainer, -1 for none, uses the row."""
    found: Mask = users[np.arange(len(users)), np.maximum(trainer, 0)] & (trainer >= 0)
    return found


def _first_users(users: Mask, ids: Ints) -> Ints:
    """The first user of each row from trainer `id mod p` on."""
    trainers = users.shape[1]
    turn = (ids % trainers)[:, None] + np.arange(trainers)
    turn %= trainers
    first = np.take_along_axis(users, turn, axis=1).argmax(axis=1)
    found: Ints = np.take_along_axis(turn, first[:, None], axis=1)[:, 0]
    return found
