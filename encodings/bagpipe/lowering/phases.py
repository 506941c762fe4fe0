"""Phases: which rows of a batch have events in a stretch of a run, and what of their actions matters there.

A batch's rows are fetched, some of them sent, used, synchronised and written back, with other batches in between. In a
short stretch each batch is in one of these phases. Rows that have no event in it are left out, and differences that
matter in other phases alone are dropped, so that many rows have one history: who used a row, once it has been used, and
where its gradients will be gathered, as long as it is being sent.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gapless.array_types import Mask
from gapless.encodings.bagpipe.designs.pipeline import Spans, Times
from gapless.encodings.bagpipe.lowering.actions import (
    BY_USERS,
    EVERYWHERE,
    NOT_FETCHED,
    SENT_LATER,
    SENT_NOW,
    SHARED,
    SYNC_LATER,
    SYNC_NOW,
    Actions,
)
from gapless.encodings.bagpipe.lowering.schedule import Stretch

__all__ = ["actions_in"]


def actions_in(stretch: Stretch, number: int, actions: Actions, times: Times) -> Actions | None:
    """The actions of a batch as they matter in a stretch; None where none does."""
    if number not in stretch.trains:
        return _rows(actions, _fetched(actions))
    if times.is_trained(number, stretch.from_s):
        return _after_use(stretch, number, actions, times)
    if _begins_s(times, number, actions) < stretch.until_s:
        return actions
    return _before_use(stretch, number, actions, times)


def _begins_s(times: Times, number: int, actions: Actions) -> float:
    """From when on all rows of a batch may have events: owned ones are exchanged once their prefetch and the batch
    before allow it.
    """
    forward_s = float(times.forward.start_s[number])
    if not actions.is_owned.any():
        return forward_s
    trained_s = float(times.sync_now.end_s[number - 1]) if number else 0.0
    return min(forward_s, max(trained_s, float(times.prefetch.end_s[number])))


def _fetched(actions: Actions) -> Mask:
    return np.asarray((actions.fetched_by >= EVERYWHERE) | (actions.fetched_by == BY_USERS))


def _rows(actions: Actions, chosen: Mask) -> Actions | None:
    return actions.of_rows(chosen) if chosen.any() else None


def _before_use(stretch: Stretch, number: int, actions: Actions, times: Times) -> Actions | None:
    """What is fetched or sent: its users, but not what happens to it after that."""
    chosen = _fetched(actions) & _is_in(stretch, times.prefetch, number)
    chosen |= (actions.fetched_by == SENT_LATER) & _is_in(stretch, times.sync_later, number - 2)
    sent_now = (times.sync_now, times.relay_write, times.relay_fetch)
    chosen |= (actions.fetched_by == SENT_NOW) & any(_is_in(stretch, span, number - 1) for span in sent_now)
    left = _rows(actions, chosen)
    if left is None:
        return None
    rooted = left.is_rooted
    return replace(
        left,
        private_to=np.where(rooted, left.users.argmax(axis=1), left.private_to),
        sync=np.where(rooted, 0, left.sync),
        evicted=np.where(rooted, 0, left.evicted),
    )


def _is_in(stretch: Stretch, span: Spans, number: int) -> bool:
    return number >= 0 and bool(span.start_s[number] < stretch.until_s and span.end_s[number] >= stretch.from_s)


def _after_use(stretch: Stretch, number: int, actions: Actions, times: Times) -> Actions:
    """What is still to be synchronised or written back: who holds it, but not who else used it. At least one row, which
    stands for the dense gradients.
    """
    evicted, alone = actions.evicted == 1, (actions.sync == 0) & (actions.private_to != SHARED)
    phases = (
        (times.sync_now, actions.sync == SYNC_NOW), (times.sync_later, actions.sync == SYNC_LATER),
        (times.write_early, evicted & alone), (times.write_late, evicted & ~alone),
    )  # fmt: skip
    chosen = np.logical_or.reduce([rows & (span.end_s[number] >= stretch.from_s) for span, rows in phases])
    chosen[0] |= not chosen.any()
    left = actions.of_rows(chosen)
    holder = np.arange(actions.trainers) == left.private_to[:, None]
    return replace(
        left,
        fetched_by=np.where(left.is_rooted, BY_USERS, NOT_FETCHED),
        users=np.where((left.is_owned | left.is_rooted)[:, None], holder, left.users),
    )
