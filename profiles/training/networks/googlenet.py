"""GoogLeNet as torchvision lays it out: with batch normalisation, both auxiliary classifiers, and no 5 x 5 kernel."""

from __future__ import annotations

from typing import NamedTuple

from gapless.profiles.training import layers
from gapless.profiles.training.building import NetworkBuilder, Value

__all__ = ["googlenet"]

_CLASSES = 1000


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
