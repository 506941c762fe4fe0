"""The algorithms of a convolution: which apply, what they need, and which is fast where; and the devices below them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gapless.profiles.devices import Device, device_names, named_device
from gapless.profiles.training.costs import (
    Convolution,
    convolution_implementations,
    depthwise_implementation,
    parameter_gradient_implementations,
)
from gapless.profiles.training.graph import Implementation

P100 = named_device("p100")
DIRECT = ["implicit-precomp-gemm", "implicit-gemm", "gemm"]


def square(channels: int, side: int, kernel: int, stride: int = 1, batch: int = 64, groups: int = 1) -> Convolution:
    extent = (side // stride,) * 2
    return Convolution(batch, channels, channels, (side, side), extent, (kernel,) * 2, (stride,) * 2, groups)


def by_name(shape: Convolution) -> dict[str, Implementation]:
    return {impl.name: impl for impl in convolution_implementations(shape, P100)}


@pytest.mark.parametrize(
    ("shape", "names"),
    [
        (square(64, 56, 3), [*DIRECT, "winograd", "winograd-nonfused", "fft"]),
        (square(64, 56, 5), [*DIRECT, "fft"]),
        (square(64, 56, 1), DIRECT),
        (square(64, 56, 3, stride=2), DIRECT),
        (square(64, 56, 3, groups=2), DIRECT),
        (Convolution(2, 8, 8, (4, 4, 4), (4, 4, 4), (3, 3, 3), (1, 1, 1), 1), DIRECT),
    ],
)
def test_only_algorithms_that_apply_are_offered(shape: Convolution, names: list[str]) -> None:
    assert [impl.name for impl in convolution_implementations(shape, P100)] == names
    assert [impl.name for impl in parameter_gradient_implementations(shape, P100)] == [
        name for name in names if name not in ("gemm", "winograd")
    ]


def test_workspaces_from_none_to_more_than_the_tensors() -> None:
    shape = square(512, 28, 3, batch=176)
    workspace_mib = {name: impl.workspace_bytes / 2**20 for name, impl in by_name(shape).items()}
    assert workspace_mib["implicit-gemm"] == 0
    assert 0 < workspace_mib["implicit-precomp-gemm"] < 0.01
    # im2col is 9 times the input; a transform has 36 places for 16; spectra are those of 32 x 32 places.
    assert workspace_mib["gemm"] == pytest.approx(9 * 269.5)
    assert workspace_mib["winograd"] == 16
    assert workspace_mib["winograd-nonfused"] == pytest.approx(2 * 269.5 * 36 / 16 + 36)
    assert workspace_mib["fft"] == pytest.approx(1836, abs=0.5)


def test_transforms_pay_off_with_many_channels_only() -> None:
    wide, narrow = by_name(square(512, 28, 3)), by_name(square(8, 28, 3))
    assert min(wide.values(), key=lambda impl: impl.duration_s).name == "winograd-nonfused"
    assert wide["winograd"].duration_s < wide["implicit-precomp-gemm"].duration_s < wide["implicit-gemm"].duration_s
    assert narrow["implicit-precomp-gemm"].duration_s < narrow["winograd-nonfused"].duration_s


def test_depthwise_work_is_that_of_one_channel_each() -> None:
    shape = square(32, 56, 3, groups=32)
    assert shape.depthwise
    assert shape.flops == 2 * 9 * 64 * 32 * 56 * 56
    one, two = (depthwise_implementation(shape, P100, passes).duration_s - P100.launch_s for passes in (1, 2))
    assert two == pytest.approx(2 * one)


def test_devices_are_ordered_and_sensible() -> None:
    devices = [named_device(name) for name in device_names()]
    assert [device.name for device in devices] == ["p100", "v100", "a100", "h100"]
    for slower, faster in pairwise(devices):
        assert slower.flops_per_s < faster.flops_per_s
        assert slower.bytes_per_s < faster.bytes_per_s
        assert slower.memory_bytes <= faster.memory_bytes
    assert all(device.idle_w < device.busy_w for device in devices)


def test_time_is_the_larger_of_arithmetic_and_traffic_and_the_launch() -> None:
    device = Device("toy", 100.0, 10.0, 1, launch_s=1.0, idle_w=50, busy_w=250)
    assert device.seconds(0, 0) == 1
    assert device.seconds(150, 7) == pytest.approx(3)  # 150 / (0.75 * 100)
    assert device.seconds(150, 7, speed=0.5) == pytest.approx(5)
    assert device.seconds(150, 70) == pytest.approx(11)  # 70 / (0.7 * 10)


def test_power_lies_between_idle_and_busy_and_grows_with_arithmetic() -> None:
    device = Device("toy", 100.0, 10.0, 1, launch_s=1.0, idle_w=50, busy_w=250)
    assert device.watts(0, 2) == 150
    assert device.watts(150, 4) == 200
    assert device.watts(150, 2) == device.watts(1e9, 1) == 250
