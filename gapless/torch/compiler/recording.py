"""A step as selective checkpointing sees it: the operators that eager runs, block by block, and what each keeps alive.

Needs the extra `torch`.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gapless.torch.devices import measure_peak
from gapless.torch.library import Argument, Made, Module, Tensor, torch, tree_flatten
from gapless.torch.step_state import unchanged

from torch.utils._python_dispatch import TorchDispatchMode  # isort: skip  (after the line that names the extra)

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["Ran", "Recording", "recorded"]


@dataclass(frozen=True)
class Ran:
    """An operator that ran. `block`: the name of the block that it ran in, empty for none. `reads`, `makes`: pieces of
    memory, numbered as they appear. `writes`: whether it changes what it reads. `number`: how many of the same name
    ran before it in this run of the block. `is_ignored`: policies aren't asked."""

    name: str
    block: str
    number: int
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    is_random: bool
    writes: bool
    duration_s: float = 0.0


@dataclass(frozen=True)
class Recording:
    """A step. `forward`, `backward`: what ran. `size_bytes`: of each piece of memory. `stops[block]`: after how many of
    its operators a block that is computed again has all that its gradient needs. `lasting`: pieces that stay after the
    step, such as gradients."""

    forward: tuple[Ran, ...]
    backward: tuple[Ran, ...]
    size_bytes: tuple[int, ...]
    stops: Mapping[str, int]
    lasting: frozenset[int]
    peak_bytes: int


def recorded(model: Module, blocks: Mapping[str, Module], step: Callable[[], Tensor], repeats: int = 3) -> Recording:
    """Run a step that returns a loss a few times, and write down what ran. Gradients, buffers and the random state are
    as before."""
    device = next(iter(model.parameters())).device
    recordings = []
    for _ in range(repeats):
        with unchanged(model, device), _watched(blocks) as recorder:
            for parameter in model.parameters():
                parameter.grad = None
            with recorder, torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda saved: saved):
                loss = step()
                recorder.is_backward = True
                loss.backward()
            del loss
            gradients = [p.grad for p in model.parameters() if p.grad is not None]
            lasting = frozenset(recorder.piece(gradient) for gradient in gradients)
        recordings.append(recorder)
    with unchanged(model, device):
        for parameter in model.parameters():
            parameter.grad = None
        peak_bytes, _ = measure_peak(lambda: step().backward(), device)
    last = recordings[-1]
    columns = zip(*(recorder.ran for recorder in recordings), strict=True)
    timed = [
        (is_late, replace(ran, duration_s=statistics.median(other.duration_s for _, other in column)))
        for column in columns
        for is_late, ran in column[-1:]
    ]
    return Recording(
        tuple(ran for is_late, ran in timed if not is_late),
        tuple(ran for is_late, ran in timed if is_late),
        tuple(last.size_bytes),
        last.stops,
        lasting,
        peak_bytes,
    )


@contextlib.contextmanager
def _watched(blocks: Mapping[str, Module]) -> Iterator[_Recorder]:
    recorder = _Recorder()
    try:
        for name, block in blocks.items():
            block.forward = functools.partial(recorder.inside, name, block.forward)
        yield recorder
    finally:
        for block in blocks.values():
            vars(block).pop("forward", None)


class _Recorder(TorchDispatchMode):  # type: ignore[misc,unused-ignore]
    """Writes down what is dispatched below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.ran: list[tuple[bool, Ran]] = []
        self.size_bytes: list[int] = []
        self.stops: dict[str, int] = {}
        self.is_backward = False
        self._block = ""
        self._counts: dict[str, int] = {}
        self._in_block = 0
        self._pieces: dict[int, int] = {}

    def inside(self, name: str, forward: Callable[..., object], *arguments: object, **named: object) -> object:
        """Run a block."""
        self._block, self._counts, self._in_block = name, {}, 0
        self.stops.setdefault(name, 0)
        try:
            return forward(*arguments, **named)
        finally:
            self._block = ""

    def pack(self, saved: Tensor) -> Tensor:
        """Of autograd, which keeps a tensor; a block that is computed again goes no further than for the last."""
        if self._block:
            self.stops[self._block] = self._in_block
        return saved

    def piece(self, tensor: Tensor) -> int:
        """The memory of a tensor; of one that was there before the step, -1."""
        return self._pieces.get(_address(tensor), -1)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: Sequence[Argument] = (),
        kwargs: Mapping[str, Argument] | None = None,
    ) -> Made:
        from torch.utils.checkpoint import SAC_IGNORED_OPS

        read = [part for part in tree_flatten((args, kwargs or {}))[0] if isinstance(part, torch.Tensor)]
        reads = tuple(dict.fromkeys(self.piece(tensor) for tensor in read))
        start_s = time.perf_counter()
        made: Made = func(*args, **(kwargs or {}))
        duration_s = time.perf_counter() - start_s
        held = {_address(tensor) for tensor in read}
        makes = tuple(
            self._new(part)
            for part in tree_flatten(made)[0]
            if isinstance(part, torch.Tensor) and _address(part) not in held
        )
        if func in SAC_IGNORED_OPS:
            return made
        name = str(func)
        number = self._counts.get(name, 0)
        is_random = torch.Tag.nondeterministic_seeded in func.tags
        ran = Ran(name, self._block, number, reads, makes, is_random, func._schema.is_mutable, duration_s)  # noqa: SLF001
        self.ran.append((self.is_backward, ran))
        self._counts[name] = number + 1
        self._in_block += 1
        return made

    def _new(self, tensor: Tensor) -> int:
        self._pieces[_address(tensor)] = len(self.size_bytes)
        self.size_bytes.append(int(tensor.untyped_storage().nbytes()))
        return len(self.size_bytes) - 1


def _address(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)  # noqa: SLF001
