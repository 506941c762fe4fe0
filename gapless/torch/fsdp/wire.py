"""Emulated networks under FSDP2: its collectives are real, and take what a plan says. Needs `torch`.

Each rank's collectives go through a thread of their own for each network, one after the other. It runs a part, and
sleeps until it would have been through. FSDP2 on CPUs would wait for each where it begins; here it goes on, as on GPUs,
and waits where it waits for an event there: for a gather before its pass, for a scatter where too many are under way.
What a pass gathers ahead is begun with its own gather, whose end the host doesn't wait for there.
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
from gapless.torch.fsdp.layers import when_gradient_is_there
from gapless.torch.fsdp.nodes import AllRanks, Run
from gapless.torch.library import Module, Tensor, torch

__all__ = ["Durations", "Network", "Seen"]

Durations = tuple[tuple[int, float], ...]
"""Of a collective's parts: the network that each is on, and what it takes."""


@dataclass
class _Part:
    """Of a collective, on a network: from when to when it holds that, by `time.monotonic`. It may begin once the one
    `before` it is over, or at `from_s`."""

    network: int
    duration_s: float
    run: Run
    from_s: float
    before: _Part | None
    start_s: float = 0.0
    end_s: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None

    def over_s(self) -> float:
        """When it ends, once it has."""
        self.done.wait()
        if self.error is not None:
            raise self.error
        return self.end_s


@dataclass
class Seen:
    """A collective of a group, and for gathers whether and until when the rank had the parameters."""

    group: int
    is_scatter: bool
    issued_s: float
    parts: tuple[_Part, ...] = ()
    released_s: float = 0.0
    is_there: bool = False


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
    passes are emulated too, so that instants are those of the emulation; else those of the machine. `ranks`: what the
    parts of collectives are."""

    def __init__(
        self, durations_s: Sequence[tuple[Durations, Durations]], scatters_in_flight: int, is_timed: bool,
        ranks: AllRanks,
    ) -> None:  # fmt: skip
        self._durations_s, self._most, self._is_timed, self.ranks = durations_s, scatters_in_flight, is_timed, ranks
        self._clock, self._host_s = Clock(), 0.0
        networks = {network for both in durations_s for parts in both for network, _ in parts}
        self._queues: dict[int, queue.SimpleQueue[_Part]] = {number: queue.SimpleQueue() for number in networks}
        self._free_s, self._late_s = dict.fromkeys(networks, 0.0), dict.fromkeys(networks, 0.0)
        self._groups: list[tuple[Module, str]] = []
        self._open: dict[int, Seen] = {}
        self._scatters: deque[Seen] = deque()
        self.seen: list[Seen] = []
        for number in networks:
            threading.Thread(target=self._carry, args=(number,), daemon=True).start()

    @property
    def late_s(self) -> float:
        """How far a part fell behind in this step."""
        return max(self._late_s.values())

    def attach(self, groups: Sequence[Sequence[Module]], passes_s: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Under the groups of a wrapped model; `passes_s`: forward and backward of each layer, in emulated time."""
        for number, (modules, times) in enumerate(zip(groups, passes_s, strict=True)):
            head: Any = modules[0]
            assert isinstance(head, FSDPModule)
            scatter = _Scatter(self, number)
            head.set_custom_all_gather(_Gather(self, number))
            head.set_custom_reduce_scatter(scatter)
            for each in head._get_fsdp_state()._fsdp_param_groups:  # noqa: SLF001  (sums have no public hook)
                if hasattr(each.mesh_info, "replicate_process_group"):
                    each.mesh_info.replicate_process_group = _Sums(scatter, each.mesh_info.replicate_process_group)
            self._groups.append(_place_of_parameter(modules))
            for module, (forward_s, backward_s) in zip(modules, times, strict=True):
                module.register_forward_pre_hook(self._passing(forward_s))
                module.register_forward_hook(self._before_backward(backward_s))

    def start(self, at_s: float) -> None:
        """A step begins."""
        self._clock.start(at_s)
        self._host_s = at_s
        self._free_s, self._late_s = dict.fromkeys(self._free_s, at_s), dict.fromkeys(self._late_s, 0.0)
        self.seen.clear()
        self._open.clear()
        self._scatters.clear()

    def drain(self) -> None:
        """Until all is through."""
        for each in self.seen:
            self._await(each)
        self._look()

    def gather(self, group: int, runs: Sequence[Run]) -> _Work:
        """Begin a gather; that inside nodes alone is the last part of one."""
        seen = self._send(group, False, self._durations_s[group][0][-len(runs) :], runs)
        self._open[group] = seen
        return _Work(lambda: self._await(seen))

    def scatter(self, group: int, runs: Sequence[Run]) -> None:
        """Begin a scatter, once few enough are under way."""
        while len(self._scatters) >= self._most:
            self._await(self._scatters.popleft())
            self._host_s = self._clock.at_s
        self._scatters.append(self._send(group, True, self._durations_s[group][1], runs))

    def _send(self, group: int, is_scatter: bool, durations_s: Durations, runs: Sequence[Run]) -> Seen:
        self._look()
        parts, from_s = list[_Part](), self._host_s if self._is_timed else self._now_s()
        for (network, duration_s), run in zip(durations_s, runs, strict=True):
            parts.append(_Part(network, duration_s, run, from_s, parts[-1] if parts else None))
        self.seen.append(Seen(group, is_scatter, self._now_s(), tuple(parts)))
        for part in parts:
            self._queues[part.network].put(part)
        return self.seen[-1]

    def _carry(self, network: int) -> None:
        while True:
            part = self._queues[network].get()
            try:
                from_s = part.from_s if part.before is None else part.before.over_s()
                part.start_s = max(self._free_s[network], from_s)
                part.run()
                part.end_s = part.start_s + part.duration_s
                self._late_s[network] = max(self._late_s[network], time.monotonic() - part.end_s)
                if not self._is_timed:
                    part.end_s = max(part.end_s, time.monotonic())
                self._free_s[network] = part.end_s
                sleep_until(part.end_s)
            except BaseException as error:  # said where it is waited for
                part.error = error
            part.done.set()

    def _await(self, seen: Seen) -> None:
        self._look()
        self._clock.at_s = max(self._clock.at_s, *(part.over_s() for part in seen.parts))

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
                self._host_s = self._clock.at_s

        return pass_

    def _before_backward(self, duration_s: float) -> Callable[..., None]:
        passing = self._passing(duration_s)
        return lambda module, inputs, output: when_gradient_is_there(output, passing)


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
        return self._network.gather(self._group, self._network.ranks.gather(output_tensor, input_tensor, group))


class _Scatter(_Alone):
    """`sums`: whether a sum of replicas follows, with which the collective is begun."""

    sums = False
    runs: Sequence[Run] = ()

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: torch.distributed.ProcessGroup, op: Any,
        async_op: bool = False,
    ) -> None:  # fmt: skip
        self.runs = self._network.ranks.scatter(output_tensor, input_tensor, op, group)
        if not self.sums:
            self.begin()

    def begin(self, *more: Run) -> None:
        """On the network."""
        self._network.scatter(self._group, [*self.runs, *more])


class _Sums:
    """The process group of a group's replicas, for FSDP2, which adds up what it has scattered inside a node."""

    def __init__(self, scatter: _Scatter, group: torch.distributed.ProcessGroup) -> None:
        self._scatter, self._ranks = scatter, group
        scatter.sums = True

    def size(self) -> int:
        """How many replicas there are."""
        return int(self._ranks.size())

    def allreduce(self, tensors: list[Tensor], options: Any) -> None:
        """As `torch.distributed.all_reduce` calls it."""
        self._scatter.begin(lambda: self._ranks.allreduce(tensors, options).wait())
