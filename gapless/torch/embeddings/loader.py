"""Plans in PyTorch's data loading: each of p processes loads the examples that the plan gives it.

In every process of a training run (`cache` has the other half, the embeddings)::

    plans = shared_plans(batch_plans(trace, planning) if rank == 0 else None)
    for_loader, for_cache = itertools.tee(plans)
    loader = DataLoader(dataset, batch_sampler=PlannedBatchSampler(for_loader, rank))
    cache = LrppCache(for_cache, sharding, weights, step_size=0.1)

Plans are made once, in process 0, ahead of training, and sent to the others. Where planning is cheap each process may
make them itself, since the same trace and planning give the same plans as long as no time limit cuts a search short:
`plans = batch_plans(trace, planning)`. Needs the extra `torch`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeAlias

import numpy as np

from gapless.errors import GaplessError, InputError
from gapless.torch.embeddings.plans import BatchPlan, Group
from gapless.torch.library import rank_count, torch

__all__ = ["PlannedBatchSampler", "shared_plans"]

_Answer: TypeAlias = "BatchPlan | GaplessError | None"
"""A plan, None at the end, or what went wrong in process 0, which the others would wait for."""


class PlannedBatchSampler:
    """The numbers of one trainer's examples, batch after batch; for `DataLoader(dataset, batch_sampler=...)`.

    Examples are numbered as in the trace, from 0, and ascend within a batch. Where a trainer gets no example of a batch
    (a short last one) the list is empty, and the loader's `collate_fn` must be able to take that.
    Raises `InputError` for a rank that the plan has no trainer for.
    """

    def __init__(self, plans: Iterable[BatchPlan], rank: int) -> None:
        self._plans, self._rank = plans, rank

    def __iter__(self) -> Iterator[list[int]]:
        first = 0
        for plan in self._plans:
            trainers = plan.users.shape[1]
            if not 0 <= self._rank < trainers:
                raise InputError(f"rank: must be a trainer of the plan, 0..{trainers - 1}, got {self._rank}")
            yield (first + np.flatnonzero(plan.trainer == self._rank)).tolist()
            first += plan.step.examples


def shared_plans(plans: Iterable[BatchPlan] | None, ahead: int = 2, timeout_s: float = 300.0) -> Iterator[BatchPlan]:
    """Process 0's plans in every process of the default group; made and sent by a thread, `ahead` of who asks for them.

    `plans`: None in the other processes. All must ask for the same number of plans. `timeout_s`: the longest that a
    process waits for a plan. Raises, in every process, the `GaplessError` that stops the planning in process 0.
    """
    rank = torch.distributed.get_rank() if rank_count() > 1 else 0
    if (plans is None) != (rank > 0):
        raise InputError("plans: must be given in process 0, and there only")
    if ahead < 1:
        raise InputError(f"ahead: must be >= 1, got {ahead}")
    # Its own group: collectives of two threads in one group could meet in another order in another process.
    group = torch.distributed.new_group(timeout=timedelta(seconds=timeout_s)) if rank_count() > 1 else None
    return _received(iter(plans) if plans is not None else None, group, ahead)


def _received(plans: Iterator[BatchPlan] | None, group: Group, ahead: int) -> Iterator[BatchPlan]:
    with ThreadPoolExecutor(1, "plans") as thread:
        coming: deque[Future[_Answer]] = deque(thread.submit(_next_plan, plans, group) for _ in range(ahead))
        while True:
            coming.append(thread.submit(_next_plan, plans, group))
            plan = coming.popleft().result()
            if isinstance(plan, GaplessError):
                raise plan
            if plan is None:
                return
            yield plan


def _next_plan(plans: Iterator[BatchPlan] | None, group: Group) -> _Answer:
    """What process 0 has next, in all processes."""
    box: list[_Answer] = [None]
    if plans is not None:
        try:
            box[0] = next(plans, None)
        except GaplessError as error:
            box[0] = error
    if group is not None:
        torch.distributed.broadcast_object_list(box, src=0, group=group)
    return box[0]
