"""U-Nets for segmentation: an encoder that halves the image, and a decoder that joins its levels again."""

from __future__ import annotations

from gapless.profiles.training import layers
from gapless.profiles.training.building import NetworkBuilder, Value

__all__ = ["unet", "unet_3d"]

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
        x = _conv_norm_relu(net, _conv_norm_relu(net, x, channels), channels)
        levels.append(x)
    for (first, second), level in zip(_DECODER, reversed(levels[:-1]), strict=True):
        x = layers.cat(net, level, layers.upsample(net, x, level.shape[2:]))
        x = _conv_norm_relu(net, _conv_norm_relu(net, x, first), second)
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


def _conv_norm_relu(net: NetworkBuilder, x: Value, channels: int) -> Value:
    x = layers.conv(net, x, channels, 3, padding=1, bias=True)
    return layers.relu(net, layers.batch_norm(net, x))


def _norm_conv_relu(net: NetworkBuilder, x: Value, channels: int) -> Value:
    x = layers.conv(net, layers.group_norm(net, x, _GROUPS_3D), channels, 3, padding=1)
    return layers.relu(net, x)
