"""A small convolutional network, to try data-parallel training on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from gapless.errors import InputError
from gapless.torch.library import Module, Tensor, torch

__all__ = ["net"]

nn = torch.nn

Made: TypeAlias = tuple[Module, Tensor, Callable[[Tensor, Tensor], Tensor], Tensor]
"""Model, inputs, loss, targets."""


def net(layers: int = 6, width: int = 16, classes: int = 100, size: int = 16, batch: int = 4) -> Made:
    """Convolutions with batch normalisation, every second one twice as wide as the one before, and two linear layers;
    random classes, noisy images of them, and the loss. Under any seed, images of a class are like each other.

    Raises `InputError` where the images are halved to nothing.
    """
    halvings = (layers - 1) // 2
    if size >> halvings < 1:
        raise InputError(f"model: size must be {1 << halvings} at least for {layers} layers, got {size}")
    stages, channels = [], 3
    for number in range(layers):
        wider = width << (number // 2)
        stride = 2 if number % 2 == 0 and number else 1
        stages += [nn.Conv2d(channels, wider, 3, stride, 1, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
        channels = wider
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 4 * channels), nn.ReLU()]
    model = nn.Sequential(*stages, *head, nn.Linear(4 * channels, classes))
    chosen = torch.randint(classes, (batch,))
    clean = torch.randn(classes, 3, size, size, generator=torch.Generator().manual_seed(0))
    images = clean[chosen] + torch.randn(batch, 3, size, size)
    return model, images, nn.functional.cross_entropy, chosen
