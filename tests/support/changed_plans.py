"""Batch plans that are changed on purpose, so that following them goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gapless.encodings.bagpipe.batch_plans import BatchPlan

Plans = Iterable[BatchPlan]


@dataclass(frozen=True)
class Unsynchronised(BatchPlan):
    """A plan whose rows are not synchronised at all, those for the next batch (`what` = "now") or the others."""

    what: str = "now"

    @property
    def sync_now(self) -> np.ndarray:
        return super().sync_now & (self.what != "now")

    @property
    def sync_later(self) -> np.ndarray:
        return ~self.is_private & ~self.step.in_next & (self.what != "later")


def unsynchronised(what: str, batch: int) -> Callable[[Plans], Plans]:
    """One batch isn't synchronised."""

    def changed(plans: Plans) -> Plans:
        for plan in plans:
            copied: dict[str, Any] = {each.name: getattr(plan, each.name) for each in fields(BatchPlan)}
            yield Unsynchronised(**copied, what=what) if plan.step.batch == batch else plan

    return changed


def early(batches: int) -> Callable[[Plans], Plans]:
    """Prefetches start so many batches too early, into rows that nobody else has (each stay in the cache has its own).

    Otherwise they would often find their place taken, which the cache doesn't let pass.
    """

    def changed(plans: Plans) -> Plans:
        number: dict[int, int] = {}
        stays: dict[int, int] = {}
        for plan in plans:
            for id_ in plan.step.prefetch_ids.tolist():
                number.setdefault(id_, len(number))
                stays[id_] = stays.get(id_, 0) + 1
            places = [2 * number[id_] + stays[id_] % 2 for id_ in plan.step.ids.tolist()]
            after = max(-1, plan.step.prefetch_after - batches)
            yield replace(plan, step=replace(plan.step, rows=np.array(places, dtype=np.int32), prefetch_after=after))

    return changed


def _first(mask: np.ndarray) -> np.ndarray:
    """The first row for which a mask holds, as a mask."""
    return mask & (np.cumsum(mask) == 1)


def step_changed(batch: int, of_plan: Callable[[BatchPlan], dict[str, Any]]) -> Callable[[Plans], Plans]:
    """One batch's step is another."""

    def changed(plans: Plans) -> Plans:
        for plan in plans:
            yield replace(plan, step=replace(plan.step, **of_plan(plan))) if plan.step.batch == batch else plan

    return changed


def _evicted_early(plan: BatchPlan) -> dict[str, Any]:
    step = plan.step
    row = _first(~step.in_next & ~step.evicted)
    return {"last_use": np.where(row, step.batch, step.last_use).astype(np.int32)}


def _not_prefetched(plan: BatchPlan) -> dict[str, Any]:
    return {"prefetched": plan.step.prefetched & ~_first(plan.step.prefetched)}


def _left_to_background(plan: BatchPlan) -> dict[str, Any]:
    return {"in_next": plan.step.in_next & ~_first(plan.step.in_next)}


CHANGES: dict[str, Callable[[Plans], Plans]] = {
    "nothing": lambda plans: plans,
    "now-unsynchronised": unsynchronised("now", 4),
    "later-unsynchronised": unsynchronised("later", 4),
    "one-early": early(1),
    "two-early": early(2),
    "evicted-early": step_changed(4, _evicted_early),
    "not-prefetched": step_changed(4, _not_prefetched),
    "left-to-background": step_changed(4, _left_to_background),
    "place-taken": step_changed(6, lambda plan: {"prefetch_after": plan.step.prefetch_after - 2}),
    "too-late": step_changed(4, lambda plan: {"prefetch_after": 4}),
}
