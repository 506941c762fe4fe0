"""An emulated network under FSDP2: its collectives are real, and take what a plan says. Needs `torch`.

Each rank's collectives go through a thread of their own, one after the other. It runs one, and sleeps until it would
have been through. FSDP2 on CPUs would wait for each where it begins; here it goes on, as on GPUs, and waits where it
waits for an event there: for a gather before its pass, for a scatter where too many are under way.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from gapless.torch.ddp.emulation import Clock, sleep_until
from gapless.torch.library import Module, Tensor, torch

__all__ = ["Network", "Seen"]


@dataclass
class Seen:
    """A collective of a group: when it held the network, by `time.monotonic`, and for gathers whether and until when
    the rank had the parameters."""

    group: int
    is_scatter: bool
    issued_s: float
    start_s: float = 0.0
    end_s: float = 0.0
    released_s: float = 0.0
    is_there: bool = False
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class _Work(torch.distributed.Work):  # type: ignore[misc]  # it has no types
    """What FSDP2 waits for."""

    def __init__(self, wait: Callable[[], None]) -> None:
        super().__init__()
        self._wait = wait

    def wait(self, timeout: Any = None) -> bool:
        self._wait()
        return True


class Network:
    """Of a rank. `durations_s[group]`: of a gather and a scatter. `scatters_in_flight`: as FSDP2 has it. `is_timed`:
    passes are emulated too, so that instants are those of the emulation; else those of the machine."""

    def __init__(self, durations_s: Sequence[tuple[float, float]], scatters_in_flight: int, is_timed: bool) -> None:
        self._durations_s, self._most, self._is_timed = durations_s, scatters_in_flight, is_timed
        self._clock, self._free_s, self.late_s = Clock(), 0.0, 0.0
        self._queue: queue.SimpleQueue[tuple[Seen, Callable[[], object]]] = queue.SimpleQueue()
        self._groups: list[tuple[Module, str]] = []
        self._open: dict[int, Seen] = {}
        self._scatters: deque[Seen] = deque()
        self.seen: list[Seen] = []
        threading.Thread(target=self._carry, daemon=True).start()

    def attach(self, groups: Sequence[Sequence[Module]], passes_s: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Under the groups of a wrapped model; `passes_s`: forward and backward of each layer, in emulated time."""
        for number, (modules, times) in enumerate(zip(groups, passes_s, strict=True)):
            head: Any = modules[0]
            assert isinstance(head, FSDPModule)
            head.set_custom_all_gather(_Gather(self, number))
            head.set_custom_reduce_scatter(_Scatter(self, number))
            self._groups.append(_place_of_parameter(modules))
            for module, (forward_s, backward_s) in zip(modules, times, strict=True):
                module.register_forward_pre_hook(self._passing(forward_s))
                module.register_forward_hook(self._before_backward(backward_s))

    def start(self, at_s: float) -> None:
        """A step begins."""
        self._clock.start(at_s)
        self._free_s, self.late_s = at_s, 0.0
        self.seen.clear()
        self._open.clear()
        self._scatters.clear()

    def drain(self) -> None:
        """Until all is through."""
        for each in self.seen:
            self._await(each)
        self._look()

    def gather(self, group: int, run: Callable[[], object]) -> _Work:
        """Begin a gather."""
        seen = self._send(Seen(group, False, self._now_s()), run)
        self._open[group] = seen
        return _Work(lambda: self._await(seen))

    def scatter(self, group: int, run: Callable[[], object]) -> None:
        """Begin a scatter, once few enough are under way."""
        while len(self._scatters) >= self._most:
            self._await(self._scatters.popleft())
        self._scatters.append(self._send(Seen(group, True, self._now_s()), run))

    def _send(self, seen: Seen, run: Callable[[], object]) -> Seen:
        self._look()
        self.seen.append(seen)
        self._queue.put((seen, run))
        return seen

    def _carry(self) -> None:
        while True:
            seen, run = self._queue.get()
            try:
                seen.start_s = max(self._free_s, seen.issued_s)
                run()
                seen.end_s = seen.start_s + self._durations_s[seen.group][seen.is_scatter]
                self.late_s = max(self.late_s, time.monotonic() - seen.end_s)
                if not self._is_timed:
                    seen.end_s = max(seen.end_s, time.monotonic())
                self._free_s = seen.end_s
                sleep_until(seen.end_s)
            except BaseException as error:  # said where it is waited for
                seen.error = error
            seen.done.set()

    def _await(self, seen: Seen) -> None:
        self._look()
        seen.done.wait()
        if seen.error is not None:
            raise seen.error
        self._clock.at_s = max(self._clock.at_s, seen.end_s)

    def _now_s(self) -> float:
        return self._clock.at_s if self._is_timed else time.monotonic()

    def _look(self) -> None:
        """Note which groups are no longer gathered."""
        for group, seen in list(self._open.items()):
            module, name = self._groups[group]
            if not isinstance(getattr(module, name), DTensor):
                seen.is_there = True
            elif seen.is_there:
                seen.released_s = self._now_s()
                del self._open[group]

    def _passing(self, duration_s: float) -> Callable[..., None]:
        def pass_(*_: object) -> None:
            self._look()
            if self._is_timed:
                self._clock.spend(duration_s)

        return pass_

    def _before_backward(self, duration_s: float) -> Callable[..., None]:
        passing = self._passing(duration_s)
        return lambda module, inputs, output: output.register_hook(passing) and None


def _place_of_parameter(modules: Sequence[Module]) -> tuple[Module, str]:
    """Where a group's first parameter is registered: FSDP2 has a `DTensor` there while it is sharded."""
    for module in modules:
        for owner in module.modules():
            for name, _ in owner.named_parameters(recurse=False):
                return owner, name
    raise ValueError("a group has no parameter")


class _Alone:
    """Memory of its own for each collective."""

    def __init__(self, network: Network, group: int) -> None:
        self._network, self._group = network, group

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Alone):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: torch.distributed.ProcessGroup, async_op: bool = False
    ) -> _Work:
        run = torch.distributed.all_gather_into_tensor
        return self._network.gather(self._group, lambda: run(output_tensor, input_tensor, group=group))


class _Scatter(_Alone):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: torch.distributed.ProcessGroup, op: Any,
        async_op: bool = False,
    ) -> None:  # fmt: skip
        run = torch.distributed.reduce_scatter_tensor
        self._network.scatter(self._group, lambda: run(output_tensor, input_tensor, op=op, group=group))
