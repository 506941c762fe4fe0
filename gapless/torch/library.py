"""PyTorch for the modules that need it, or one line that says how to get it: the extra `torch`."""

from __future__ import annotations

import time
from typing import Any

from gapless.errors import InputError
from gapless.extras import missing_extra

try:
    import torch
    import torch.distributed
    import torch.nn.parallel
except ImportError:
    raise missing_extra("this", "PyTorch", "torch") from None

__all__ = ["Marks", "device_name", "random_state", "rank_count", "set_random_state", "torch"]


class Marks:
    """Instants at which a device reaches points of a program, as its own clock sees them.

    Raises `InputError` for a device that is neither a CPU nor a CUDA GPU.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type not in ("cpu", "cuda"):
            raise InputError(f"device: must be cpu or cuda to be timed, got {device.type}")
        self._device = device
        self._marks: list[Any] = []

    def mark(self) -> None:
        """The instant at which the device has done what it was given so far."""
        if self._device.type == "cuda":  # the host is ahead of the GPU, whose stream must take the time
            event = torch.cuda.Event(enable_timing=True)
            event.record(torch.cuda.current_stream(self._device))
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter())

    def elapsed_s(self) -> list[float]:
        """Seconds from the first mark to each."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
            return [1e-3 * self._marks[0].elapsed_time(mark) for mark in self._marks]
        return [mark - self._marks[0] for mark in self._marks]


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


def rank_count(group: Any = None) -> int:
    """Ranks in a process group, 1 where there is none."""
    distributed = torch.distributed
    return distributed.get_world_size(group) if distributed.is_available() and distributed.is_initialized() else 1
