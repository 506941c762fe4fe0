"""Layers that change a shape: pooling and upsampling, and joins and views whose backward needs no forward tensor."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gapless.errors import InputError
from gapless.profiles.training.builder import BackwardStep, Layer, NetworkBuilder, SideOutput, Value
from gapless.profiles.training.costs import Work

__all__ = [
    "adaptive_avg_pool",
    "add",
    "avg_pool",
    "cat",
    "first_position",
    "flatten",
    "max_pool",
    "per_axis",
    "upsample",
]

_INDEX_BYTES = 8
"""Frameworks write the positions of the maxima as 64-bit integers."""

_SCATTER = 8
"""Lone 4-byte writes to scattered places move whole sectors of 32 bytes."""


def per_axis(value: int | Sequence[int], axes: int) -> tuple[int, ...]:
    """A number for each axis, from one for all of them or from one each."""
    return (value,) * axes if isinstance(value, int) else tuple(value)


def window_extent(
    extent: Sequence[int], kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], ceil: bool = False
) -> tuple[int, ...]:
    """Positions of a sliding window along each axis; `ceil` also counts a last one that hangs over the edge."""
    sizes = []
    for size, width, step, margin in zip(extent, kernel, stride, padding, strict=True):
        span = size + 2 * margin - width
        count = (-(-span // step) if ceil else span // step) + 1
        if ceil and (count - 1) * step >= size + margin:
            count -= 1  # a window must start inside the input or its left margin
        sizes.append(count)
    return tuple(sizes)


def max_pool(
    net: NetworkBuilder,
    x: Value,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] | None = None,
    padding: int | Sequence[int] = 0,
    ceil: bool = False,
) -> Value:
    """The largest element of each window. Backward needs the input, or the positions packed to four bits each."""
    axes = len(x.shape) - 2
    windows = per_axis(kernel, axes)
    extent = window_extent(
        x.shape[2:], windows, windows if stride is None else per_axis(stride, axes), per_axis(padding, axes), ceil
    )
    shape = (*x.shape[:2], *extent)
    count = math.prod(shape)
    out_bytes, index_bytes, packed_bytes = 4 * count, _INDEX_BYTES * count, (count + 1) // 2
    find = Work(count * math.prod(windows), x.size_bytes + out_bytes + index_bytes)
    scatter = Work(count, x.size_bytes + out_bytes + 2 * _SCATTER * 4 * count)
    side = SideOutput(
        "max_pool_packed_indices",
        packed_bytes,
        *net.implementation(Work(count, index_bytes + packed_bytes), workspace_bytes=count),
        *net.implementation(scatter, Work(count, packed_bytes), workspace_bytes=packed_bytes),
    )
    from_input = net.implementation(find, scatter, workspace_bytes=index_bytes)
    step = BackwardStep("ip_grad", x.gradient_bytes, from_input=from_input)
    forward = net.implementation(find, workspace_bytes=index_bytes)
    return net.add(Layer("max_pool", shape, forward, (step,), side=side), x)


def avg_pool(
    net: NetworkBuilder, x: Value, kernel: int | Sequence[int], stride: int | Sequence[int] | None = None
) -> Value:
    """The mean of each window. Backward needs no forward tensor."""
    axes = len(x.shape) - 2
    windows = per_axis(kernel, axes)
    steps = windows if stride is None else per_axis(stride, axes)
    return _resample(net, x, "avg_pool", window_extent(x.shape[2:], windows, steps, (0,) * axes))


def adaptive_avg_pool(net: NetworkBuilder, x: Value, extent: int | Sequence[int]) -> Value:
    """Means over as many windows as the output has places; to a larger extent it repeats elements."""
    return _resample(net, x, "adaptive_avg_pool", per_axis(extent, len(x.shape) - 2))


def upsample(net: NetworkBuilder, x: Value, extent: int | Sequence[int]) -> Value:
    """The nearest element for each place of a larger extent."""
    return _resample(net, x, "upsample", per_axis(extent, len(x.shape) - 2))


def _resample(net: NetworkBuilder, x: Value, op: str, extent: tuple[int, ...]) -> Value:
    shape = (*x.shape[:2], *extent)
    work = Work(max(x.elements, math.prod(shape)), x.size_bytes + 4 * math.prod(shape))
    step = BackwardStep("ip_grad", x.gradient_bytes, from_nothing=net.implementation(work))
    return net.add(Layer(op, shape, net.implementation(work), (step,)), x)


def add(net: NetworkBuilder, *values: Value) -> Value:
    """The sum of values of one shape. Backward hands the gradient to each, one of them over the incoming gradient."""
    shape = values[0].shape
    for value in values:
        if value.shape != shape:
            raise InputError(f"network {net.name!r}: add: shapes must be equal, got {shape} and {value.shape}")
    size_bytes = values[0].size_bytes
    forward = Work((len(values) - 1) * values[0].elements, (len(values) + 1) * size_bytes)
    backward = net.implementation(Work(moved_bytes=2 * (len(values) - 1) * size_bytes), workspace_bytes=-size_bytes)
    step = BackwardStep("ip_grad", len(values) * size_bytes, from_nothing=backward)
    return net.add(Layer("add", shape, net.implementation(forward), (step,)), *values)


def cat(net: NetworkBuilder, *values: Value) -> Value:
    """Values side by side along the channels, the second axis. Backward copies the parts of the gradient."""
    first = values[0].shape
    for value in values:
        if value.shape[0] != first[0] or value.shape[2:] != first[2:]:
            raise InputError(
                f"network {net.name!r}: cat: shapes must be equal but for the channels, got {first} and {value.shape}"
            )
    shape = (first[0], sum(value.shape[1] for value in values), *first[2:])
    size_bytes = sum(value.size_bytes for value in values)
    impl = net.implementation(Work(moved_bytes=2 * size_bytes))
    return net.add(Layer("cat", shape, impl, (BackwardStep("ip_grad", size_bytes, from_nothing=impl),)), *values)


def flatten(net: NetworkBuilder, x: Value) -> Value:
    """All axes but the batch as one: a view, whose bytes are the input's."""
    shape = (x.shape[0], math.prod(x.shape[1:]))
    view = net.implementation(workspace_bytes=-x.size_bytes)
    return net.add(Layer("flatten", shape, view, (BackwardStep("ip_grad", x.size_bytes, from_nothing=view),)), x)


def first_position(net: NetworkBuilder, x: Value) -> Value:
    """The first place along the second axis. Backward fills the other places of the gradient with zeros."""
    shape = (x.shape[0], *x.shape[2:])
    size_bytes = x.size_bytes // x.shape[1]
    step = BackwardStep(
        "ip_grad", x.size_bytes, from_nothing=net.implementation(Work(moved_bytes=x.size_bytes + size_bytes))
    )
    return net.add(Layer("select", shape, net.implementation(Work(moved_bytes=2 * size_bytes)), (step,)), x)
