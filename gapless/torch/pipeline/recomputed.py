"""A stage of torch.distributed.pipelining that runs its forward again before its backward, and keeps only its input.

PyTorch's own checkpoints run a forward again in each backward: a backward in two parts would pay for it twice. Here the
gradients of the input and of the weights, apart or not, share one forward that is run again.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.pipelining import PipelineStage

from gapless.torch.devices import device_of
from gapless.torch.library import Tensor, torch

__all__ = ["RecomputedStage"]


class RecomputedStage(PipelineStage):  # type: ignore[misc,unused-ignore]
    """As `PipelineStage`, for a model whose stages take and send one tensor each.

    `recomputes`: whether only the input of a micro-batch is kept from its forward to its backward, which runs the
    forward again, with the same random numbers. The last stage keeps its output besides, for the loss.
    """

    def __init__(self, *stage: Any, recomputes: bool = False, **options: Any) -> None:
        super().__init__(*stage, **options)
        self.recomputes = recomputes
        self._random: dict[int, Tensor] = {}

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """The forward; where it is run again, with the random numbers noted that it draws."""
        if self.recomputes and self.has_backward:
            self._random[fwd_chunk_id] = device_of(self.device).random_state()
        return super().forward_one_chunk(fwd_chunk_id, *args, **options)

    def forward_maybe_with_nosync(self, *args: Any, **kwargs: Any) -> Any:
        """Without a graph where it is run again: what autograd would save goes at once."""
        if not (self.recomputes and self.has_backward):
            return super().forward_maybe_with_nosync(*args, **kwargs)
        with torch.no_grad():
            output = super().forward_maybe_with_nosync(*args, **kwargs)
        return output.detach().requires_grad_()  # so that a loss has a gradient here

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Tensor | None = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        """The backward, or its part for the input, after the forward where that is run again."""
        if self.recomputes and self.has_backward:
            loss = self._recompute(bwd_chunk_id, loss)
        super().backward_one_chunk(
            bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
        )  # fmt: skip

    def _recompute(self, micro_batch: int, loss: Tensor | None) -> Tensor | None:
        """Put a graph where none is; the loss as the end of it, where there is one."""
        (made,), inputs = self.fwd_cache[micro_batch]
        device = device_of(self.device)
        with device.forked_random(), torch.enable_grad():
            device.set_random_state(self._random.pop(micro_batch))
            again: Tensor = self.submod(*inputs)
        self.fwd_cache[micro_batch] = (again,), inputs
        if loss is None:
            return None
        (gradient,) = torch.autograd.grad(loss, made)
        joined: Tensor = _Joined.apply(again, gradient)
        return joined


class _Joined(torch.autograd.Function):  # type: ignore[misc,unused-ignore]
    """The end of a graph whose gradient is known already."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, gradient: Tensor) -> Tensor:
        ctx.save_for_backward(gradient)
        return output.new_zeros(())

    @staticmethod
    def backward(ctx: Any, one: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return gradient, None
