"""Copies between GPUs and pinned host memory, timed: a `HostProber` for `find_host`, without loopbacks of a NIC."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from gapless.array_types import Floats
from gapless.errors import InputError
from gapless.torch.devices import device_of, gpu_count
from gapless.torch.library import torch

__all__ = ["DeviceCopies"]

_COPY_BYTES = 2**26
"""A copy of some milliseconds over PCIe."""


class DeviceCopies:
    """The devices of this process: all GPUs, or those that are named. `size_bytes`: of a copy.

    torch can't loop through a NIC: `cpu_count` is 0, and what is near the NIC stays unknown.
    """

    def __init__(self, devices: Sequence[str] | None = None, size_bytes: int = _COPY_BYTES) -> None:
        named = devices or [f"cuda:{number}" for number in range(gpu_count())]
        if not named:
            raise InputError("devices: this machine has no GPU; name devices that there are")
        self._devices = [torch.device(name) for name in named]
        is_pinned = any(device.type != "cpu" for device in self._devices)
        self._there = [torch.ones(size_bytes, dtype=torch.uint8, device=device) for device in self._devices]
        self._here = [torch.ones(size_bytes, dtype=torch.uint8, pin_memory=is_pinned) for _ in self._devices]
        self._threads = ThreadPoolExecutor(len(self._devices), "gapless-copy")
        self.gpu_count, self.cpu_count = len(self._devices), 0

    def copy_s(self, gpus: Sequence[int], cpu: int, to_host: bool, beside_loopback: bool) -> Floats:
        """See `HostProber`; raises `InputError` for a loopback."""
        if beside_loopback:
            raise InputError("beside_loopback: must be False, torch can't loop through a NIC")
        return np.array(list(self._threads.map(lambda gpu: self._copied_s(gpu, to_host), gpus)))

    def loopback_s(self, cpu: int) -> float:
        """Raises `InputError`: torch can't loop through a NIC."""
        raise InputError(f"cpu: must be one of 0, torch can't loop through a NIC, got {cpu}")

    def _copied_s(self, gpu: int, to_host: bool) -> float:
        source, target = (self._there, self._here) if to_host else (self._here, self._there)
        begin_s = time.perf_counter()
        target[gpu].copy_(source[gpu], non_blocking=True)
        device_of(self._devices[gpu]).synchronize()
        return time.perf_counter() - begin_s
