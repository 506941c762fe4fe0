"""Layers that multiply: convolutions, linear layers, products of two activations, and table look-ups."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gapless.errors import InputError
from gapless.profiles.training.builder import BackwardStep, Layer, NetworkBuilder, Value
from gapless.profiles.training.costs import (
    FLOAT_BYTES,
    Convolution,
    Work,
    convolution_implementations,
    depthwise_implementation,
    parameter_gradient_implementations,
)
from gapless.profiles.training.graph import Implementation
from gapless.profiles.training.layers.shapes import per_axis, window_extent

__all__ = ["conv", "conv_transpose", "embedding", "linear", "matmul"]


def conv(
    net: NetworkBuilder,
    x: Value,
    channels: int,
    kernel: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    groups: int = 1,
    bias: bool = False,
) -> Value:
    """A convolution over the axes behind batch and channels.

    Its algorithm is chosen at every run. Backward is a parameter gradient, from the input, then an input gradient; both
    in one for a depthwise convolution.
    """
    axes = len(x.shape) - 2
    width, step, margin = (per_axis(value, axes) for value in (kernel, stride, padding))
    extent = window_extent(x.shape[2:], width, step, margin)
    if x.shape[1] % groups or channels % groups:
        raise InputError(
            f"network {net.name!r}: conv: groups must divide {x.shape[1]} and {channels} channels, got {groups}"
        )
    shape = Convolution(x.shape[0], x.shape[1], channels, x.shape[2:], extent, width, step, groups)
    parameter_bytes = FLOAT_BYTES * (shape.weights + channels * bias)
    forward, steps = _convolution_parts(net, shape, x.gradient_bytes, parameter_bytes)
    out = (x.shape[0], channels, *extent)
    gradients = _bias_first(channels * bias, (channels, x.shape[1] // groups, *width))
    return net.add(Layer("convolution", out, forward, steps, parameter_bytes=parameter_bytes, gradients=gradients), x)


def conv_transpose(net: NetworkBuilder, x: Value, channels: int, kernel: int | Sequence[int]) -> Value:
    """A convolution run backwards, with a bias, whose stride is its kernel: each element becomes a block of them."""
    axes = len(x.shape) - 2
    width = per_axis(kernel, axes)
    extent = tuple(size * factor for size, factor in zip(x.shape[2:], width, strict=True))
    # Seen as the convolution from the output to the input, whose input gradient it is.
    shape = Convolution(x.shape[0], channels, x.shape[1], extent, x.shape[2:], width, width, 1)
    parameter_bytes = FLOAT_BYTES * (shape.weights + channels)
    forward, steps = _convolution_parts(net, shape, x.gradient_bytes, parameter_bytes)
    out = (x.shape[0], channels, *extent)
    gradients = _bias_first(channels, (x.shape[1], channels, *width))
    return net.add(
        Layer("conv_transpose", out, forward, steps, parameter_bytes=parameter_bytes, gradients=gradients), x
    )


def linear(net: NetworkBuilder, x: Value, features: int, bias: bool = True, tied: bool = False) -> Value:
    """A linear map of the last axis. `tied`: it shares its weights with an embedding, which counts them."""
    rows, inner = math.prod(x.shape[:-1]), x.shape[-1]
    weight_bytes = FLOAT_BYTES * inner * features
    gradient_bytes = weight_bytes + FLOAT_BYTES * features * bias
    out = (*x.shape[:-1], features)
    impl = net.implementation(_product(rows, inner, features))
    steps = (
        BackwardStep("param_grad", 0, from_input=impl, parameter_bytes=gradient_bytes),
        BackwardStep("ip_grad", x.gradient_bytes, from_nothing=_input_gradient(net, x, impl)),
    )
    parameter_bytes = gradient_bytes - weight_bytes * tied
    gradients = _bias_first(features * bias, (features, inner))
    return net.add(Layer("addmm", out, impl, steps, parameter_bytes=parameter_bytes, gradients=gradients), x)


def matmul(net: NetworkBuilder, left: Value, right: Value, transposed: bool = False) -> Value:
    """The product of two activations over their last two axes, as in attention; `transposed`: of the right one.

    Backward makes both gradients at once and needs both inputs.
    """
    inner = left.shape[-1]
    rows, columns = left.shape[-2], right.shape[-2 if transposed else -1]
    if left.shape[:-2] != right.shape[:-2] or right.shape[-1 if transposed else -2] != inner:
        raise InputError(f"network {net.name!r}: matmul: shapes must fit, got {left.shape} and {right.shape}")
    stack = math.prod(left.shape[:-2])
    work = _product(rows, inner, columns, stack)
    step = BackwardStep("ip_grad", left.size_bytes + right.size_bytes, from_input=net.implementation(work, work))
    return net.add(Layer("matmul", (*left.shape[:-1], columns), net.implementation(work), (step,)), left, right)


def embedding(net: NetworkBuilder, x: Value, rows: int, features: int, tied: bool = False) -> Value:
    """Rows of a table, one for each integer of `x`. `tied`: a linear layer shares the table and counts its gradient.

    Backward adds the gradient into a dense table; a tied one makes it beside the gradient that is there, then adds.
    """
    shape = (*x.shape, features)
    table_bytes, size_bytes = FLOAT_BYTES * rows * features, FLOAT_BYTES * math.prod(shape)
    look_up = net.implementation(Work(moved_bytes=2 * size_bytes))
    scatter = Work(math.prod(shape), table_bytes + 3 * size_bytes)
    works = [scatter, Work(rows * features, 3 * table_bytes)] if tied else [scatter]
    backward = net.implementation(*works, workspace_bytes=table_bytes * tied)
    gradient_bytes = 0 if tied else table_bytes
    step = BackwardStep("param_grad", 0, from_nothing=backward, parameter_bytes=gradient_bytes)
    gradients = (("weight", (0 if tied else rows, features)),)
    return net.add(Layer("embedding", shape, look_up, (step,), parameter_bytes=table_bytes, gradients=gradients), x)


def _bias_first(bias: int, weight: tuple[int, ...]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The gradients of a layer with weights and perhaps a bias, which frameworks hand over first."""
    return (("bias", (bias,)), ("weight", weight)) if bias else (("weight", weight),)


def _convolution_parts(
    net: NetworkBuilder, shape: Convolution, gradient_bytes: int, parameter_bytes: int
) -> tuple[tuple[Implementation, ...], tuple[BackwardStep, ...]]:
    if shape.depthwise:
        both = (depthwise_implementation(shape, net.device, passes=2),)
        step = BackwardStep("ip_grad", gradient_bytes, from_input=both, parameter_bytes=parameter_bytes)
        return (depthwise_implementation(shape, net.device),), (step,)
    impls = convolution_implementations(shape, net.device)
    gradient_implementations = impls if gradient_bytes else (Implementation(0.0, power_w=net.device.idle_w),)
    return impls, (
        BackwardStep(
            "param_grad",
            0,
            from_input=parameter_gradient_implementations(shape, net.device),
            parameter_bytes=parameter_bytes,
        ),
        BackwardStep("ip_grad", gradient_bytes, from_nothing=gradient_implementations),
    )


def _input_gradient(net: NetworkBuilder, x: Value, impl: tuple[Implementation, ...]) -> tuple[Implementation, ...]:
    """An input of the network needs no gradient; the empty step is kept, as in the reference."""
    return impl if x.node is not None else (Implementation(0.0, power_w=net.device.idle_w),)


def _product(rows: int, inner: int, columns: int, stack: int = 1) -> Work:
    elements = rows * inner + inner * columns + rows * columns
    return Work(2.0 * stack * rows * inner * columns, FLOAT_BYTES * stack * elements)
