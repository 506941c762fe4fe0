"""Normalisations: statistics over a set of elements, then a scale and a shift.

Their backward passes need the input, or the output, from which scale and shift are undone (in-place activated
normalisation). The statistics are small and kept; a recomputation uses them again and saves a pass over the input.
"""

from __future__ import annotations

import math

from gapless.profiles.training.building import BackwardStep, Layer, NetworkBuilder, Value
from gapless.profiles.training.costs import FLOAT_BYTES, Work

__all__ = ["batch_norm", "group_norm", "layer_norm"]

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
