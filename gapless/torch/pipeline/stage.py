"""A stage of torch.distributed.pipelining that compresses gradients on their path to the stage before, and counts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch.distributed import P2POp

from gapless.torch.compression import HopCompressor
from gapless.torch.ddp.state import poison
from gapless.torch.library import Tensor, torch
from gapless.torch.pipeline.observed import HopObserver
from gapless.torch.pipeline.planned import PlannedStage

__all__ = ["CompressedStage"]

_FORWARD, _BACKWARD = "activations", "gradients"


class CompressedStage(PlannedStage):
    """As `PlannedStage`, for a model whose stages send one tensor each.

    `modes[hop, m]`: the mode of the gradient that micro-batch m sends from stage hop + 1 to hop; all others go plain.
    `propagates`: whether what a hop's compression lost is added to its next gradient (Optimus-CC's lazy error
    propagation). `forward_mode`: of all activations, empty for plain. `observer`: is shown what compression loses, None
    for nobody. `sent_bytes`: of all messages so far.
    """

    def __init__(
        self, *stage: Any, modes: Mapping[tuple[int, int], str] | None = None, propagates: bool = False, **options: Any
    ) -> None:
        super().__init__(*stage, **options)
        self.modes, self.propagates, self.sent_bytes = dict(modes or {}), propagates, 0
        self.forward_mode = ""
        self.observer: HopObserver | None = None
        self._compressors: dict[tuple[str, int, str], HopCompressor] = {}
        self._arriving: dict[tuple[str, int], Tensor] = {}
        self._lost: Tensor | None = None

    @property
    def in_flight(self) -> int:
        """Micro-batches of which something is kept for a gradient that is still to come."""
        return len(self.fwd_cache) + len(self.backward_state)

    def set_modes(self, modes: Mapping[tuple[int, int], str], forward_mode: str = "") -> None:
        """Other modes from the next step on; what is still to be added to a gradient, and compressors, stay."""
        self.modes, self.forward_mode = dict(modes), forward_mode

    @contextmanager
    def plain(self) -> Iterator[None]:
        """Within the block nothing is compressed, counted, shown or added; afterwards all is as before."""
        kept = self.modes, self.forward_mode, self._lost, self.observer, self.sent_bytes
        self.modes, self.forward_mode, self._lost, self.observer = {}, "", None, None
        try:
            yield
        finally:
            self.modes, self.forward_mode, self._lost, self.observer, self.sent_bytes = kept

    def _compressor(self, kind: str, hop: int, micro_batch: int) -> HopCompressor | None:
        mode = self.forward_mode if kind == _FORWARD else self.modes.get((hop, micro_batch))
        if not mode:
            return None
        return self._compressors.setdefault((kind, hop, mode), HopCompressor(mode))

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """The activation, plain unless there is a mode for it."""
        ops = super().get_fwd_send_ops(fwd_chunk_id)
        compressor = self._compressor(_FORWARD, self.stage_index, fwd_chunk_id)
        if ops and compressor is not None:
            (op,) = ops
            ops = [_with(op, compressor.encode(op.tensor))]
        return self._counted(ops)

    def get_bwd_send_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """The gradient, in the mode of its hop."""
        ops = super().get_bwd_send_ops(bwd_chunk_id)
        compressor = self._compressor(_BACKWARD, self.stage_index - 1, bwd_chunk_id)
        if ops and (compressor is not None or self._lost is not None):
            (op,) = ops
            ops = [_with(op, self._encoded(bwd_chunk_id, op.tensor, compressor))]
        return self._counted(ops)

    def _encoded(self, micro_batch: int, gradient: Tensor, compressor: HopCompressor | None) -> Tensor:
        given = gradient if self._lost is None else gradient + self._lost
        self._lost = None
        if compressor is None:
            return given
        payload = compressor.encode(given)
        if self.propagates or self.observer is not None:
            lost = given - compressor.decode(payload, given)
            if self.observer is not None:
                self.observer.look(micro_batch, gradient, given, lost)
            if self.propagates:  # an overflow mustn't spoil what comes later
                self._lost = lost if torch.isfinite(poison(lost)) else None
        return payload

    def _counted(self, ops: list[P2POp]) -> list[P2POp]:
        self.sent_bytes += sum(op.tensor.numel() * op.tensor.element_size() for op in ops)
        return ops

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[P2POp]:
        """Into the activation's buffer, or room for what stands for it."""
        return self._receiving(_FORWARD, self.stage_index - 1, fwd_chunk_id, super().get_fwd_recv_ops(fwd_chunk_id))

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[P2POp]:
        """Into the gradient's buffer, or room for what stands for it."""
        return self._receiving(_BACKWARD, self.stage_index, bwd_chunk_id, super().get_bwd_recv_ops(bwd_chunk_id))

    def _receiving(self, kind: str, hop: int, micro_batch: int, ops: list[P2POp]) -> list[P2POp]:
        compressor = self._compressor(kind, hop, micro_batch)
        if compressor is None or not ops:
            return ops
        (op,) = ops
        self._arriving[kind, micro_batch] = compressor.room(op.tensor)
        return [_with(op, self._arriving[kind, micro_batch])]

    def _retrieve_recv_activations(self, fwd_chunk_id: int) -> tuple[Tensor, ...]:
        """Decoded, when the forward is about to use it."""
        self._decode(_FORWARD, self.stage_index - 1, fwd_chunk_id, self.args_recv_info)
        activations: tuple[Tensor, ...] = super()._retrieve_recv_activations(fwd_chunk_id)
        if self.observer is not None:
            self.observer.come(fwd_chunk_id, activations[0])
        return activations

    def _retrieve_recv_grads(self, bwd_chunk_id: int) -> tuple[Tensor | None, ...]:
        """Decoded, when the backward is about to use it."""
        self._decode(_BACKWARD, self.stage_index, bwd_chunk_id, self.grad_recv_info)
        gradients: tuple[Tensor | None, ...] = super()._retrieve_recv_grads(bwd_chunk_id)
        return gradients

    def _decode(self, kind: str, hop: int, micro_batch: int, buffers: Mapping[int, Any]) -> None:
        compressor, payload = self._compressor(kind, hop, micro_batch), self._arriving.pop((kind, micro_batch), None)
        if compressor is not None and payload is not None:
            (received,) = buffers[micro_batch]
            with torch.no_grad():
                received.buffer.copy_(compressor.decode(payload, received.buffer))


def _with(op: P2POp, tensor: Tensor) -> P2POp:
    """The same message, of another tensor."""
    return P2POp(op.op, tensor, group=op.group, tag=op.tag, group_peer=op.group_peer)
