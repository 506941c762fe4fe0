"""Image classifiers as their authors and torchvision lay them out: ResNet-50, ResNet-101, VGG-16, MobileNet-V2."""

from __future__ import annotations

from gapless.profiles.training import layers
from gapless.profiles.training.building import NetworkBuilder, Value

__all__ = ["mobilenet_v2", "resnet50", "resnet101", "vgg16"]

_CLASSES = 1000

_VGG16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
"""Channels and number of 3 x 3 convolutions, each stage closed by a pooling."""

_RESNET50_STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
_RESNET101_STAGES = ((64, 3, 1), (128, 4, 2), (256, 23, 2), (512, 3, 2))
"""Width of the bottleneck, number of blocks, stride of the first."""

_RESNET_EXPANSION = 4

_MOBILENET_STAGES = (
    (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
)  # fmt: skip
"""Expansion, channels, number of blocks, stride of the first."""


def vgg16(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """VGG-16 without batch normalisation."""
    x = net.input(3, *size)
    position = 0  # in torchvision's list of convolutions, activations and poolings
    for channels, count in _VGG16_STAGES:
        for _ in range(count):
            x = net.named(f"features.{position}", layers.conv(net, x, channels, 3, padding=1, bias=True))
            x = layers.relu(net, x)
            position += 2
        x = layers.max_pool(net, x, 2)
        position += 1
    x = layers.flatten(net, layers.adaptive_avg_pool(net, x, 7))
    for number in (0, 3):
        x = net.named(f"classifier.{number}", layers.linear(net, x, 4096))
        x = layers.dropout(net, layers.relu(net, x))
    return [net.named("classifier.6", layers.linear(net, x, _CLASSES))]


def resnet50(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """ResNet-50 with the stride in the 3 x 3 convolution of a bottleneck."""
    return _resnet(net, size, _RESNET50_STAGES)


def resnet101(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """ResNet-101 with the stride in the 3 x 3 convolution of a bottleneck."""
    return _resnet(net, size, _RESNET101_STAGES)


def _resnet(net: NetworkBuilder, size: tuple[int, ...], stages: tuple[tuple[int, int, int], ...]) -> list[Value]:
    x = _conv_norm(net, net.input(3, *size), 64, 7, ("conv1", "bn1"), stride=2)
    x = layers.max_pool(net, layers.relu(net, x), 3, stride=2, padding=1)
    for stage, (width, count, stride) in enumerate(stages, start=1):
        for number in range(count):
            x = _bottleneck(net, x, width, stride if number == 0 else 1, f"layer{stage}.{number}", first=number == 0)
    x = layers.flatten(net, layers.adaptive_avg_pool(net, x, 1))
    return [net.named("fc", layers.linear(net, x, _CLASSES))]


def _bottleneck(net: NetworkBuilder, x: Value, width: int, stride: int, name: str, first: bool) -> Value:
    names = [(f"{name}.conv{number}", f"{name}.bn{number}") for number in (1, 2, 3)]
    out = layers.relu(net, _conv_norm(net, x, width, 1, names[0]))
    out = layers.relu(net, _conv_norm(net, out, width, 3, names[1], stride=stride))
    out = _conv_norm(net, out, width * _RESNET_EXPANSION, 1, names[2])
    if first:
        shortcut = (f"{name}.downsample.0", f"{name}.downsample.1")
        x = _conv_norm(net, x, width * _RESNET_EXPANSION, 1, shortcut, stride=stride)
    return layers.relu(net, layers.add(net, out, x))


def _conv_norm(
    net: NetworkBuilder, x: Value, channels: int, kernel: int, names: tuple[str, str], stride: int = 1
) -> Value:
    x = net.named(names[0], layers.conv(net, x, channels, kernel, stride=stride, padding=kernel // 2))
    return net.named(names[1], layers.batch_norm(net, x))


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
