"""Peak memory of a piece of PyTorch, above what is there when it begins. Needs the extra `torch`."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from gapless.torch.library import torch

__all__ = ["compact", "has_layout", "laid_out", "measure_peak"]

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes every start and stop to stderr


def measure_peak(run: Callable[[], Any], device: Any) -> tuple[int, Any]:
    """The most bytes that a call allocates at once, and what it returns.

    On a CPU the running sum of the profiler's memory events, on a GPU the allocator's own peak. What the call frees of
    what was there before counts as room: let it free nothing of that.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        result = run()
        torch.cuda.synchronize(device)
        return max(int(torch.cuda.max_memory_allocated(device)) - before, 0), result
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0)), result


def has_layout(tensor: Any, strides: tuple[int, ...]) -> bool:
    """Whether a tensor has these strides; those of dimensions of size 1 don't matter, nor any where it is empty."""
    if tensor.stride() == strides or not tensor.numel():
        return True
    pairs = zip(tensor.shape, tensor.stride(), strides, strict=True)
    return all(size == 1 or own == wanted for size, own, wanted in pairs)


def laid_out(tensor: Any, strides: tuple[int, ...]) -> Any:
    """A copy of a tensor in memory that is laid out by these strides."""
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def compact(tensor: Any, most_bytes: int) -> Any:
    """The tensor, copied if it lies in more memory than it should: some losses leave a scalar in a large buffer.

    None, which an operator returns where nobody asked for a gradient, stays what it is.
    """
    if tensor is None or tensor.untyped_storage().nbytes() <= most_bytes:
        return tensor
    return tensor.clone()
