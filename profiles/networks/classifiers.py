"""Image classifiers as their authors and torchvision lay them out: ResNet-50, VGG-16, MobileNet-V2."""

from __future__ import annotations

from planwright.profiles import layers
from planwright.profiles.building import NetworkBuilder, Value

__all__ = ["mobilenet_v2", "resnet50", "vgg16"]

_CLASSES = 1000

_VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3 x 3 convolutions, each stage closed by a pooling."""

_RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
"""Width of the bottleneck, number of blocks, stride of the first."""

_RESNET_EXPANSION = 4

_MOBILENET_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, number of blocks, stride of the first."""


def vgg16(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """VGG-16 without batch normalisation."""
    x = net.input(3, *size)
    for channels, count in _VGG16_STAGES:
        for _ in range(count):
            x = layers.relu(net, layers.conv(net, x, channels, 3, padding=1, bias=True))
        x = layers.max_pool(net, x, 2)
    x = layers.flatten(net, layers.adaptive_avg_pool(net, x, 7))
    for _ in range(2):
        x = layers.dropout(net, layers.relu(net, layers.linear(net, x, 4096)))
    return [layers.linear(net, x, _CLASSES)]


def resnet50(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """ResNet-50 with the stride in the 3 x 3 convolution of a bottleneck."""
    x = layers.conv(net, net.input(3, *size), 64, 7, stride=2, padding=3)
    x = layers.relu(net, layers.batch_norm(net, x))
    x = layers.max_pool(net, x, 3, stride=2, padding=1)
    for width, count, stride in _RESNET50_STAGES:
        for number in range(count):
            x = _bottleneck(net, x, width, stride if number == 0 else 1, first=number == 0)
    x = layers.flatten(net, layers.adaptive_avg_pool(net, x, 1))
    return [layers.linear(net, x, _CLASSES)]


def _bottleneck(net: NetworkBuilder, x: Value, width: int, stride: int, first: bool) -> Value:
    out = layers.relu(net, layers.batch_norm(net, layers.conv(net, x, width, 1)))
    out = layers.relu(net, layers.batch_norm(net, layers.conv(net, out, width, 3, stride=stride, padding=1)))
    out = layers.batch_norm(net, layers.conv(net, out, width * _RESNET_EXPANSION, 1))
    if first:
        x = layers.batch_norm(net, layers.conv(net, x, width * _RESNET_EXPANSION, 1, stride=stride))
    return layers.relu(net, layers.add(net, out, x))


def mobilenet_v2(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """MobileNet-V2 of width 1: inverted residuals around depthwise convolutions, with ReLU6."""
    x = _conv_norm_clip(net, net.input(3, *size), 32, 3, stride=2)
    for expansion, channels, count, stride in _MOBILENET_STAGES:
        for number in range(count):
            x = _inverted_residual(net, x, expansion, channels, stride if number == 0 else 1)
    x = _conv_norm_clip(net, x, 1280, 1)
    x = layers.dropout(net, layers.flatten(net, layers.adaptive_avg_pool(net, x, 1)))
    return [layers.linear(net, x, _CLASSES)]


def _inverted_residual(net: NetworkBuilder, x: Value, expansion: int, channels: int, stride: int) -> Value:
    hidden = x.shape[1] * expansion
    out = _conv_norm_clip(net, x, hidden, 1) if expansion > 1 else x
    out = _conv_norm_clip(net, out, hidden, 3, stride=stride, groups=hidden)
    out = layers.batch_norm(net, layers.conv(net, out, channels, 1))
    return layers.add(net, x, out) if stride == 1 and x.shape[1] == channels else out


def _conv_norm_clip(
    net: NetworkBuilder, x: Value, channels: int, kernel: int, stride: int = 1, groups: int = 1
) -> Value:
    x = layers.conv(net, x, channels, kernel, stride=stride, padding=kernel // 2, groups=groups)
    return layers.hardtanh(net, layers.batch_norm(net, x))
