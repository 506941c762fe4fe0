"""Networks of equal blocks in any number, far larger than the built-in ones: how does a solve's work grow?"""

from __future__ import annotations

from gapless.profiles.devices import named_device
from gapless.profiles.training import layers
from gapless.profiles.training.builder import BackwardStep, Layer, NetworkBuilder, Value
from gapless.profiles.training.costs import FLOAT_BYTES, Work
from gapless.profiles.training.graph import TrainingGraph
from gapless.profiles.training.networks import transformers

__all__ = ["diffusion_unet", "lstm", "operators", "transformer"]

_TRANSFORMER_BATCH, _TOKENS, _FEATURES = 8, 512, 768
_LSTM_BATCH, _HIDDEN = 256, 1024
_UNET_BATCH, _SIDE, _CHANNELS, _LEVELS, _GROUPS = 32, 64, 128, 4, 32


def operators(graph: TrainingGraph) -> int:
    """Nodes of both passes."""
    return len(graph.forward) + len(graph.backward)


def transformer(blocks: int) -> TrainingGraph:
    """GPT's blocks without the tables at both ends."""
    net = NetworkBuilder(f"transformer of {blocks} layers", _TRANSFORMER_BATCH, named_device("p100"))
    x = layers.linear(net, net.input(_TOKENS, _FEATURES), _FEATURES)
    for number in range(blocks):
        x = transformers.gpt2_block(net, x, f"h.{number}")
    return net.build(layers.layer_norm(net, x))


def lstm(steps: int) -> TrainingGraph:
    """Cells of one LSTM, operator by operator as autograd records them, with a loss on every output."""
    net = NetworkBuilder(f"LSTM of {steps} steps", _LSTM_BATCH, named_device("p100"))
    hidden = layers.linear(net, net.input(_HIDDEN), _HIDDEN)
    cell, outputs = layers.tanh(net, hidden), list[Value]()
    for step in range(steps):
        of_both = (_shared_linear(net, x, step == 0, step == steps - 1) for x in (net.input(_HIDDEN), hidden))
        gates = layers.add(net, *of_both)
        into, forget, out, new = (_activated(net, gates) for _ in range(4))
        cell = layers.add(net, _product(net, forget, cell), _product(net, into, new))
        hidden = _product(net, out, layers.tanh(net, cell))
        outputs.append(hidden)
    return net.build(*outputs)


def diffusion_unet(blocks: int) -> TrainingGraph:
    """Residual blocks with the embedding of a time, `blocks` at each level on the way down and on the way up.

    The two lower levels have attention behind each block; what a block on the way down makes is read on the way up.
    """
    net = NetworkBuilder(f"diffusion UNet of {blocks} blocks a level", _UNET_BATCH, named_device("p100"))
    time = layers.gelu(net, layers.linear(net, net.input(_CHANNELS), 4 * _CHANNELS))
    x = layers.conv(net, net.input(3, _SIDE, _SIDE), _CHANNELS, 3, padding=1)
    skips = list[Value]()
    for level in range(_LEVELS):
        for _ in range(blocks):
            x = _stage(net, x, time, level)
            skips.append(x)
        if level < _LEVELS - 1:
            x = layers.conv(net, x, _width(level), 3, stride=2, padding=1)
    for level in reversed(range(_LEVELS)):
        for _ in range(blocks):
            x = _stage(net, layers.cat(net, x, skips.pop()), time, level)
        if level:
            x = layers.conv(net, layers.upsample(net, x, _SIDE >> (level - 1)), _width(level), 3, padding=1)
    x = layers.gelu(net, layers.group_norm(net, x, _GROUPS))
    return net.build(layers.conv(net, x, 3, 3, padding=1))


def _shared_linear(net: NetworkBuilder, x: Value, is_first: bool, is_last: bool) -> Value:
    """A linear map to the gates by weights of all cells, whose gradients are added to those of the last cell."""
    weight_bytes = FLOAT_BYTES * 4 * _HIDDEN * _HIDDEN
    out = (x.shape[0], 4 * _HIDDEN)
    work = Work(2.0 * x.elements * 4 * _HIDDEN, weight_bytes + 5 * x.size_bytes)
    gradient_bytes, workspace_bytes = (weight_bytes, 0) if is_last else (0, weight_bytes)
    of_weights = net.implementation(work, workspace_bytes=workspace_bytes)
    of_input = net.implementation(work if x.node is not None else Work())
    steps = (
        BackwardStep("param_grad", 0, from_input=of_weights, parameter_bytes=gradient_bytes),
        BackwardStep("ip_grad", x.gradient_bytes, from_nothing=of_input),
    )
    parameter_bytes = weight_bytes if is_first else 0
    return net.add(Layer("addmm", out, net.implementation(work), steps, parameter_bytes=parameter_bytes), x)


def _activated(net: NetworkBuilder, gates: Value) -> Value:
    """A sigmoid or a hyperbolic tangent of a quarter of the gates; backward needs the output."""
    quarter = Value(gates.node, (gates.shape[0], gates.shape[1] // 4))
    return layers.tanh(net, quarter)


def _product(net: NetworkBuilder, left: Value, right: Value) -> Value:
    """Element by element; backward needs both inputs and makes both gradients."""
    forward = net.implementation(Work(left.elements, 3 * left.size_bytes))
    backward = net.implementation(Work(2 * left.elements, 5 * left.size_bytes))
    step = BackwardStep("ip_grad", 2 * left.size_bytes, from_input=backward)
    return net.add(Layer("mul", left.shape, forward, (step,)), left, right)


def _width(level: int) -> int:
    return _CHANNELS * min(level + 1, 4)


def _stage(net: NetworkBuilder, x: Value, time: Value, level: int) -> Value:
    x = _residual(net, x, time, _width(level))
    return _attention(net, x) if level >= _LEVELS - 2 else x


def _residual(net: NetworkBuilder, x: Value, time: Value, channels: int) -> Value:
    out = layers.conv(net, layers.gelu(net, layers.group_norm(net, x, _GROUPS)), channels, 3, padding=1)
    shift = layers.linear(net, time, channels)
    out = _shifted(net, out, shift)
    out = layers.dropout(net, layers.gelu(net, layers.group_norm(net, out, _GROUPS)), keep_mask=True)
    out = layers.conv(net, out, channels, 3, padding=1)
    return layers.add(net, out, x if x.shape[1] == channels else layers.conv(net, x, channels, 1))


def _shifted(net: NetworkBuilder, x: Value, shift: Value) -> Value:
    """A number for each channel is added; backward needs nothing and sums up the gradient of the numbers."""
    forward = net.implementation(Work(x.elements, 2 * x.size_bytes + shift.size_bytes))
    backward = net.implementation(Work(x.elements, 2 * x.size_bytes + shift.size_bytes))
    step = BackwardStep("ip_grad", x.gradient_bytes + shift.gradient_bytes, from_nothing=backward)
    return net.add(Layer("shift", x.shape, forward, (step,)), x, shift)


def _attention(net: NetworkBuilder, x: Value) -> Value:
    batch, channels, *sides = x.shape
    places = sides[0] * sides[1]
    normed = layers.group_norm(net, x, _GROUPS).viewed(batch, places, channels)
    query, key, value = (layers.linear(net, normed, channels) for _ in range(3))
    weights = layers.softmax(net, layers.matmul(net, query, key, transposed=True))
    mixed = layers.linear(net, layers.matmul(net, weights, value), channels)
    return layers.add(net, x, mixed.viewed(batch, channels, *sides))
