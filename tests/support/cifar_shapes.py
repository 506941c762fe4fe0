"""Shapes of the parameters of public networks for images of 32 x 32: ResNet-18, and VGG-19 with batch normalisation."""

from __future__ import annotations

Shapes = list[tuple[int, ...]]


def _normalised(inputs: int, outputs: int, kernel: int, has_bias: bool = False) -> Shapes:
    """A convolution and the batch normalisation behind it."""
    return [(outputs, inputs, kernel, kernel), *([(outputs,)] if has_bias else []), (outputs,), (outputs,)]


def resnet18(classes: int) -> Shapes:
    """Four stages of two blocks of two convolutions without bias, shortcuts of one where a stage begins wider."""
    found, inputs = _normalised(3, 64, 3), 64
    for width in (64, 128, 256, 512):
        for _ in range(2):
            found += _normalised(inputs, width, 3) + _normalised(width, width, 3)
            found += [] if inputs == width else _normalised(inputs, width, 1)
            inputs = width
    return [*found, (classes, 512), (classes,)]


def vgg19bn(classes: int) -> Shapes:
    """Sixteen convolutions with bias, and a classifier of two hidden layers."""
    found, inputs = Shapes(), 3
    for width in (64, 64, 128, 128, *[256] * 4, *[512] * 8):
        found += _normalised(inputs, width, 3, has_bias=True)
        inputs = width
    return [*found, (512, 512), (512,), (512, 512), (512,), (classes, 512), (classes,)]
