"""Training with sparse gradients under DistributedDataParallel (DDP), with what isn't sent added to the next gradient.

    from gapless.torch.sparse import attach

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    attach(ddp, "plan.json")

The gradient is one flat vector, its parameters in the model's order; what is sent of it goes in the last bucket's hook.
Annotations are evaluated in this file, since DDP compares those of a hook with its own types.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from gapless.profiles.sparsity.estimates import EXACT
from gapless.torch.ddp.buckets import trainable
from gapless.torch.ddp.state import Scaler, check_entries, check_header, check_owner, header
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.allreduce import Entries
from gapless.torch.sparse.plan import SparsePlan, read_sparse_plan
from gapless.torch.sparse.planned import PlannedExchange
from gapless.torch.sparse.relay import EmulatedLink, Wire
from gapless.torch.sparse.selection import Threshold, entry_count

__all__ = ["Exchange", "Observer", "SparseState", "attach", "attach_exchange", "reduce_sparsely"]


class Exchange(Protocol):
    """Sums over the ranks of `group` of what each sends; `received_words`: by this rank, in all steps."""

    @property
    def group(self) -> torch.distributed.ProcessGroup | None: ...

    @property
    def received_words(self) -> int: ...

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums of entries of a gradient of `length`, or of those that all agree to keep; the same in all ranks."""

    def state_dict(self) -> Mapping[str, object]:
        """What it keeps from step to step, in plain values."""

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """What `state_dict` gave."""


class Observer(Protocol):
    """What measures each step; may talk to the other ranks, which all call it."""

    def __call__(self, accumulated: torch.Tensor, gradient: torch.Tensor, given: Entries, sums: Entries) -> None:
        """`accumulated`: the rank's gradient with the error that was left, `gradient`: without it. `given`: what the
        rank sent, `sums`: what all ranks got.
        """


class SparseState:
    """What the hook keeps from step to step: the error that is fed back, and a threshold.

    `density`: the share of entries that a rank sends. `exchange`: how, and among which ranks. `period`: steps between
    two thresholds; `estimate`: how they are found, one of `ESTIMATES`. `scaler`: the `GradScaler` that scales the loss,
    if one does; error and thresholds are of gradients without its scale. `sent`, `summed`: places that this rank sent,
    and that were summed, in the last step. `selection_s`, `communication_s`: what selecting and the exchange took, in
    all steps. `observer`: called in each step; `before`: called once a step, before entries are selected.
    An error is what a rank didn't send, or what wasn't among the sums in the end.
    In a step that overflows in any rank, means are no numbers in all of them, and what is kept is as before the step.
    Raises `InputError` for a model that DDP doesn't reduce in plain buckets.
    """

    def __init__(
        self, model: torch.nn.Module, density: float, exchange: Exchange, period: int = 32,
        scaler: Scaler | None = None, estimate: str = EXACT,
    ) -> None:  # fmt: skip
        parameters = trainable(model)
        self.exchange, self.step = exchange, 0
        self.lengths = {name: parameter.numel() for name, parameter in parameters.items()}
        self.offsets: Mapping[int, int] = _offsets(parameters)
        self.length = sum(self.lengths.values())
        self.threshold = Threshold(entry_count(density, self.length), period, estimate)
        first = next(iter(parameters.values()))
        self.error = torch.zeros(self.length, dtype=torch.float32, device=first.device)
        self.sent = self.summed = torch.empty(0, dtype=torch.int64)
        self.selection_s = self.communication_s = 0.0
        self.observer: Observer | None = None
        self.before: Callable[[], None] = lambda: None
        self._wire = Wire(exchange.group)
        self._scaler, self._scale = scaler, 1.0
        ranks = rank_count(exchange.group)
        self._most = min(torch.finfo(torch.float32).max / ranks, torch.finfo(first.dtype).max)
        self._total = self.error
        self._waiting: list[
            tuple[torch.Tensor, list[tuple[int, torch.Tensor]], torch.futures.Future[torch.Tensor]]
        ] = []

    def reduce(self, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The future of a bucket's mean gradient, which is there once the last bucket is."""
        if bucket.index() == 0:
            self._begin()
        parts = []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            offset = self.offsets[id(parameter)]
            self._total[offset : offset + gradient.numel()].add_(gradient.flatten(), alpha=1 / self._scale)
            parts.append((offset, gradient))
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._waiting.append((bucket.buffer(), parts, future))
        if bucket.is_last():
            self._end()
        return future

    def _begin(self) -> None:
        """A step begins with the error."""
        self._waiting, self._total = [], self.error.clone()
        self._scale = 1.0 if self._scaler is None else float(self._scaler.get_scale())

    def _end(self) -> None:
        """All of the gradient is there."""
        waiting, self._waiting = self._waiting, []
        self.before()
        try:
            mean = torch.full_like(self._total, torch.nan) if self._overflows() else self._mean()
        except Exception as error:
            for *_, future in waiting:
                future.set_exception(error)
            return
        for buffer, parts, future in waiting:
            for offset, gradient in parts:
                gradient.copy_(mean[offset : offset + gradient.numel()].view_as(gradient))
            future.set_result(buffer)

    def _overflows(self) -> bool:
        """Whether any rank has an entry that isn't finite, or so large that a sum or mean might not be."""
        least, most = torch.aminmax(self._total)
        limit = self._most / max(self._scale, 1.0)
        is_fine = bool((least >= -limit) & (most <= limit))
        return any(self._wire.numbers([not is_fine]))

    def _mean(self) -> torch.Tensor:
        """Of what ranks send of the gradient with the error that was left."""
        error = self._total
        began_s = time.perf_counter()
        places = self.threshold.best(error)
        given = Entries(places, error[places])
        selected_s = time.perf_counter()
        sums = self.exchange(given, self.length, self.step)
        self.selection_s += selected_s - began_s
        self.communication_s += time.perf_counter() - selected_s
        if self.observer is not None:
            self.observer(error, error - self.error, given, sums)
        self.sent, self.summed = given.places, sums.places
        mean = torch.zeros_like(error)
        mean[sums.places] = sums.values / rank_count(self.exchange.group) * self._scale
        is_summed = torch.zeros(self.length, dtype=torch.bool, device=mean.device)
        is_summed[sums.places] = True
        error[places[is_summed[places]]] = 0
        self.error = error
        self.step += 1
        return mean

    # -- saved and loaded ----------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, object]:
        """This rank's error, thresholds and regions, in plain values and tensors, for `load_state_dict`.

        Every rank has its own.
        """
        return {
            **header("sparse", self.exchange.group),
            "lengths": dict(self.lengths), "error": self.error, "step": self.step,
            "threshold": self.threshold.state_dict(), "exchange": self.exchange.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, data: Mapping[str, Any]) -> None:
        """Go on as the run in which `state_dict` gave this. Raises `InputError` for another rank, model or plan."""
        check_header(data, "sparse", self.exchange.group)
        for name in {**data["lengths"], **self.lengths}:
            check_entries(name, data["lengths"].get(name, 0), self.lengths.get(name, 0))
        self.threshold.load_state_dict(data["threshold"])
        self.exchange.load_state_dict(data["exchange"])
        self.error, self.step = data["error"].to(self.error.device), int(data["step"])


def _offsets(parameters: Mapping[str, torch.nn.Parameter]) -> dict[int, int]:
    offsets, end = {}, 0
    for parameter in parameters.values():
        offsets[id(parameter)] = end
        end += parameter.numel()
    return offsets


def attach_exchange(
    ddp: torch.nn.parallel.DistributedDataParallel, density: float, exchange: Exchange, period: int = 32,
    scaler: Scaler | None = None, estimate: str = EXACT,
) -> SparseState:  # fmt: skip
    """Let a model in DDP send a share of its gradient's entries by an exchange; what the hook keeps.

    Raises `InputError` where the exchange is among other ranks than DDP's.
    """
    check_owner(ddp, exchange.group)
    state = SparseState(ddp.module, density, exchange, period, scaler, estimate)
    ddp.register_comm_hook(state, reduce_sparsely)
    return state


def attach(
    ddp: torch.nn.parallel.DistributedDataParallel, plan: SparsePlan | str | Path, density: float | None = None,
    period: int = 32, renewal: int | None = 64, scaler: Scaler | None = None, estimate: str = EXACT,
    balance_above: float | None = None, link: EmulatedLink | None = None,
) -> SparseState:  # fmt: skip
    """Let a model in DDP send its gradients by a plan, with what isn't sent added to the next gradient.

    To be called by all ranks of DDP's process group, once. `density`: the share of entries that each rank sends, by
    default the plan's. `period`: steps between two thresholds; `renewal`: between two sets of regions, None to keep the
    plan's. `estimate`: how a rank's thresholds are found, one of `ESTIMATES`. `balance_above`: sums are balanced in
    steps in which a rank holds more than this factor of the mean, None: as the plan says. `scaler`: the `GradScaler`
    that scales the loss, if one does. `link`: an emulated one.
    The state that is returned can be saved and loaded; it has the places that were
    sent, and words received (`exchange.received_words`).
    Raises `InputError` for a file that is no valid plan of sparse gradients, or of another model or number of ranks.
    """
    if not isinstance(plan, SparsePlan):
        plan = read_sparse_plan(plan)
    plan.check(sum(each.numel() for each in trainable(ddp.module).values()), rank_count(ddp.process_group))
    exchange = PlannedExchange(plan, density, period, renewal, ddp.process_group, balance_above, link)
    return attach_exchange(ddp, plan.density if density is None else density, exchange, period, scaler, estimate)


def reduce_sparsely(state: SparseState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of what all ranks send of the bucket's gradients."""
    return state.reduce(bucket)
