"""A plan's ALLREDUCE under DistributedDataParallel: a hook that sums each bucket as the plan says.

As in PyTorch's own hooks, a state and a function go to DDP together::

    ddp.register_comm_hook(PlanState(AllReduce("plan.json")), reduce_by_plan)

Annotations are evaluated in this file, since DDP compares those of a hook with its own types.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gapless.errors import InputError
from gapless.torch.collectives.executor import PlannedCollective
from gapless.torch.collectives.winning import WinningPlans
from gapless.torch.library import rank_count, torch

__all__ = ["PlanState", "TunedState", "reduce_by_plan", "reduce_by_winner"]


class PlanState:
    """What the hook needs: a plan for all buckets, or plans by the bytes from which on each serves.

    All ranks have the same. Buckets are summed one after the other, beside the backward pass. A bucket is padded with
    zeros to a multiple of the plan's chunks. `sent_bytes`: of this rank, by all calls so far; `taken`: their number.
    Raises `InputError` for a plan that isn't an ALLREDUCE.
    """

    def __init__(self, plans: PlannedCollective | Mapping[int, PlannedCollective]) -> None:
        self._plans = dict(sorted(plans.items())) if isinstance(plans, Mapping) else {0: plans}
        if not self._plans:
            raise InputError("plans: must hold at least one plan, got none")
        for plan in self._plans.values():
            if plan.collective.name != "allreduce":
                raise InputError(f"plan: must be one of allreduce, got one of {plan.collective.name}")
        self.sent_bytes = self.taken = 0
        self._network = ThreadPoolExecutor(1, "gapless-plan")

    def reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """The future of the mean of a flat buffer over all ranks, which takes its place."""
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._network.submit(self._sum, buffer, future)
        return future

    def _sum(self, buffer: torch.Tensor, future: torch.futures.Future[torch.Tensor]) -> None:
        try:
            plan = self._plan(buffer.nbytes)
            chunks = len(plan.collective.inputs[plan.rank])
            padded = torch.nn.functional.pad(buffer, (0, -buffer.numel() % chunks))
            summed = plan(padded)[: buffer.numel()]
            self.sent_bytes += plan.sent_bytes
            self.taken += 1
            buffer.copy_(summed.div_(plan.collective.rank_count))
        except Exception as error:
            future.set_exception(error)
            return
        future.set_result(buffer)

    def _plan(self, size_bytes: int) -> PlannedCollective:
        """The plan for a size: the last that serves from so many bytes on, or the first."""
        found = next(iter(self._plans.values()))
        for least_bytes, plan in self._plans.items():
            if size_bytes >= least_bytes:
                found = plan
        return found


def reduce_by_plan(state: PlanState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of the bucket's gradients over all ranks, by a plan."""
    return state.reduce(bucket.buffer())


class TunedState:
    """What the hook of an installed selector needs: the winners' plans, and the library's own `all_reduce`.

    Buckets that plans serve are summed one after the other, beside the backward pass; the library sums the others.
    `taken`, `left`: how many buckets a plan, or the library, has summed.
    """

    def __init__(
        self, plans: WinningPlans, library: Callable[..., Any], group: torch.distributed.ProcessGroup | None
    ) -> None:
        self.taken = self.left = 0
        self._plans, self._library, self._group = plans, library, group
        self._ranks = rank_count(group)
        self._network = ThreadPoolExecutor(1, "gapless-winner")

    def reduce(self, buffer: torch.Tensor) -> torch.futures.Future[torch.Tensor]:
        """The future of the mean of a flat buffer over all ranks, which takes its place."""
        buffer.div_(self._ranks)
        if self._plans.serves("allreduce", buffer.nbytes, self._group):
            self.taken += 1
            future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
            self._network.submit(self._sum, buffer, future)
            return future
        self.left += 1
        begun = self._library(buffer, group=self._group, async_op=True).get_future()
        return begun.then(lambda done: done.value()[0])

    def _sum(self, buffer: torch.Tensor, future: torch.futures.Future[torch.Tensor]) -> None:
        try:
            plan = self._plans.plan_for("allreduce", buffer.nbytes, self._group)
            if plan is not None:
                plan(buffer, buffer)
        except Exception as error:
            future.set_exception(error)
            return
        future.set_result(buffer)


def reduce_by_winner(state: TunedState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of the bucket's gradients over all ranks, by the plan that won its size."""
    return state.reduce(bucket.buffer())
