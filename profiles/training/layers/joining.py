"""Layers that join or reshape values: their backward passes need no forward tensor."""

from __future__ import annotations

import math

from gapless.errors import InputError
from gapless.profiles.training.building import BackwardStep, Layer, NetworkBuilder, Value
from gapless.profiles.training.costs import Work

__all__ = ["add", "cat", "first_position", "flatten"]


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
