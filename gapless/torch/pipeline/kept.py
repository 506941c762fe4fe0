"""What a rank keeps of micro-batches during a step: how many are in flight, and the bytes of what is saved of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from gapless.torch.library import Tensor, torch

if TYPE_CHECKING:
    from gapless.torch.pipeline.stage import CompressedStage

__all__ = ["Tally"]


class Tally:
    """Of the stages of a rank, what they keep at most at once.

    `peak`: micro-batches, counted once a stage. `peak_bytes`: the memory in which all lies that autograd saves,
    parameters aside, and the inputs of stages that run their forward again.
    """

    def __init__(self, stages: Sequence[CompressedStage]) -> None:
        self.stages, self.peak, self.peak_bytes = stages, 0, 0
        self._own = {each.untyped_storage().data_ptr() for stage in stages for each in stage.submod.parameters()}
        self._uses: dict[int, int] = {}
        self._bytes = 0
        self._hooks = [stage.submod.register_forward_hook(partial(self._after_forward, stage)) for stage in stages]

    def leave(self) -> None:
        """Look no longer."""
        for hook in self._hooks:
            hook.remove()

    def _after_forward(self, stage: CompressedStage, *_: object) -> None:
        """The micro-batch that has just gone forward is kept from now on; one that goes again is kept already."""
        if stage.recomputes and torch.is_grad_enabled():
            return
        self.peak = max(self.peak, 1 + sum(stage.in_flight for stage in self.stages))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Within the block bytes are counted."""
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: _Saved(tensor, self), _Saved.unpacked):
            yield

    def come(self, tensor: Tensor) -> None:
        """One more use of the memory in which a tensor lies."""
        place = tensor.untyped_storage().data_ptr()
        if place not in self._own:
            self._uses[place] = self._uses.get(place, 0) + 1
            self._bytes += tensor.untyped_storage().nbytes() if self._uses[place] == 1 else 0
            self.peak_bytes = max(self.peak_bytes, self._bytes + self._input_bytes())

    def go(self, tensor: Tensor) -> None:
        """One use less."""
        place = tensor.untyped_storage().data_ptr()
        if place not in self._own:
            self._uses[place] -= 1
            if not self._uses[place]:
                del self._uses[place]
                self._bytes -= tensor.untyped_storage().nbytes()

    def _input_bytes(self) -> int:
        """Of inputs that nothing else keeps."""
        found = {}
        for stage in self.stages:
            for _, inputs in stage.fwd_cache.values() if stage.recomputes else ():
                found.update({each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in inputs})
        return sum(size for place, size in found.items() if place not in self._uses)


class _Saved:
    """What autograd saves: the tensor's values, until the graph goes. The tensor itself would keep the graph."""

    __slots__ = ("_tally", "_values")

    def __init__(self, tensor: Tensor, tally: Tally) -> None:
        self._values, self._tally = tensor.detach(), tally
        tally.come(self._values)

    def unpacked(self) -> Tensor:
        return self._values

    def __del__(self) -> None:
        self._tally.go(self._values)
