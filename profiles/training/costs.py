"""From work to implementations: what an operator computes and moves, and what that costs on a device."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gapless.profiles.devices import Device
from gapless.profiles.training.graph import Implementation

__all__ = ["FLOAT_BYTES", "Work", "implementation_of"]

FLOAT_BYTES = 4
"""Networks are trained in single precision."""


@dataclass(frozen=True)
class Work:
    """One kernel: floating-point operations, bytes read and written, and its `speed` (see `Device.seconds`)."""

    flops: float = 0.0
    moved_bytes: float = 0.0
    speed: float = 1.0


def implementation_of(device: Device, *works: Work, workspace_bytes: int = 0, name: str = "") -> Implementation:
    """The implementation that runs kernels one after the other; the power draw is their mean. A view has none."""
    duration_s = math.fsum(device.seconds(work.flops, work.moved_bytes, work.speed) for work in works)
    power_w = device.watts(sum(work.flops for work in works), duration_s)
    return Implementation(duration_s, workspace_bytes, name, power_w)
