"""What differs between devices, behind one interface: clocks, peaks of memory, rounding, random states, streams.

`device_of` finds the one of a `torch.device`; all else in this package that depends on a device asks there. Another
kind of device is an entry of `KINDS`. Needs the extra `torch`.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, TypeVar

import numpy as np

from gapless.errors import InputError
from gapless.torch.cuda_allocator import CUDA_BLOCK_BYTES
from gapless.torch.emulated_copies import EmulatedQueue
from gapless.torch.library import Tensor, torch

__all__ = [
    "KINDS",
    "CopyQueue",
    "Cpu",
    "Cuda",
    "Device",
    "Marks",
    "Usage",
    "device_of",
    "gpu_count",
    "measure_peak",
    "own_gpu",
    "random_state",
    "set_random_state",
]

T = TypeVar("T")

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler writes every start and stop to stderr


@dataclass(frozen=True)
class Usage:
    """Memory that a call took, above what was there before it.

    `peak_bytes`: of tensors and workspaces at once. `reserved_bytes`: that its allocator got from the device in all,
    which is more where blocks don't fit together; None where there is no such allocator. `left_bytes`: of what is still
    there when the call is over.
    """

    peak_bytes: int
    reserved_bytes: int | None = None
    left_bytes: int = 0


class CopyQueue(Protocol):
    """One copy at a time."""

    def copy(self, target: Tensor, source: Tensor, after: Any = None) -> Any:
        """Begin a copy once the device has done what it was given, and copy `after` is over; its ticket."""
        ...

    def wait(self, ticket: Any) -> None:
        """Let the device wait for a copy. What it is given then may take the memory of the source."""
        ...


class Device(Protocol):
    """A device as plans see it."""

    @property
    def name(self) -> str:
        """What times are measured on: profiles of another name don't hold here."""
        ...

    def rounded_bytes(self, size_bytes: int) -> int:
        """What its allocator takes for so many bytes."""
        ...

    def used(self, run: Callable[[], T]) -> tuple[Usage, T]:
        """The memory that a call takes, and what it returns. What it frees of what was there before counts as room."""
        ...

    def timed_s(self, run: Callable[[], object]) -> float:
        """The seconds that the device is at work for a call."""
        ...

    def mark(self) -> Any:
        """The point of a program at which the device has done what it was given so far; `elapsed_s` reads it."""
        ...

    def elapsed_s(self, marks: list[Any]) -> list[float]:
        """Seconds from the first mark to each, once the device has reached all."""
        ...

    def synchronize(self) -> None:
        """Wait until the device has done what it was given."""
        ...

    def make_current(self) -> None:
        """Let this thread's new streams and messages be of this device."""
        ...

    def random_state(self) -> Tensor:
        """The state of its random generator."""
        ...

    def set_random_state(self, state: Tensor) -> None:
        """Let its random generator go on from a state."""
        ...

    def forked_random(self) -> AbstractContextManager[None]:
        """Put the CPU's random state back at the end, and its own."""
        ...

    def saving_on_host(self) -> AbstractContextManager[object]:
        """Let what autograd saves lie in the host's memory, where the device has memory of its own."""
        ...

    def give_back(self) -> None:
        """Give memory back that nothing uses: of the allocator, and workspaces that libraries keep."""
        ...

    def host_memory(self, size_bytes: int) -> Tensor:
        """Bytes of the host to copy to and from, which don't count as its own."""
        ...

    def copy_queue(self, beta_s_per_byte: float) -> CopyQueue:
        """A queue of copies between it and the host, beside its work; of that rate where copies are emulated."""
        ...


class _Emulated(threading.local):
    """What this thread has waited for devices that are emulated, by its processor clock."""

    waited_s = 0.0


_EMULATED = _Emulated()


@dataclass(frozen=True)
class Cpu:
    """The host. Its tensors are allocated byte by byte; the peak is the running sum of the profiler's events."""

    device: torch.device

    @property
    def name(self) -> str:
        """`cpu` with the number of threads that PyTorch takes."""
        return f"{self.device.type}, {torch.get_num_threads()} threads"

    def rounded_bytes(self, size_bytes: int) -> int:
        """As it is."""
        return size_bytes

    def used(self, run: Callable[[], T]) -> tuple[Usage, T]:
        """See `Device`."""
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
            result = run()
        events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
        events.sort(key=lambda event: event.start_ns())
        levels = list(accumulate((int(event.nbytes()) for event in events), initial=0))
        return Usage(max(levels), left_bytes=levels[-1]), result

    def timed_s(self, run: Callable[[], object]) -> float:
        """Of one thread its processor time, which other work on the machine doesn't change; of several, the clock's."""
        begin_s = self.now_s()
        run()
        return self.now_s() - begin_s

    def now_s(self) -> float:
        """What the clock says by which `timed_s` measures."""
        return time.thread_time() + _EMULATED.waited_s if torch.get_num_threads() == 1 else time.perf_counter()

    def wait_until(self, instant_s: float) -> None:
        """Wait for a device that is at work until then. Processor time stands still meanwhile: it is added to."""
        left_s = max(instant_s - self.now_s(), 0.0)
        if torch.get_num_threads() == 1:
            _EMULATED.waited_s += left_s
        else:
            time.sleep(left_s)

    def mark(self) -> float:
        """See `Device`."""
        return time.perf_counter()

    def elapsed_s(self, marks: list[Any]) -> list[float]:
        """See `Device`."""
        return [mark - marks[0] for mark in marks]

    def synchronize(self) -> None:
        """It has."""

    def make_current(self) -> None:
        """It is."""

    def random_state(self) -> Tensor:
        """See `Device`."""
        return torch.get_rng_state()

    def set_random_state(self, state: Tensor) -> None:
        """See `Device`."""
        torch.set_rng_state(state)

    def forked_random(self) -> AbstractContextManager[None]:
        """See `Device`."""
        forked: AbstractContextManager[None] = torch.random.fork_rng(devices=[])
        return forked

    def saving_on_host(self) -> AbstractContextManager[object]:
        """It lies there."""
        return nullcontext()

    def give_back(self) -> None:
        """PyTorch keeps none."""

    def host_memory(self, size_bytes: int) -> Tensor:
        """NumPy's, since PyTorch's allocations are measured."""
        return torch.from_numpy(np.empty(size_bytes, dtype=np.uint8))

    def copy_queue(self, beta_s_per_byte: float) -> CopyQueue:
        """See `Device`."""
        return EmulatedQueue(self, beta_s_per_byte)


@dataclass(frozen=True)
class Cuda:
    """A GPU: the host is ahead of it, and its allocator keeps what it once got."""

    device: torch.device

    @property
    def name(self) -> str:
        """The model of the GPU."""
        return str(torch.cuda.get_device_name(self.device))

    def rounded_bytes(self, size_bytes: int) -> int:
        """Whole blocks."""
        return -(-size_bytes // CUDA_BLOCK_BYTES) * CUDA_BLOCK_BYTES

    def used(self, run: Callable[[], T]) -> tuple[Usage, T]:
        """By the allocator's own statistics. Workspaces of cuDNN and cuBLAS are its memory; what cuBLAS keeps of
        earlier calls was there before.
        """
        cuda = torch.cuda
        self.synchronize()
        cuda.empty_cache()
        before, reserved = cuda.memory_allocated(self.device), cuda.memory_reserved(self.device)
        cuda.reset_peak_memory_stats(self.device)
        result = run()
        self.synchronize()
        peak_bytes = max(int(cuda.max_memory_allocated(self.device)) - before, 0)
        reserved_bytes = max(int(cuda.max_memory_reserved(self.device)) - reserved, 0)
        return Usage(peak_bytes, reserved_bytes, int(cuda.memory_allocated(self.device)) - before), result

    def timed_s(self, run: Callable[[], object]) -> float:
        """By events in its stream."""
        begin = self.mark()
        run()
        return self.elapsed_s([begin, self.mark()])[-1]

    def mark(self) -> torch.cuda.Event:
        """An event in the stream, since the host is ahead."""
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def elapsed_s(self, marks: list[Any]) -> list[float]:
        """See `Device`."""
        self.synchronize()
        return [1e-3 * marks[0].elapsed_time(mark) for mark in marks]

    def synchronize(self) -> None:
        """See `Device`."""
        torch.cuda.synchronize(self.device)

    def make_current(self) -> None:
        """Every thread has a device of its own."""
        torch.cuda.set_device(self.device)

    def random_state(self) -> Tensor:
        """See `Device`."""
        return torch.cuda.get_rng_state(self.device)

    def set_random_state(self, state: Tensor) -> None:
        """See `Device`."""
        torch.cuda.set_rng_state(state, self.device)

    def forked_random(self) -> AbstractContextManager[None]:
        """See `Device`."""
        forked: AbstractContextManager[None] = torch.random.fork_rng(devices=[self.device])
        return forked

    def saving_on_host(self) -> AbstractContextManager[object]:
        """See `Device`."""
        saving: AbstractContextManager[object] = torch.autograd.graph.save_on_cpu()
        return saving

    def give_back(self) -> None:
        """See `Device`."""
        self.synchronize()
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  (there is no public name)
        torch.cuda.empty_cache()

    def host_memory(self, size_bytes: int) -> Tensor:
        """Pinned."""
        return torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)

    def copy_queue(self, beta_s_per_byte: float) -> CopyQueue:
        """See `Device`."""
        return _StreamQueue(self.device, torch.cuda.Stream(self.device))


@dataclass(frozen=True)
class _StreamQueue:
    """Copies of a stream of their own, at the rate that they take."""

    device: torch.device
    stream: torch.cuda.Stream

    def copy(self, target: Tensor, source: Tensor, after: torch.cuda.Event | None = None) -> torch.cuda.Event:
        """See `CopyQueue`."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))
        if after is not None:
            self.stream.wait_event(after)
        with torch.cuda.stream(self.stream):
            target.copy_(source, non_blocking=True)
        return self.stream.record_event()

    def wait(self, ticket: torch.cuda.Event) -> None:
        """See `CopyQueue`."""
        torch.cuda.current_stream(self.device).wait_event(ticket)


KINDS: dict[str, Callable[[torch.device], Device]] = {"cpu": Cpu, "cuda": Cuda}
"""Devices by the type that PyTorch gives them."""


def device_of(device: torch.device) -> Device:
    """The device of this name. Raises `InputError` for a kind that is not known."""
    if device.type not in KINDS:
        raise InputError(f"device: must be {' or '.join(KINDS)} to be planned for, got {device.type}")
    return KINDS[device.type](device)


class Marks:
    """Instants at which a device reaches points of a program, as its own clock sees them.

    Raises `InputError` for a device that is not known.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device_of(device)
        self._marks: list[Any] = []

    def mark(self) -> None:
        """The instant at which the device has done what it was given so far."""
        self._marks.append(self._device.mark())

    def elapsed_s(self) -> list[float]:
        """Seconds from the first mark to each."""
        return self._device.elapsed_s(self._marks)


def measure_peak(run: Callable[[], T], device: torch.device) -> tuple[int, T]:
    """The most bytes that a call allocates at once, and what it returns.

    What the call frees of what was there before counts as room: let it free nothing of that. Garbage in cycles is freed
    before, which Python would do whenever it likes.
    """
    gc.collect()
    usage, result = device_of(device).used(run)
    return usage.peak_bytes, result


def random_state(device: torch.device) -> Tensor:
    """The state of a device's random generator."""
    return device_of(device).random_state()


def set_random_state(state: Tensor, device: torch.device) -> None:
    """Let a device's random generator go on from a state."""
    device_of(device).set_random_state(state)


def gpu_count() -> int:
    """How many GPUs PyTorch sees."""
    return int(torch.cuda.device_count())


def own_gpu(place: int | None = None) -> torch.device:
    """The GPU of this process: the one in this place of the machine, from now on; None for the one that it has."""
    if place is not None:
        torch.cuda.set_device(place)
    return torch.device("cuda", torch.cuda.current_device() if place is None else place)
