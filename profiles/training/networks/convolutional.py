"""Convolutional networks as their authors and torchvision lay them out, with batch normalisation where those have it.

ResNet-50, ResNet-101, VGG-16, MobileNet-V2; GoogLeNet with both auxiliary classifiers and no 5 x 5 kernel; U-Nets in
two and three dimensions, whose decoders join the levels of their encoders again.
"""

from __future__ import annotations

from typing import NamedTuple

from gapless.profiles.training import layers
from gapless.profiles.training.builder import NetworkBuilder, Value

__all__ = ["googlenet", "mobilenet_v2", "resnet50", "resnet101", "unet", "unet_3d", "vgg16"]

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


class _Inception(NamedTuple):
    """Channels of the four branches; the second and third first reduce theirs."""

    plain: int
    reduce_second: int
    second: int
    reduce_third: int
    third: int
    pooled: int


_STAGE_3 = (_Inception(64, 96, 128, 16, 32, 32), _Inception(128, 128, 192, 32, 96, 64))
_STAGE_4 = (
    _Inception(192, 96, 208, 16, 48, 64),
    _Inception(160, 112, 224, 24, 64, 64),
    _Inception(128, 128, 256, 24, 64, 64),
    _Inception(112, 144, 288, 32, 64, 64),
    _Inception(256, 160, 320, 32, 128, 128),
)
_STAGE_5 = (_Inception(256, 160, 320, 32, 128, 128), _Inception(384, 192, 384, 48, 128, 128))
_AUXILIARY_AFTER = (0, 3)
"""Blocks of stage 4 behind which an auxiliary classifier looks at the features."""


def googlenet(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """GoogLeNet; the loss is over the classifier and both auxiliary ones, as in training."""
    x = _conv_norm_relu(net, net.input(3, *size), 64, 7, stride=2)
    x = layers.max_pool(net, x, 3, stride=2, ceil=True)
    x = _conv_norm_relu(net, _conv_norm_relu(net, x, 64, 1), 192, 3)
    x = layers.max_pool(net, x, 3, stride=2, ceil=True)
    for block in _STAGE_3:
        x = _inception(net, x, block)
    x = layers.max_pool(net, x, 3, stride=2, ceil=True)
    auxiliary = []
    for number, block in enumerate(_STAGE_4):
        x = _inception(net, x, block)
        if number in _AUXILIARY_AFTER:
            auxiliary.append(_auxiliary_classifier(net, x))
    x = layers.max_pool(net, x, 2, ceil=True)
    for block in _STAGE_5:
        x = _inception(net, x, block)
    x = layers.flatten(net, layers.adaptive_avg_pool(net, x, 1))
    return [layers.linear(net, layers.dropout(net, x), _CLASSES), *auxiliary]


def _inception(net: NetworkBuilder, x: Value, block: _Inception) -> Value:
    plain = _conv_norm_relu(net, x, block.plain, 1)
    second = _conv_norm_relu(net, _conv_norm_relu(net, x, block.reduce_second, 1), block.second, 3)
    third = _conv_norm_relu(net, _conv_norm_relu(net, x, block.reduce_third, 1), block.third, 3)
    pooled = _conv_norm_relu(net, layers.max_pool(net, x, 3, stride=1, padding=1, ceil=True), block.pooled, 1)
    return layers.cat(net, plain, second, third, pooled)


def _auxiliary_classifier(net: NetworkBuilder, x: Value) -> Value:
    x = _conv_norm_relu(net, layers.adaptive_avg_pool(net, x, 4), 128, 1)
    x = layers.relu(net, layers.linear(net, layers.flatten(net, x), 1024))
    return layers.linear(net, layers.dropout(net, x), _CLASSES)


def _conv_norm_relu(net: NetworkBuilder, x: Value, channels: int, kernel: int, stride: int = 1) -> Value:
    x = layers.conv(net, x, channels, kernel, stride=stride, padding=kernel // 2)
    return layers.relu(net, layers.batch_norm(net, x))


_ENCODER = (64, 128, 256, 512, 512)
_DECODER = ((512, 256), (256, 128), (128, 64), (64, 64))

_ENCODER_3D = (32, 64, 128, 256)
_GROUPS_3D = 8


def unet(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """The U-Net for two-class masks of photographs (Carvana): upsampling without parameters, batch normalisation."""
    x = net.input(3, *size)
    levels: list[Value] = []
    for channels in _ENCODER:
        if levels:
            x = layers.max_pool(net, x, 2)
        x = _biased_conv_norm_relu(net, _biased_conv_norm_relu(net, x, channels), channels)
        levels.append(x)
    for (first, second), level in zip(_DECODER, reversed(levels[:-1]), strict=True):
        x = layers.cat(net, level, layers.upsample(net, x, level.shape[2:]))
        x = _biased_conv_norm_relu(net, _biased_conv_norm_relu(net, x, first), second)
    return [layers.conv(net, x, 1, 1, bias=True)]


def unet_3d(net: NetworkBuilder, size: tuple[int, ...]) -> list[Value]:
    """The 3D U-Net of pytorch-3dunet for cell boundaries: group normalisation first, 32 channels at the top level."""
    x = net.input(1, *size)
    levels: list[Value] = []
    for channels in _ENCODER_3D:
        if levels:
            x = layers.max_pool(net, x, 2)
        # The first convolution of a level makes half of the change, the second doubles the channels.
        x = _norm_conv_relu(net, _norm_conv_relu(net, x, max(channels // 2, x.shape[1])), channels)
        levels.append(x)
    for level in reversed(levels[:-1]):
        x = layers.cat(net, level, layers.upsample(net, x, level.shape[2:]))
        x = _norm_conv_relu(net, _norm_conv_relu(net, x, level.shape[1]), level.shape[1])
    return [layers.conv(net, x, 1, 1, bias=True)]


def _biased_conv_norm_relu(net: NetworkBuilder, x: Value, channels: int) -> Value:
    x = layers.conv(net, x, channels, 3, padding=1, bias=True)
    return layers.relu(net, layers.batch_norm(net, x))


def _norm_conv_relu(net: NetworkBuilder, x: Value, channels: int) -> Value:
    x = layers.conv(net, layers.group_norm(net, x, _GROUPS_3D), channels, 3, padding=1)
    return layers.relu(net, x)
