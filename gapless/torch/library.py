"""PyTorch for the modules that need it, or one line that says how to get it: the extra `torch`.

With what many of them do with it: layouts, named tensors, ranks.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeAlias

from gapless.errors import InputError
from gapless.installation.extras import missing_extra

__all__ = [
    "Argument",
    "Loss",
    "Made",
    "Module",
    "Node",
    "Tensor",
    "TreeSpec",
    "has_layout",
    "laid_out",
    "named_tensors",
    "rank_count",
    "say",
    "torch",
    "tree_flatten",
    "tree_unflatten",
    "uncast",
    "written_buffers",
]


try:
    import torch
    import torch.distributed
    import torch.nn.parallel
    from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten
except ImportError:
    raise missing_extra("this", "PyTorch", "torch") from None

Module: TypeAlias = torch.nn.Module
Node: TypeAlias = torch.fx.Node
Tensor: TypeAlias = torch.Tensor
Argument: TypeAlias = torch.fx.node.Argument
"""Of a call in a graph: graph nodes or tensors, numbers, names, and tuples, lists and mappings of these."""
Made: TypeAlias = Tensor | tuple[Tensor, ...]
"""What an operator returns."""
Loss: TypeAlias = Callable[..., Tensor]
"""Of what a model returns, and of targets."""


def rank_count(group: torch.distributed.ProcessGroup | None = None) -> int:
    """Ranks in a process group, 1 where there is none."""
    distributed = torch.distributed
    return distributed.get_world_size(group) if distributed.is_available() and distributed.is_initialized() else 1


@contextmanager
def uncast() -> Iterator[None]:
    """Without autocast, for what has its casts in it."""
    with ExitStack() as stack:
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def has_layout(tensor: Tensor, strides: tuple[int, ...]) -> bool:
    """Whether a tensor has these strides; those of dimensions of size 1 don't matter, nor any where it is empty."""
    if tensor.stride() == strides or not tensor.numel():
        return True
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in pairs)


def laid_out(tensor: Tensor, strides: tuple[int, ...]) -> Tensor:
    """A copy of a tensor in memory that is laid out by these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def named_tensors(model: Module) -> dict[str, dict[str, Tensor]]:
    """Parameters and buffers by "parameter" and "buffer", each under all of its names."""
    return {
        "parameter": dict(model.named_parameters(remove_duplicate=False)),
        "buffer": dict(model.named_buffers(remove_duplicate=False)),
    }


def say(text: str) -> None:
    """Print a line on stderr."""
    print(f"gapless: {text}", file=sys.stderr)


@contextmanager
def written_buffers(model: Module) -> Iterator[None]:
    """Let buffers that a forward pass replaces be written to instead, which a trace sees."""
    before = [(module, name, buffer) for module in model.modules() for name, buffer in vars(module)["_buffers"].items()]
    yield
    for module, name, buffer in before:
        now = vars(module)["_buffers"].get(name)
        if now is buffer:
            continue
        if buffer is None or now is None or now.shape != buffer.shape or now.dtype != buffer.dtype:
            rule = f"capture: the forward pass replaces buffer {name!r} by one of another shape or type"
            raise InputError(f"{rule}; write into it, as by copy_")
        buffer.copy_(now)
        module._buffers[name] = buffer  # noqa: SLF001
