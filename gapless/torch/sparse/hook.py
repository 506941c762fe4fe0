"""Training with sparse gradients under DistributedDataParallel (DDP), with what isn't sent added to the next gradient.

    from gapless.torch.sparse import attach

    ddp = torch.nn.parallel.DistributedDataParallel(model)
    attach(ddp, "plan.json")

The gradient is one flat vector, its parameters in the model's order; what is sent of it goes in the last bucket's hook.
Annotations are evaluated in this file, since DDP compares those of a hook with its own types.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from gapless.torch.ddp.buckets import trainable
from gapless.torch.library import rank_count, torch
from gapless.torch.sparse.entries import Entries
from gapless.torch.sparse.selection import Threshold, entry_count

__all__ = ["Exchange", "SparseState", "attach_exchange", "reduce_sparsely"]


class Exchange(Protocol):
    """Sums over ranks of what each sends; `received_words`: by this rank, in all steps."""

    @property
    def received_words(self) -> int: ...

    def __call__(self, given: Entries, length: int, step: int) -> Entries:
        """The sums of entries of a gradient of `length`, or of those that all agree to keep; the same in all ranks."""


class SparseState:
    """What the hook keeps from step to step: the error that is fed back, and a threshold.

    `density`: the share of entries that a rank sends. `exchange`: how. `period`: steps between two thresholds.
    `sent`, `summed`: places that this rank sent, and that were summed, in the last step.
    An error is what a rank didn't send, or what wasn't among the sums in the end.
    Raises `InputError` for a model that DDP doesn't reduce in plain buckets.
    """

    def __init__(self, model: torch.nn.Module, density: float, exchange: Exchange, period: int = 32) -> None:
        parameters = trainable(model)
        self.exchange, self.step = exchange, 0
        self.names = tuple(parameters)
        self.offsets: Mapping[int, int] = _offsets(parameters)
        self.length = sum(parameter.numel() for parameter in parameters.values())
        self.threshold = Threshold(entry_count(density, self.length), period)
        device = next(iter(parameters.values())).device
        self.error = torch.zeros(self.length, dtype=torch.float32, device=device)
        self.sent = self.summed = torch.empty(0, dtype=torch.int64)
        self._waiting: list[tuple[torch.Tensor, list[tuple[int, torch.Tensor]], Any]] = []

    def reduce(self, bucket: Any) -> Any:
        """The future of a bucket's mean gradient, which is there once the last bucket is."""
        parts = []
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            offset = self.offsets[id(parameter)]
            self.error[offset : offset + gradient.numel()] += gradient.flatten()
            parts.append((offset, gradient))
        future: Any = torch.futures.Future()
        self._waiting.append((bucket.buffer(), parts, future))
        if bucket.is_last():
            self._end()
        return future

    def _end(self) -> None:
        """All of the gradient is there."""
        waiting, self._waiting = self._waiting, []
        try:
            mean = self._mean()
        except Exception as error:
            for *_, future in waiting:
                future.set_exception(error)
            return
        for buffer, parts, future in waiting:
            for offset, gradient in parts:
                gradient.copy_(mean[offset : offset + gradient.numel()].view_as(gradient))
            future.set_result(buffer)

    def _mean(self) -> torch.Tensor:
        """Of what ranks send of the gradient with the error that was left."""
        # A step that overflowed (mixed precision skips it) must not spoil all that follow.
        self.error.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        places = self.threshold.best(self.error)
        given = Entries(places.cpu(), self.error[places].cpu())
        sums = self.exchange(given, self.length, self.step)
        self.sent, self.summed = given.places, sums.places
        mean = torch.zeros_like(self.error)
        mean[sums.places.to(mean.device)] = sums.values.to(mean.device) / rank_count()
        is_summed = torch.zeros(self.length, dtype=torch.bool, device=mean.device)
        is_summed[sums.places.to(mean.device)] = True
        self.error[places[is_summed[places]]] = 0
        self.step += 1
        return mean


def _offsets(parameters: Mapping[str, torch.nn.Parameter]) -> dict[int, int]:
    offsets, end = {}, 0
    for parameter in parameters.values():
        offsets[id(parameter)] = end
        end += parameter.numel()
    return offsets


def attach_exchange(
    ddp: torch.nn.parallel.DistributedDataParallel, density: float, exchange: Exchange, period: int = 32
) -> SparseState:
    """Let a model in DDP send a share of its gradient's entries by an exchange; what the hook keeps."""
    state = SparseState(ddp.module, density, exchange, period)
    ddp.register_comm_hook(state, reduce_sparsely)
    return state


def reduce_sparsely(state: SparseState, bucket: torch.distributed.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP communication hook: the mean of what all ranks send of the bucket's gradients."""
    return state.reduce(bucket)
