"""PyTorch for the modules that need it, or one line that says how to get it: the extra `torch`.

With what many of them do with it: times, peak memory, layouts, random states, ranks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import TypeAlias, TypeVar

from gapless.errors import InputError
from gapless.installation.extras import missing_extra

__all__ = [
    "Argument",
    "Loss",
    "Made",
    "Marks",
    "Module",
    "Node",
    "StepState",
    "Tensor",
    "TreeSpec",
    "device_name",
    "has_layout",
    "laid_out",
    "measure_peak",
    "named_tensors",
    "random_state",
    "rank_count",
    "set_random_state",
    "torch",
    "tree_flatten",
    "tree_unflatten",
    "unchanged",
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

T = TypeVar("T")


class Marks:
    """Instants at which a device reaches points of a program, as its own clock sees them.

    Raises `InputError` for a device that is neither a CPU nor a CUDA GPU.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"device: must be cpu or cuda to be timed, got {device.type}")
        self._device = device
        self._events: list[torch.cuda.Event] = []
        self._instants_s: list[float] = []

    def mark(self) -> None:
        """The instant at which the device has done what it was given so far."""
        if self._device.type == "cuda":  # the host is ahead of the GPU, whose stream must take the time
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._events.append(event)
        else:
            self._instants_s.append(time.perf_counter())

    def elapsed_s(self) -> list[float]:
        """Seconds from the first mark to each."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return [1e-3 * self._events[0].elapsed_time(event) for event in self._events]
        return [instant_s - self._instants_s[0] for instant_s in self._instants_s]


def device_name(device: torch.device) -> str:
    """The model of a GPU, or `cpu` with the number of threads that PyTorch takes."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    return f"{device.type}, {torch.get_num_threads()} threads"


def random_state(device: torch.device) -> torch.Tensor:
    """The state of a device's random generator."""
    return torch.cuda.get_rng_state(device) if device.type == "cuda" else torch.get_rng_state()


def set_random_state(state: torch.Tensor, device: torch.device) -> None:
    """Let a device's random generator go on from a state."""
    if device.type == "cuda":
        torch.cuda.set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


def rank_count(group: torch.distributed.ProcessGroup | None = None) -> int:
    """Ranks in a process group, 1 where there is none."""
    distributed = torch.distributed
    return distributed.get_world_size(group) if distributed.is_available() and distributed.is_initialized() else 1


os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes every start and stop to stderr


def measure_peak(run: Callable[[], T], device: torch.device) -> tuple[int, T]:
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


@dataclass(frozen=True)
class StepState:
    """What a step changes: gradients, buffers (running statistics), of which these are copies, and random states."""

    gradients: tuple[tuple[Tensor, Tensor | None], ...]
    buffers: tuple[tuple[Tensor, Tensor], ...]
    random: tuple[tuple[torch.device, Tensor], ...]

    @classmethod
    def of(cls, model: Module, devices: Iterable[torch.device]) -> StepState:
        """As it is now; of devices, the CPU is always among them."""
        gpus = sorted({device for device in devices if device.type == "cuda"}, key=str)
        return cls(
            tuple((parameter, parameter.grad) for parameter in model.parameters()),
            tuple((buffer, buffer.clone()) for buffer in model.buffers()),
            tuple((device, random_state(device)) for device in (torch.device("cpu"), *gpus)),
        )

    def without_gradients(self) -> None:
        """Buffers and random states as they were, and no gradients."""
        self.put_back()
        for parameter, _ in self.gradients:
            parameter.grad = None

    def put_back(self) -> None:
        """All as it was."""
        with torch.no_grad():
            for buffer, value in self.buffers:
                buffer.copy_(value)
        for device, state in self.random:
            set_random_state(state, device)
        for parameter, gradient in self.gradients:
            parameter.grad = gradient


@contextmanager
def unchanged(model: Module, device: torch.device) -> Iterator[None]:
    """Put back gradients, buffers and the random state."""
    before = StepState.of(model, [device])
    try:
        yield
    finally:
        before.put_back()
