"""A stage of torch.distributed.pipelining that runs backwards as plans have them.

Two things differ from PyTorch's own. A stage may run its forward again before its backward, and keep only its input.
The checkpoints of PyTorch run a forward again in each backward: one in two parts would pay for it twice. Here both
parts share one forward that is run again. And the first stage has two parts of a backward, too: there is no gradient of
what it gets, such as tokens, but one of what its first layer makes of it. PyTorch does all with the weights' gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining._backward import stage_backward_input, stage_backward_weight
from torch.utils.checkpoint import checkpoint

from gapless.profiles.pipelines.profile import INPUT
from gapless.torch.devices import device_of
from gapless.torch.library import Tensor, torch

__all__ = ["PlannedStage"]


class PlannedStage(PipelineStage):  # type: ignore[misc,unused-ignore]
    """As `PipelineStage`, for a model whose stages take and send one tensor each.

    `recomputes`: whether only the input of a micro-batch is kept from its forward to its backward, which runs the
    forward again, with the same random numbers. The last stage keeps its output besides, for the loss. `policies`: of a
    stage whose layers follow one another, `keep` or `input` for each: whether a layer keeps its input alone, and runs
    again in the backward, which has to be whole.
    """

    def __init__(self, *stage: Any, recomputes: bool = False, policies: str = "", **options: Any) -> None:
        super().__init__(*stage, **options)
        for layer, policy in zip(self.submod.children(), policies.split(), strict=False):
            if policy == INPUT:
                layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        self.recomputes = recomputes
        self._random: dict[int, Tensor] = {}
        self._made: tuple[Tensor, Tensor] | None = None  # by the first layer: as it is, and as the others get it
        self._edges: dict[int, tuple[Tensor, Tensor]] = {}
        layers = list(self.submod.children())
        if self.is_first and isinstance(self.submod, torch.nn.Sequential) and len(layers) > 1:
            layers[0].register_forward_hook(self._after_first_layer)

    def _after_first_layer(self, _: object, __: object, output: Tensor) -> Tensor | None:
        """The graph ends here, and another begins."""
        if not (torch.is_grad_enabled() and output.requires_grad):
            return None
        self._made = output, output.detach().requires_grad_()
        return self._made[1]

    def _keep_edge(self, micro_batch: int) -> None:
        if self._made is not None:
            self._edges[micro_batch], self._made = self._made, None

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **options: Any) -> Any:
        """The forward; where it is run again, with the random numbers noted that it draws."""
        if self.recomputes and self.has_backward:
            self._random[fwd_chunk_id] = device_of(self.device).random_state()
        self._made = None
        output = super().forward_one_chunk(fwd_chunk_id, *args, **options)
        self._keep_edge(fwd_chunk_id)
        return output

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
        if bwd_chunk_id in self._edges and not full_backward:
            self._backward_to_edge(bwd_chunk_id, loss)
            return
        super().backward_one_chunk(
            bwd_chunk_id, loss=loss, full_backward=full_backward, last_backward=last_backward
        )  # fmt: skip
        if bwd_chunk_id in self._edges:
            self._backward_of_first_layer(bwd_chunk_id)

    def _backward_to_edge(self, micro_batch: int, loss: Tensor | None) -> None:
        """The gradient of what the first layer has made; what is left for the weights is kept."""
        outputs, inputs = self.fwd_cache.pop(micro_batch)
        ends, gradients = (
            ([loss], None) if self.is_last else (list(outputs), list(self._retrieve_recv_grads(micro_batch)))
        )
        _, groups = stage_backward_input(ends, gradients, [self._edges[micro_batch][1]], self._other_weights())
        self.backward_state[micro_batch] = inputs, groups, ends, gradients

    def _backward_of_first_layer(self, micro_batch: int) -> None:
        made, given = self._edges.pop(micro_batch)
        torch.autograd.backward(made, given.grad)

    def _other_weights(self) -> Iterator[Tensor]:
        _, *layers = self.submod.children()
        return (each for layer in layers for each in layer.parameters() if each.requires_grad)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        """The gradients of the weights."""
        if bwd_chunk_id not in self._edges:
            super().backward_weight_one_chunk(bwd_chunk_id, last_backward=last_backward)
            return
        _, groups, *_ = self.backward_state.pop(bwd_chunk_id)
        stage_backward_weight(self._other_weights(), groups)
        self._backward_of_first_layer(bwd_chunk_id)

    def _recompute(self, micro_batch: int, loss: Tensor | None) -> Tensor | None:
        """Put a graph where none is; the loss as the end of it, where there is one."""
        (made,), inputs = self.fwd_cache[micro_batch]
        device = device_of(self.device)
        with device.forked_random(), torch.enable_grad():
            device.set_random_state(self._random.pop(micro_batch))
            again: Tensor = self.submod(*inputs)
        self._keep_edge(micro_batch)
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
