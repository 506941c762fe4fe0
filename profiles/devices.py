"""Devices: the few public numbers from which an operator's running time and power draw are estimated."""

from __future__ import annotations

from dataclasses import dataclass

from gapless.io.record import check_known

__all__ = [
    "ARITHMETIC_EFFICIENCY",
    "BANDWIDTH_EFFICIENCY",
    "HALF_EFFICIENCY",
    "Device",
    "device_names",
    "named_device",
]

ARITHMETIC_EFFICIENCY = 0.75
"""Share of the peak arithmetic rate that a well-shaped dense product reaches."""

BANDWIDTH_EFFICIENCY = 0.7
"""Share of the peak memory bandwidth that an element-wise kernel reaches."""

HALF_EFFICIENCY = 0.6
"""Share of the peak half-precision rate that a dense product reaches; an assumption. A transformer layer with its
element-wise kernels is then at 35 to 41 % of an A100's peak, where Megatron-LM reports 44 to 52 % for whole steps of
larger models (Narayanan et al., SC 2021, table 1)."""


@dataclass(frozen=True)
class Device:
    """An accelerator. `flops_per_s`: peak fp32 rate of the vector units, without tensor cores.

    `idle_w`, `busy_w`: power draw at rest, and the board power that the data sheet names. `half_flops_per_s`: peak rate
    of half-precision products, of the tensor cores where there are some; 0 where it is not known.
    """

    name: str
    flops_per_s: float
    bytes_per_s: float
    memory_bytes: int
    launch_s: float
    idle_w: float
    busy_w: float
    half_flops_per_s: float = 0.0

    def seconds(self, flops: float, moved_bytes: float, speed: float = 1.0) -> float:
        """Time of one kernel: arithmetic and memory traffic overlap, the launch comes first.

        `speed`: how fast the kernel computes, relative to a well-shaped dense product.
        """
        arithmetic_s = flops / (ARITHMETIC_EFFICIENCY * speed * self.flops_per_s)
        traffic_s = moved_bytes / (BANDWIDTH_EFFICIENCY * self.bytes_per_s)
        return max(arithmetic_s, traffic_s) + self.launch_s

    def watts(self, flops: float, duration_s: float) -> float:
        """Mean power draw of a kernel: half of the range above idle for being busy, half by its arithmetic.

        A kernel bound by memory draws clearly less than one bound by arithmetic; the even split is an assumption.
        """
        if duration_s <= 0:
            return self.idle_w
        share = flops / (ARITHMETIC_EFFICIENCY * self.flops_per_s * duration_s)
        return self.idle_w + (self.busy_w - self.idle_w) * (0.5 + 0.5 * min(share, 1.0))


_GIB = 2**30

# Peak fp32 rate, bandwidth, capacity and board power (`busy_w`) are NVIDIA's data sheets': Tesla P100 PCIe 16 GB, Tesla
# V100 SXM2 16 GB, A100 SXM4 40 GB, H100 SXM5 80 GB; so are the half-precision rates without sparsity (the
# P100's is that of its SXM2). Idle power and launch time are on no data sheet: round values as users commonly report.
_DEVICES = {
    device.name: device
    for device in (
        Device("p100", 9.3e12, 732e9, 16 * _GIB, launch_s=5e-6, idle_w=30, busy_w=250, half_flops_per_s=21.2e12),
        Device("v100", 15.7e12, 900e9, 16 * _GIB, launch_s=4e-6, idle_w=40, busy_w=300, half_flops_per_s=125e12),
        Device("a100", 19.5e12, 1555e9, 40 * _GIB, launch_s=3e-6, idle_w=50, busy_w=400, half_flops_per_s=312e12),
        Device("h100", 66.9e12, 3350e9, 80 * _GIB, launch_s=3e-6, idle_w=70, busy_w=700, half_flops_per_s=989e12),
    )
}


def device_names() -> list[str]:
    """The devices that gapless knows, slowest first."""
    return list(_DEVICES)


def named_device(name: str) -> Device:
    """A device by name. Raises `InputError` for an unknown one."""
    check_known("device", name, _DEVICES)
    return _DEVICES[name]
