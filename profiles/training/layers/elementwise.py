"""Layers that work element by element, bound by memory traffic: activations, dropout, normalisations.

The backward pass of a normalisation needs the input, or the output, from which scale and shift are undone (in-place
activated normalisation). Its statistics are small and kept; a recomputation uses them again and saves a pass.
"""

from __future__ import annotations

import math

from gapless.profiles.training.builder import BackwardStep, Layer, NetworkBuilder, SideOutput, Value
from gapless.profiles.training.costs import FLOAT_BYTES, Work

__all__ = ["batch_norm", "dropout", "gelu", "group_norm", "hardtanh", "layer_norm", "relu", "softmax", "tanh"]

_TRANSCENDENTAL_FLOPS = 10
_SOFTMAX_FLOPS = 5


def relu(net: NetworkBuilder, x: Value) -> Value:
    """max(x, 0). Backward needs the input, the output, or one bit an element; it runs over the incoming gradient."""
    size_bytes, bits_bytes = x.size_bytes, (x.elements + 7) // 8
    mask_bytes = x.elements  # comparisons make a byte an element, which are then packed
    pointwise, masked = Work(x.elements, 2 * size_bytes), Work(x.elements, 3 * size_bytes)
    from_bits = Work(x.elements, 2 * size_bytes + bits_bytes + 2 * mask_bytes)
    side = SideOutput(
        "relu_sign_bits",
        bits_bytes,
        *net.implementation(Work(x.elements, size_bytes + bits_bytes + 2 * mask_bytes), workspace_bytes=mask_bytes),
        *net.implementation(from_bits, workspace_bytes=mask_bytes - size_bytes),
    )
    impl = net.implementation(masked, workspace_bytes=-size_bytes)
    step = BackwardStep("ip_grad", x.gradient_bytes, from_input=impl, from_output=impl)
    in_place = net.implementation(pointwise, workspace_bytes=-size_bytes)
    return net.add(Layer("relu", x.shape, net.implementation(pointwise), (step,), in_place=in_place, side=side), x)


def hardtanh(net: NetworkBuilder, x: Value) -> Value:
    """x clipped to a range (ReLU6 is one). Backward needs the input or the output."""
    pointwise, masked = Work(2 * x.elements, 2 * x.size_bytes), Work(x.elements, 3 * x.size_bytes)
    step = BackwardStep(
        "ip_grad", x.gradient_bytes, from_input=net.implementation(masked), from_output=net.implementation(masked)
    )
    in_place = net.implementation(pointwise, workspace_bytes=-x.size_bytes)
    return net.add(Layer("hardtanh", x.shape, net.implementation(pointwise), (step,), in_place=in_place), x)


def gelu(net: NetworkBuilder, x: Value) -> Value:
    """x times the Gaussian distribution function. It has no inverse, so backward needs the input."""
    flops = _TRANSCENDENTAL_FLOPS * x.elements
    step = BackwardStep("ip_grad", x.gradient_bytes, from_input=net.implementation(Work(2 * flops, 3 * x.size_bytes)))
    return net.add(Layer("gelu", x.shape, net.implementation(Work(flops, 2 * x.size_bytes)), (step,)), x)


def softmax(net: NetworkBuilder, x: Value) -> Value:
    """Softmax over the last axis; the scaling of attention scores is part of it. Backward needs the output."""
    flops = _SOFTMAX_FLOPS * x.elements
    step = BackwardStep("ip_grad", x.gradient_bytes, from_output=net.implementation(Work(flops, 3 * x.size_bytes)))
    return net.add(Layer("softmax", x.shape, net.implementation(Work(flops, 2 * x.size_bytes)), (step,)), x)


def tanh(net: NetworkBuilder, x: Value) -> Value:
    """The hyperbolic tangent. Backward needs the output."""
    flops = _TRANSCENDENTAL_FLOPS * x.elements
    step = BackwardStep(
        "ip_grad", x.gradient_bytes, from_output=net.implementation(Work(2 * x.elements, 3 * x.size_bytes))
    )
    return net.add(Layer("tanh", x.shape, net.implementation(Work(flops, 2 * x.size_bytes)), (step,)), x)


def dropout(net: NetworkBuilder, x: Value, keep_mask: bool = False) -> Value:
    """Zero elements at random. Backward sees the zeros in the output, or has a mask of one bit an element.

    A zero of the input is taken for a dropped element, which is right behind a ReLU, whose gradient there is zero too.
    `keep_mask` offers the mask, as the reference doesn't.
    """
    mask_bytes, bits_bytes = x.elements, (x.elements + 7) // 8
    forward = net.implementation(Work(2 * x.elements, 2 * x.size_bytes + mask_bytes), workspace_bytes=mask_bytes)
    from_output = net.implementation(Work(x.elements, 3 * x.size_bytes))
    side = None
    if keep_mask:
        side = SideOutput(
            "dropout_mask_bits",
            bits_bytes,
            *net.implementation(Work(x.elements, x.size_bytes + bits_bytes)),
            *net.implementation(Work(x.elements, 2 * x.size_bytes + bits_bytes)),
        )
    step = BackwardStep("ip_grad", x.gradient_bytes, from_output=from_output)
    return net.add(Layer("dropout", x.shape, forward, (step,), side=side), x)


_FLOPS = 8


def batch_norm(net: NetworkBuilder, x: Value) -> Value:
    """Per channel over batch and space; running mean and variance live beside scale and shift."""
    channels = x.shape[1]
    return _normalise(net, x, "batch_norm", channels, running=2 * channels, statistics=channels)


def layer_norm(net: NetworkBuilder, x: Value) -> Value:
    """Per position over the last axis."""
    return _normalise(net, x, "layer_norm", x.shape[-1], running=0, statistics=math.prod(x.shape[:-1]))


def group_norm(net: NetworkBuilder, x: Value, groups: int) -> Value:
    """Per image over groups of channels; one group where there are fewer channels than groups."""
    channels = x.shape[1]
    statistics = x.shape[0] * (groups if channels >= groups else 1)
    return _normalise(net, x, "group_norm", channels, running=0, statistics=statistics)


def _normalise(net: NetworkBuilder, x: Value, op: str, channels: int, running: int, statistics: int) -> Value:
    """`channels`: number of scales and of shifts; `running`: other state; `statistics`: number of means."""
    flops, size_bytes = _FLOPS * x.elements, x.size_bytes
    workspace_bytes = 2 * FLOAT_BYTES * statistics
    forward = net.implementation(Work(flops, 3 * size_bytes), workspace_bytes=workspace_bytes)
    again = net.implementation(Work(flops, 2 * size_bytes))
    # Two passes over input and gradient: the sums, then the result.
    backward = net.implementation(Work(2 * flops, 5 * size_bytes))
    step = BackwardStep(
        "ip_grad",
        x.gradient_bytes,
        from_input=backward,
        from_output=backward,
        parameter_bytes=2 * FLOAT_BYTES * channels,
    )
    parameter_bytes = FLOAT_BYTES * (2 * channels + running)
    gradients = tuple((part, (channels,)) for part in ("weight", "bias"))
    layer = Layer(op, x.shape, forward, (step,), again=again, parameter_bytes=parameter_bytes, gradients=gradients)
    return net.add(layer, x)
