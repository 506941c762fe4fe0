"""What a rank keeps of micro-batches during a step: how many are in flight, and the bytes of what is saved of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

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
        modules = [stage.submod for stage in stages]
        self._own = {_place(each) for module in modules for each in (*module.parameters(), *module.buffers())}
        self._uses: dict[int, int] = {}
        self._shared: set[int] = set()
        self._bytes = 0
        self._noted: list[Tensor] | None = None
        self._lock = threading.RLock()  # what travels leaves and returns in another thread
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

    @contextmanager
    def noting(self) -> Iterator[list[Tensor]]:
        """What is saved within the block and wasn't before."""
        noted = self._noted = []
        try:
            yield noted
        finally:
            self._noted = None

    def own(self, noted: Sequence[Tensor], more: Sequence[Tensor], others: Sequence[Tensor]) -> list[Any]:
        """The memory of what was noted and is still saved, and of `more`, that is no part of `others`, each once."""
        without = {_place(each) for each in others} | self._shared
        saved = [each for each in noted if _place(each) in self._uses]
        found = {_place(each): each.untyped_storage() for each in (*saved, *more)}
        return [storage for place, storage in found.items() if place not in without]

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Of whose memory all micro-batches have a part: it is nobody's own."""
        self._shared |= {_place(each) for each in tensors}

    def come(self, tensor: Tensor) -> None:
        """One more use of the memory in which a tensor lies."""
        place = _place(tensor)
        with self._lock:
            if place in self._own:
                return
            self._uses[place] = self._uses.get(place, 0) + 1
            if self._uses[place] == 1:
                if self._noted is not None:
                    self._noted.append(tensor)
                self._grow(tensor.untyped_storage().nbytes())

    def go(self, tensor: Tensor) -> None:
        """One use less."""
        place = _place(tensor)
        with self._lock:
            if place in self._own:
                return
            self._uses[place] -= 1
            if not self._uses[place]:
                del self._uses[place]
                self._bytes -= tensor.untyped_storage().nbytes()

    def gone(self, _: str, memory: Sequence[Any]) -> None:
        """What is kept of a micro-batch is elsewhere, and is about to let its memory go."""
        with self._lock:
            self._bytes -= self._saved_bytes(memory)

    def returned(self, _: str, memory: Sequence[Any]) -> None:
        """It has its memory again."""
        with self._lock:
            self._grow(self._saved_bytes(memory))

    def _saved_bytes(self, memory: Sequence[Any]) -> int:
        return sum(each.nbytes() for each in memory if each._cdata in self._uses)  # noqa: SLF001

    def _grow(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        self.peak_bytes = max(self.peak_bytes, self._bytes + self._input_bytes())

    def _input_bytes(self) -> int:
        """Of inputs that nothing else keeps."""
        found = {}
        for stage in self.stages:
            for _, inputs in stage.fwd_cache.values() if stage.recomputes else ():
                found.update({_place(each): each.untyped_storage().nbytes() for each in inputs})
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


def _place(tensor: Tensor) -> int:
    """Which memory a tensor looks at, whether or not it has its bytes just now."""
    place: int = tensor.untyped_storage()._cdata  # noqa: SLF001
    return place
