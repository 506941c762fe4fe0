"""A stage of torch.distributed.pipelining that compresses gradients on their path to the stage before, and counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.distributed import P2POp
from torch.distributed.pipelining import PipelineStage

from gapless.torch.compression import HopCompressor
from gapless.torch.ddp.state import poison
from gapless.torch.library import Tensor, torch

__all__ = ["CompressedStage"]


class CompressedStage(PipelineStage):  # type: ignore[misc,unused-ignore]
    """As `PipelineStage`, for a model whose stages send one tensor each.

    `modes[hop, m]`: the mode of the gradient that micro-batch m sends from stage hop + 1 to hop; all others go plain.
    `propagates`: whether what a hop's compression lost is added to its next gradient (Optimus-CC's lazy error
    propagation). `sent_bytes`: of all messages so far.
    """

    def __init__(
        self, *stage: Any, modes: Mapping[tuple[int, int], str] | None = None, propagates: bool = False, **options: Any
    ) -> None:
        super().__init__(*stage, **options)
        self.modes, self.propagates, self.sent_bytes = dict(modes or {}), propagates, 0
        self._compressors: dict[tuple[int, str], HopCompressor] = {}
        self._arriving: dict[int, Tensor] = {}
        self._lost: Tensor | None = None

    @property
    def in_flight(self) -> int:
        """Micro-batches of which something is kept for a gradient that is still to come."""
        return len(self.fwd_cache) + len(self.backward_state)

    def set_modes(self, modes: Mapping[tuple[int, int], str]) -> None:
        """Other modes from the next step on; what is still to be added to a gradient, and compressors, stay."""
        self.modes = dict(modes)

    def _compressor(self, hop: int, micro_batch: int) -> HopCompressor | None:
        mode = self.modes.get((hop, micro_batch))
        if mode is None:
            return None
        return self._compressors.setdefault((hop, mode), HopCompressor(mode))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """The activation, plain."""
        return self._counted(super().get_fwd_send_ops(fwd_chunk_id))

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """The gradient, in the mode of its hop."""
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        compressor = self._compressor(self.stage_index - 1, bwd_chunk_id)
        if ops and (compressor is not None or self._lost is not None):
            (op,) = ops
            ops = [_with(op, self._encoded(op.tensor, compressor))]
        return self._counted(ops)

    def _encoded(self, gradient: Tensor, compressor: HopCompressor | None) -> Tensor:
        if self._lost is not None:
            gradient, self._lost = gradient + self._lost, None
        if compressor is None:
            return gradient
        payload = compressor.encode(gradient)
        if self.propagates:
            lost = gradient - compressor.decode(payload, gradient)
            self._lost = lost if torch.isfinite(poison(lost)) else None  # an overflow mustn't spoil what comes later
        return payload

    def _counted(self, ops: list[P2POp]) -> list[P2POp]:
        self.sent_bytes += sum(op.tensor.numel() * op.tensor.element_size() for op in ops)
        return ops

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Into the gradient's buffer, or room for what stands for it."""
        ops: list[P2POp] = super().get_bwd_recv_ops(bwd_chunk_id)
        compressor = self._compressor(self.stage_index, bwd_chunk_id)
        if compressor is None or not ops:
            return ops
        (op,) = ops
        self._arriving[bwd_chunk_id] = compressor.room(op.tensor)
        return [_with(op, self._arriving[bwd_chunk_id])]

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> tuple[Tensor | None, ...]:
        """Decoded, when the backward is about to use it."""
        compressor = self._compressor(self.stage_index, bwd_chunk_id)
        if compressor is not None and bwd_chunk_id in self._arriving:
            (received,) = self.grad_recv_info[bwd_chunk_id]
            received.buffer.copy_(compressor.decode(self._arriving.pop(bwd_chunk_id), received.buffer))
        gradients: tuple[Tensor | None, ...] = super()._retrieve_recv_grads(bwd_chunk_id)
        return gradients


def _with(op: P2POp, tensor: Tensor) -> P2POp:
    """The same message, of another tensor."""
    return P2POp(op.op, tensor, group=op.group, tag=op.tag, group_peer=op.group_peer)
